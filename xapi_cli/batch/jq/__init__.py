"""The filter of --jq for many documents at a time, without blocking the engine."""

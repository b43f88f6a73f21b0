"""The filters of --jq and --expect for many documents at a time, without blocking the engine."""

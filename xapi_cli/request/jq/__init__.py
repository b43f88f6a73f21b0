"""The filter of --jq, which runs in a child process."""

"""Filters of jq: for the output, for what a response must meet, and for what a command waits for."""

"""The HTTP layer under httpx: connections, parsing, timeouts."""

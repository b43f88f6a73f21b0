"""HTTP: connections, parsing, timeouts."""

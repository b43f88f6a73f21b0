"""A single request: its arguments, its body, and the output of the response."""

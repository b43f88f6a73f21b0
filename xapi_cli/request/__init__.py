"""One request: its arguments, its body, and what happens to the response."""

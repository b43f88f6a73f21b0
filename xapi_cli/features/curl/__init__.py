"""The curl command that is equivalent to a request."""

"""`xapi proxy`: serve the API to other programs on this machine without giving them the token."""

"""`xapi each`: one request for each row of a list."""

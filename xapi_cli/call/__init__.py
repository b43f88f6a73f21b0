"""One call of the API, from the request to where its answer goes."""

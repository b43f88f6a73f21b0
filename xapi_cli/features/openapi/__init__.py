"""The description of the API, in OpenAPI: read, looked up, and compared."""

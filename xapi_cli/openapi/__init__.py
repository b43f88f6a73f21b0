"""The description of the API, an OpenAPI or Swagger document: read, compiled into an index, and looked up."""

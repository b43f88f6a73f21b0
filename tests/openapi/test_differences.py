"""The comparison of two versions of a description: each change, and whether it breaks a client."""

import copy
import json
from typing import Any

import pytest

from tests.openapi.documents import as_bytes, openapi, public_document
from xapi_cli.openapi.compiler import Compiler
from xapi_cli.openapi.differences import Change, Description, compare
from xapi_cli.openapi.documents import parse

OLD = openapi(
    {
        "/items": {
            "get": {
                "parameters": [
                    {"name": "limit", "in": "query", "schema": {"type": "integer"}},
                    {"name": "state", "in": "query", "schema": {"type": "string", "enum": ["open", "closed"]}},
                    {"name": "X-Run", "in": "header", "required": True, "schema": {"type": "string"}},
                ],
                "responses": {
                    "200": {
                        "description": "ok",
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Page"}}},
                    },
                    "404": {"description": "no", "content": {"application/json": {"schema": {"type": "object"}}}},
                },
            },
            "post": {
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Item"}}},
                },
                "responses": {"201": {"description": "created"}},
            },
        },
        "/items/{id}": {"get": {"parameters": [{"name": "id", "in": "path", "schema": {"type": "integer"}}]}},
    }
)
OLD["components"] = {
    "schemas": {
        "Page": {
            "type": "object",
            "required": ["items"],
            "properties": {
                "items": {"type": "array", "items": {"$ref": "#/components/schemas/Item"}},
                "next": {"type": "string"},
            },
        },
        "Item": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "id": {"type": "integer", "readOnly": True},
                "name": {"type": "string"},
                "secret": {"type": "string", "writeOnly": True},
                "parent": {"$ref": "#/components/schemas/Item"},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
    }
}
ITEMS, ITEM = ("paths", "/items"), ("components", "schemas", "Item")
GET, POST, PAGE = (*ITEMS, "get"), (*ITEMS, "post"), ("components", "schemas", "Page")
LIMIT, STATE, RUN = ((*GET, "parameters", number) for number in range(3))
NOTHING = object()  # in place of a value: it is removed


def described(document: Any) -> Description:
    compiler = Compiler(parse(as_bytes(document), "x"), lists_fields=True)
    operations = compiler.operations()
    return Description(operations, compiler.fields, compiler.server_path())


def changed(*place: Any, to: object) -> dict[str, Any]:
    """Return the document with another value at *place*."""
    document: Any = copy.deepcopy(OLD)
    node = document
    for key in place[:-1]:
        node = node[key]
    if to is NOTHING:
        del node[place[-1]]
    elif isinstance(node, list) and place[-1] == len(node):
        node.append(to)
    else:
        node[place[-1]] = to
    found: dict[str, Any] = document
    return found


def texts(old: Any, new: Any) -> list[str]:
    """Return the changes, each as its method, path and text, after `!` if it is breaking."""
    found = compare(described(old), described(new))
    return [f"{'!' * each.breaking}{each.method} {each.path} {each.text or each.kind}" for each in found]


# For each change of the document: what is said about it, and about the opposite change.
CASES: dict[str, tuple[tuple[Any, ...], object, list[str], list[str]]] = {
    "an operation": ((*ITEMS, "post"), NOTHING, ["!POST /items removed"], ["POST /items added"]),
    "a path": (("paths", "/items/{id}"), NOTHING, ["!GET /items/{id} removed"], ["GET /items/{id} added"]),
    "an optional parameter": (
        LIMIT,
        NOTHING,
        ["!GET /items query parameter limit removed"],
        ["GET /items query parameter limit added, optional"],
    ),
    "a required parameter": (
        RUN,
        NOTHING,
        ["!GET /items header parameter x-run removed"],
        ["!GET /items header parameter x-run added, required"],
    ),
    "the need for a parameter": (
        (*LIMIT, "required"),
        True,
        ["!GET /items query parameter limit became required"],
        ["GET /items query parameter limit became optional"],
    ),
    "the type of a parameter": (
        (*LIMIT, "schema", "type"),
        "number",
        ["GET /items query parameter limit type changed from integer to number"],
        ["!GET /items query parameter limit type changed from number to integer"],
    ),
    "a value of a parameter": (
        (*STATE, "schema", "enum"),
        ["open", "draft", "closed"],
        ["GET /items query parameter state allows draft too"],
        ["!GET /items query parameter state no longer allows draft"],
    ),
    "all values of a parameter": (
        (*STATE, "schema", "enum"),
        NOTHING,
        ["GET /items query parameter state allows any value"],
        ["!GET /items query parameter state allows only open, closed"],
    ),
    "a field of a request": (
        (*ITEM, "properties", "secret"),
        NOTHING,
        ["!POST /items body field secret removed"],
        ["POST /items body field secret added, optional"],
    ),
    "the need for a body": (
        (*POST, "requestBody", "required"),
        False,
        ["POST /items body became optional"],
        ["!POST /items body became required"],
    ),
    "a body": ((*POST, "requestBody"), NOTHING, ["!POST /items body removed"], ["!POST /items body added, required"]),
    "a field of a response": (
        (*PAGE, "properties", "next"),
        NOTHING,
        ["!GET /items response 200 field next removed"],
        ["GET /items response 200 field next added"],
    ),
    "a field with fields of a response": (
        (*PAGE, "properties", "items"),
        NOTHING,
        ["!GET /items response 200 field items removed"],
        ["GET /items response 200 field items added"],
    ),
    "a field that is always present": (
        (*PAGE, "required"),
        [],
        ["!GET /items response 200 field items may be missing now"],
        ["GET /items response 200 field items is always present now"],
    ),
    "the type of a field of a response": (
        (*PAGE, "properties", "next", "type"),
        ["string", "null"],
        ["!GET /items response 200 field next type changed from string to string or null"],
        ["GET /items response 200 field next type changed from string or null to string"],
    ),
    "a value of a response": (
        (*PAGE, "properties", "next", "enum"),
        ["a"],
        ["GET /items response 200 field next may have only a"],
        ["GET /items response 200 field next may have any value"],
    ),
    "the type of a response": (
        PAGE,
        {"type": "string"},
        [
            "!GET /items response 200 type changed from object to string",
            "!GET /items response 200 field items removed",
            "!GET /items response 200 field next removed",
        ],
        [
            "!GET /items response 200 type changed from string to object",
            "GET /items response 200 field items added",
            "GET /items response 200 field next added",
        ],
    ),
    "a success": (
        (*GET, "responses", "200"),
        NOTHING,
        ["!GET /items response 200 removed"],
        ["GET /items response 200 added"],
    ),
    "a failure": (
        (*GET, "responses", "404"),
        NOTHING,
        ["GET /items response 404 removed"],
        ["GET /items response 404 added"],
    ),
    "the type of a failure": (
        (*GET, "responses", "404", "content", "application/json", "schema", "type"),
        "string",
        ["GET /items response 404 type changed from object to string"],
        ["GET /items response 404 type changed from string to object"],
    ),
    "a deprecation": ((*GET, "deprecated"), True, ["GET /items deprecated"], ["GET /items no longer deprecated"]),
    "the type of a path parameter": (
        ("paths", "/items/{id}", "get", "parameters", 0, "schema", "type"),
        "string",
        ["!GET /items/{id} path parameter 1 type changed from integer to string"],
        ["!GET /items/{id} path parameter 1 type changed from string to integer"],
    ),
    "the values of a map": (
        (*ITEM, "properties", "labels", "additionalProperties", "type"),
        "integer",
        [
            "!GET /items response 200 field items[].labels.* type changed from string to integer",
            "!POST /items body field labels.* type changed from string to integer",
        ],
        [
            "!GET /items response 200 field items[].labels.* type changed from integer to string",
            "!POST /items body field labels.* type changed from integer to string",
        ],
    ),
    "a text": ((*GET, "description"), "Another text", [], []),
    "the title": (("info", "title"), "Another title", [], []),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_and_its_opposite(case: str) -> None:
    place, value, expected, opposite = CASES[case]
    new = changed(*place, to=value)

    shown, reversed_ = texts(OLD, new), texts(new, OLD)

    assert shown == expected
    assert reversed_ == opposite


def test_the_name_of_a_path_parameter_does_not_matter() -> None:
    new = json.loads(
        as_bytes(OLD).replace(b"/items/{id}", b"/items/{item}").replace(b'"name": "id"', b'"name": "item"')
    )

    assert texts(OLD, new) == []


def test_another_server_path_changes_all_operations() -> None:
    new = {**OLD, "servers": [{"url": "https://api.test/v2"}]}

    assert texts(OLD, new)[:2] == ["!GET /items removed", "!POST /items removed"]
    assert "POST /v2/items added" in texts(OLD, new)


def test_a_change_has_all_its_parts() -> None:
    new = changed(*GET, "deprecated", to=True)

    assert compare(described(OLD), described(new)) == [Change("GET", "/items", "changed", "deprecated", False)]


def test_the_fields_of_a_form_are_compared() -> None:
    def document(*names: str) -> Any:
        parameters = [{"name": name, "in": "formData", "type": "string"} for name in names]
        return {"swagger": "2.0", "paths": {"/a": {"post": {"parameters": parameters}}}}

    assert texts(document("a", "b"), document("a", "c")) == [
        "!POST /a body field b removed",
        "POST /a body field c added, optional",
    ]


def test_the_media_type_of_a_body_is_compared() -> None:
    content = {"text/csv": {"schema": {"type": "string"}}}
    new = changed(*POST, "requestBody", "content", to=content)

    assert texts(OLD, new)[0] == "!POST /items body changed from application/json to text/csv"


def test_an_endless_schema_ends() -> None:
    item = {"$ref": "#/components/schemas/Item"}
    properties = {f"p{number}": {"type": "array", "items": {"properties": {"a": item}}} for number in range(1000)}
    schema = {"type": "object", "properties": properties}
    new = changed(*ITEM, to=schema)

    assert compare(described(new), described(new)) == []
    assert not described(new).fields["GET", "/items"]["200"].is_complete


PUBLIC = ["openai/official/openapi.yml", "anthropic/official/openapi.yml", "cohere/official/openapi.yml"]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_description_has_no_changes_from_itself_in_another_order(name: str) -> None:
    path = public_document(name)
    document = parse(path.read_bytes(), path.name)
    other = json.loads(json.dumps(document, sort_keys=True))

    assert compare(described(document), described(other)) == []


@pytest.mark.parametrize("name", PUBLIC)
def test_each_operation_that_a_public_description_loses_is_a_change(name: str) -> None:
    path = public_document(name)
    document = parse(path.read_bytes(), path.name)
    old, new = described(document), described(document)
    new = new._replace(operations=new.operations[1:])

    (change,) = compare(old, new)
    assert (change.kind, change.breaking) == ("removed", True)

"""The comparison of two versions of a description: each change, and whether it breaks a client."""

import copy
import json
import random
from functools import reduce
from typing import Any

import pytest

from tests.openapi.documents import as_bytes, openapi, public_document
from xapi_cli.openapi.compiler import Compiler
from xapi_cli.openapi.differences import Change, Comparison, Description
from xapi_cli.openapi.documents import parse
from xapi_cli.openapi.fields import SchemaReader
from xapi_cli.openapi.schemas import References, TooComplex

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
    compiler = Compiler(parse(as_bytes(document), "x"))
    operations = compiler.operations()
    return Description(operations, compiler.details(), compiler.references, compiler.server_path())


def compare(old: Description, new: Description) -> list[Change]:
    """Return the changes; the comparison must be complete."""
    comparison = Comparison(old, new)
    changes = comparison.changes()
    assert comparison.is_complete
    return changes


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
        ],
        [
            "!GET /items response 200 type changed from string to object",
        ],
    ),
    "the schema of a response": (
        (*GET, "responses", "200", "content", "application/json", "schema"),
        NOTHING,
        ["!GET /items response 200 type changed from object to any"],
        [
            "GET /items response 200 type changed from any to object",
            "GET /items response 200 field items added",
            "GET /items response 200 field next added",
        ],
    ),
    "the schema of a body": (
        (*POST, "requestBody", "content", "application/json", "schema"),
        NOTHING,
        [
            "POST /items body type changed from object to any",
            *(f"!POST /items body field {name} removed" for name in ("name", "secret", "parent", "labels")),
        ],
        ["!POST /items body type changed from any to object"],
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


def test_another_server_path_is_one_change() -> None:
    new = {**OLD, "servers": [{"url": "https://api.test/v2"}]}

    assert texts(OLD, new) == ["!* / server path changed from / to /v2"]
    assert texts(new, OLD) == ["!* /v2 server path changed from /v2 to /"]
    moved = {**OLD, "paths": {f"/v2{path}": item for path, item in OLD["paths"].items()}}
    assert texts(moved, new) == []


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

    assert texts(OLD, new) == [
        "!POST /items body media type application/json removed",
        "POST /items body media type text/csv added",
    ]


def test_an_endless_schema_ends() -> None:
    item = {"$ref": "#/components/schemas/Item"}
    properties = {f"p{number}": {"type": "array", "items": {"properties": {"a": item}}} for number in range(1000)}
    schema = {"type": "object", "properties": properties}
    new = changed(*ITEM, to=schema)

    assert compare(described(new), described(copy.deepcopy(new))) == []


def body(schema: Any, *, of: str = "response", **more: Any) -> dict[str, Any]:
    """Return a document with *schema* for a request or a response; *more* are its members."""
    content = {"application/json": {"schema": schema}}
    node = {"requestBody": {"content": content}} if of == "request" else {"responses": {"200": {"content": content}}}
    return openapi({"/a": {"post": node}}, **more)


def obj(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or []}


STRING, NUMBER, NONE = {"type": "string"}, {"type": "number"}, {"type": "null"}
# For each change of a schema: what is said about it in a request and in a response, without `POST /a`.
SCHEMAS: dict[str, tuple[Any, Any, list[str], list[str]]] = {
    "a nullable field of OpenAPI 3.0": (
        obj(a=STRING),
        obj(a={**STRING, "nullable": True}),
        ["body field a type changed from string to string or null"],
        ["!response 200 field a type changed from string to string or null"],
    ),
    "a nullable reference": (
        obj(a={"allOf": [{"type": "object"}]}),
        obj(a={"allOf": [{"type": "object"}], "nullable": True}),
        ["body field a type changed from object to object or null"],
        ["!response 200 field a type changed from object to object or null"],
    ),
    "a format": (
        obj(a=STRING),
        obj(a={**STRING, "format": "date"}),
        ["!body field a type changed from string to string (date)"],
        ["response 200 field a type changed from string to string (date)"],
    ),
    "the elements of an array": (
        obj(a={"type": "array", "items": {"type": "integer"}}),
        obj(a={"type": "array", "items": NUMBER}),
        ["body field a[] type changed from integer to number"],
        ["!response 200 field a[] type changed from integer to number"],
    ),
    "a field below an array that may be null": (
        obj(a={"anyOf": [{"type": "array", "items": obj(b=STRING, c=STRING)}, NONE]}),
        obj(a={"anyOf": [{"type": "array", "items": obj(b=STRING)}, NONE]}),
        ["!body field a[].c removed"],
        ["!response 200 field a[].c removed"],
    ),
    "a field below an object that may be null": (
        obj(a={"oneOf": [NONE, obj(b=STRING)]}),
        obj(a={"oneOf": [NONE, obj(["b"], b=STRING)]}),
        ["!body field a.b became required"],
        ["response 200 field a.b is always present now"],
    ),
    "a type and its values at once": (
        obj(a={"type": "string", "enum": ["x", "y"]}),
        obj(a={"type": ["string", "null"], "enum": ["x", None]}),
        ["body field a type changed from string to string or null", "!body field a no longer allows y"],
        [
            "!response 200 field a type changed from string to string or null",
            "response 200 field a no longer may have y",
        ],
    ),
    "a value of an open list": (
        obj(a={"anyOf": [STRING, {"type": "string", "enum": ["x", "y"]}]}),
        obj(a={"anyOf": [STRING, {"type": "string", "enum": ["x", "z"]}]}),
        [],
        [],
    ),
    "an alternative": (
        {"oneOf": [obj(["kind"], kind={"const": "x"}, a=STRING), obj(["kind"], kind={"const": "y"}, b=STRING)]},
        {"oneOf": [obj(["kind"], kind={"const": "x"}, a=STRING)]},
        ["!body field b removed", "!body field kind no longer allows y"],
        ["!response 200 field b removed", "response 200 field kind no longer may have y"],
    ),
    "a field that one of two alternatives requires": (
        {"oneOf": [obj(["a"], a=STRING), obj(["a"], a=STRING)]},
        {"oneOf": [obj(["a"], a=STRING), obj(a=STRING)]},
        ["body field a became optional"],
        ["!response 200 field a may be missing now"],
    ),
    "a part that requires a field of another part": (
        {"allOf": [obj(a=STRING), {"type": "object"}]},
        {"allOf": [obj(a=STRING), {"required": ["a"]}], "required": ["a"]},
        ["!body field a became required"],
        ["response 200 field a is always present now"],
    ),
    "a part that requires a field of another part only": (
        {"allOf": [obj(a=STRING)]},
        {"allOf": [{"required": ["a"]}, obj(a=STRING)]},
        ["!body field a became required"],
        ["response 200 field a is always present now"],
    ),
    "a field that all alternatives require, and another part describes": (
        {"allOf": [obj(a=STRING, b=STRING), {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}]},
        {"allOf": [obj(a=STRING, b=STRING), {"oneOf": [{"required": ["a", "b"]}, {"required": ["b"]}]}]},
        ["!body field b became required"],
        ["response 200 field b is always present now"],
    ),
    "a required field that nothing describes": (
        {"type": "object"},
        {"type": "object", "required": ["z"]},
        ["!body field z became required"],
        ["response 200 field z is always present now"],
    ),
    "a required field with a default value that two parts describe": (
        obj(["a"], a={**STRING, "default": "x"}),
        {"allOf": [obj(["a"], a={**STRING, "default": "x"}), obj(a={"description": "A text"})]},
        [],
        [],
    ),
    "a required field with a default value in each of two alternatives": (
        {"oneOf": [obj(["a"], a={**STRING, "default": "x"}, b=STRING)]},
        {"oneOf": [obj(["a"], a={**STRING, "default": each}, b=STRING) for each in ("x", "y")]},
        [],
        [],
    ),
    "a description of a field that was only listed as required": (
        {"type": "object", "required": ["z"]},
        obj(["z"], z=STRING),
        [],
        ["response 200 field z added"],
    ),
    "a field that was only listed as required, and is optional now": (
        {"type": "object", "required": ["z"]},
        obj(z=STRING),
        ["body field z became optional"],
        ["response 200 field z added"],
    ),
    "a required field with a default value in another part": (
        {"allOf": [obj(a={**STRING, "default": "x"})]},
        {"allOf": [obj(a={**STRING, "default": "x"}), {"required": ["a"]}]},
        [],
        ["response 200 field a is always present now"],
    ),
    "a required field with a default value": (
        obj(),
        obj(["a"], a={**STRING, "default": "x"}),
        ["body field a added, optional"],
        ["response 200 field a added"],
    ),
    "a field at level 40": (
        reduce(lambda inner, _: obj(a=inner), range(40), obj(b=STRING, c=STRING)),
        reduce(lambda inner, _: obj(a=inner), range(40), obj(b=STRING)),
        [f"!body field {'a.' * 40}c removed"],
        [f"!response 200 field {'a.' * 40}c removed"],
    ),
    "many values": (
        obj(a=STRING),
        obj(a={**STRING, "enum": [str(number) for number in range(1000)]}),
        ["!body field a allows only 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 990 more"],
        ["response 200 field a may have only 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 990 more"],
    ),
    "a field that only the server sends": (
        obj(a={**STRING, "readOnly": True}),
        obj(a={"allOf": [{**STRING, "readOnly": True}], "nullable": True}),
        [],
        ["!response 200 field a type changed from string to string or null"],
    ),
    "an untyped list of values": (
        obj(a={"enum": ["x", False]}),
        obj(a={"enum": ["x"]}),
        ["!body field a type changed from string or boolean to string", "!body field a no longer allows false"],
        [
            "response 200 field a type changed from string or boolean to string",
            "response 200 field a no longer may have false",
        ],
    ),
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_a_change_of_a_schema_in_a_request_and_in_a_response(case: str) -> None:
    old, new, request, response = SCHEMAS[case]
    found = [texts(body(old, of=of), body(new, of=of)) for of in ("request", "response")]

    assert [[each.replace("POST /a ", "") for each in listed] for listed in found] == [request, response]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": ["string", "null"]}, {"type": ["null", "string"]}),
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"anyOf": [STRING, NUMBER]}, {"oneOf": [NUMBER, STRING]}),
        (
            {"anyOf": [obj(k={"const": "a"}), obj(k={"const": "b"})]},
            {"anyOf": [obj(k={"const": "b"}), obj(k={"const": "a"})]},
        ),
        ({"type": "array", "items": {"type": ["string", "integer"]}}, {"items": {"type": ["integer", "string"]}}),
        (obj(a=STRING, b=NUMBER), {"allOf": [obj(b=NUMBER), obj(a=STRING)]}),
        (obj(["a"], a=STRING), {"allOf": [{"required": ["a"]}, obj(["a"], a=STRING)]}),
        ({"enum": ["a", "b"]}, {"type": "string", "enum": ["b", "a"]}),
        ({"const": "a"}, {"enum": ["a"]}),
    ],
)
def test_the_same_schema_in_other_words_is_no_change(old: Any, new: Any) -> None:
    for of in ("request", "response"):
        assert texts(body(old, of=of), body(new, of=of)) == texts(body(new, of=of), body(old, of=of)) == []


def test_required_beside_a_reference_applies() -> None:
    reference = {"$ref": "#/components/schemas/Base"}
    components = {"schemas": {"Base": obj(a=STRING)}}
    old = body(reference, of="request", components=components)
    new = body({**reference, "required": ["a"]}, of="request", components=components)

    assert texts(old, new) == ["!POST /a body field a became required"]


def test_a_schema_that_a_body_contains_often_changes_once() -> None:
    def document(item: Any) -> Any:
        reference = {"$ref": "#/components/schemas/Item"}
        schemas = {"Item": {**item, "properties": {**item["properties"], "children": {"items": reference}}}}
        return body(obj(a=reference, b=reference), components={"schemas": schemas})

    found = texts(document(obj(x=STRING, y=STRING)), document(obj(x=STRING)))

    assert found == ["!POST /a response 200 field a.y removed"]


JSON: Any = {"content": {"application/json": {}}}
RESPONSES: dict[str, tuple[Any, Any, list[str]]] = {
    "the body of a success": ({"200": JSON}, {"200": {}}, ["!POST /a response 200 body removed"]),
    "the body of a failure": ({"400": JSON}, {"400": {}}, ["POST /a response 400 body removed"]),
    "a new body": ({"200": {}}, {"200": JSON}, ["POST /a response 200 body added"]),
    "a media type": (
        {"200": {"content": {"text/csv": {}, "application/json; charset=utf-8": {}}}},
        {"200": JSON},
        ["!POST /a response 200 media type text/csv removed"],
    ),
    "a range of media types": (
        {"200": {"content": {"*/*": {}}}},
        {"200": JSON},
        ["POST /a response 200 media type */* removed", "POST /a response 200 media type application/json added"],
    ),
    "a range of statuses": ({"200": {}}, {"2XX": {}}, ["POST /a response 2XX added"]),
    "the default for failures": ({"200": {}, "default": {}}, {"200": {}}, ["POST /a response default removed"]),
    "the default for all": (
        {"default": {}},
        {"404": {}},
        ["!POST /a response default removed", "POST /a response 404 added"],
    ),
    "a status": (
        {"200": {}},
        {"201": {}, "default": {}},
        ["!POST /a response 200 removed", "POST /a response 201 added", "POST /a response default added"],
    ),
}


@pytest.mark.parametrize("case", RESPONSES)
def test_a_change_of_the_responses(case: str) -> None:
    *responses, expected = RESPONSES[case]
    old, new = (openapi({"/a": {"post": {"responses": each}}}) for each in responses)

    assert texts(old, new) == expected


def test_a_request_that_accepts_any_media_type_accepts_the_old_one() -> None:
    old, new = ({"requestBody": {"content": {name: dict[str, Any]()}}} for name in ("text/csv", "text/*"))

    assert texts(openapi({"/a": {"post": old}}), openapi({"/a": {"post": new}})) == [
        "POST /a body media type text/csv removed",
        "POST /a body media type text/* added",
    ]


def test_the_order_of_path_parameters_and_their_description_do_not_matter() -> None:
    one: Any = {"name": "a", "in": "path", "required": True, "schema": STRING}
    other: Any = {"name": "b", "in": "path", "required": True, "schema": NUMBER}
    documents = [openapi({"/{a}/{b}": {"get": {"parameters": each}}}) for each in ([one, other], [other, one], [])]

    assert [texts(documents[0], each) for each in documents] == [[], [], []]


def test_the_media_types_of_swagger_are_those_of_the_document_or_of_the_operation() -> None:
    def document(**members: Any) -> Any:
        node = {"responses": {200: {"schema": {"type": "object"}}}, **members}
        return {"swagger": "2.0", "produces": ["application/json"], "paths": {"/a": {"get": node}}}

    assert texts(document(), document(produces=["text/xml", "application/json"])) == [
        "GET /a response 200 media type text/xml added"
    ]


@pytest.mark.slow
def test_schemas_that_are_too_complex_are_compared_as_far_as_possible() -> None:
    wide: dict[str, Any] = {f"p{number}": {"anyOf": [{"type": "string"}] * 500} for number in range(1000)}
    old, new = body(obj(None, a=STRING, **wide)), body(obj(None, **wide))
    comparison = Comparison(described(old), described(new))

    assert [each.text for each in comparison.changes()] == ["response 200 field a removed"]
    assert not comparison.is_complete


def test_all_schemas_together_have_a_budget() -> None:
    reader = SchemaReader(References({}), budget=100, total=250, is_request=True)

    def steps() -> int:
        reader.begin()
        for number in range(1000):
            try:
                reader.node({})
            except TooComplex:
                return number
        return 1000

    assert [steps() for _ in range(4)] == [100, 100, 50, 0]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/components/schemas/A"},
        {"allOf": [{"$ref": "#/components/schemas/A"}]},
        {"anyOf": [{"$ref": "#/components/schemas/A"}, {"$ref": "#/components/schemas/A"}]},
        {"items": {"$ref": "#/components/schemas/A"}},
        {"additionalProperties": {"$ref": "#/components/schemas/A"}},
        {"properties": {"a": {"oneOf": [{"$ref": "#/components/schemas/A"}, {"type": "null"}]}}},
        {"properties": [], "items": [], "allOf": {}, "anyOf": [1, None], "enum": {}, "required": 5, "type": {}},
        True,
        [],
    ],
)
def test_a_schema_that_contains_itself_or_is_malformed_ends(schema: Any) -> None:
    old = body(obj(a={"$ref": "#/components/schemas/A"}), components={"schemas": {"A": schema}})
    new = body(obj(a={"$ref": "#/components/schemas/A"}), components={"schemas": {"A": obj(x=STRING)}})

    for one, other in ((old, new), (new, old), (old, copy.deepcopy(old))):
        Comparison(described(one), described(other)).changes()


PUBLIC = [
    *(pytest.param(f"{name}/official/openapi.yml", marks=pytest.mark.slow) for name in ("openai", "anthropic")),
    "cohere/official/openapi.yml",
]


def shuffled(value: Any, randomly: random.Random) -> Any:
    """Return *value* with the members of objects and the elements of arrays in another order."""
    if isinstance(value, dict):
        return {name: shuffled(value[name], randomly) for name in randomly.sample([*value], len(value))}
    if isinstance(value, list):
        return [shuffled(each, randomly) for each in randomly.sample(value, len(value))]
    return value


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_description_has_no_changes_from_itself_in_another_order(name: str) -> None:
    path = public_document(name)
    document = parse(path.read_bytes(), path.name)
    other = {**shuffled(document, random.Random(7)), "servers": document["servers"]}

    assert compare(described(document), described(other)) == []


def test_two_versions_of_a_public_description() -> None:
    """The versions 2024-10-21 and 2025-04-01-preview of the Azure OpenAI Service API."""
    old, new = (
        described(parse(path.read_bytes(), path.name))
        for path in map(public_document, ("openai/azure/openapi.json", "openai/azure-preview/openapi.json"))
    )
    completions = "/openai/deployments/{deployment-id}/chat/completions"

    forward = compare(old, new)
    assert [each for each in forward if each.breaking] == [
        Change("POST", completions, "changed", "body field response_format.json_schema.schema became required", True)
    ]
    assert {each.kind for each in forward} == {"added", "changed"}
    assert len({(each.method, each.path) for each in forward if each.kind == "added"}) == len(new.operations) - len(
        old.operations
    )
    texts = {each.text for each in forward if each.path == completions}
    assert {
        "body field messages[].role allows developer too",
        "body field reasoning_effort added, optional",
        "response 200 field choices[].message.audio added",
    } <= texts

    back = compare(new, old)
    assert sum(each.kind == "removed" for each in back) == len(new.operations) - len(old.operations)
    assert {each.text for each in back if each.path == completions and each.breaking} >= {
        "body field messages[].role no longer allows developer",
        "body field reasoning_effort removed",
        "response 200 field choices[].message.audio removed",
    }


@pytest.mark.parametrize("name", PUBLIC)
def test_each_operation_that_a_public_description_loses_is_a_change(name: str) -> None:
    path = public_document(name)
    document = parse(path.read_bytes(), path.name)
    old, new = described(document), described(document)
    new = new._replace(operations=new.operations[1:])

    (change,) = compare(old, new)
    assert (change.kind, change.breaking) == ("removed", True)

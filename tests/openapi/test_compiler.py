"""Documents become operations: OpenAPI 3 and Swagger 2, with references, alternatives and cycles."""

from typing import Any

import pytest

from tests.openapi.documents import SWAGGER, openapi, operation
from xapi_cli.errors import UsageError
from xapi_cli.openapi.compiler import Compiler
from xapi_cli.openapi.operations import Body, Operation, Parameter, Response


def _fields(schema: Any, **members: Any) -> list[Parameter]:
    body = {"content": {"application/json": {"schema": schema}}}
    return operation({"requestBody": body}, **members).parameters_in("body")


def test_a_swagger_document() -> None:
    compiler = Compiler(SWAGGER)
    pet = [
        Parameter("name", "body", "string", required=True, text="its name"),
        Parameter("tags", "body", "array of string", values=("cat", "dog")),
    ]

    assert (compiler.title, compiler.server_path()) == ("Pets 1.2", "/v2")
    assert compiler.operations() == [
        Operation(
            "GET",
            "/pets/{id}",
            "Find a pet",
            parameters=[
                Parameter("id", "path", "integer", required=True),
                Parameter("view", "query", "string", required=True, values=("short", "full")),
                Parameter("X-Trace", "header", "string"),
            ],
            responses=[Response("200", "a pet", "object")],
        ),
        Operation(
            "PUT",
            "/pets/{id}",
            "(deprecated)",
            parameters=[Parameter("id", "path", "integer", required=True), *pet],
            body=Body("application/json", required=True, type="object"),
            responses=[],
        ),
        Operation(
            "POST",
            "/pets/{id}/photo",
            "",
            parameters=[
                Parameter("id", "path", "integer", required=True),
                Parameter("caption", "body", "string"),
                Parameter("photo", "body", "file", required=True),
            ],
            body=Body("multipart/form-data", required=True, type="object"),
            responses=[Response("default", "done", "")],
        ),
    ]


def test_headers_that_other_parts_of_a_request_set_are_no_parameters() -> None:
    names = ("Accept", "authorization", "Content-Type", "X-A")
    parameters = [{"name": name, "in": "header", "required": True} for name in names]

    assert [each.name for each in operation({"parameters": parameters}).parameters] == ["X-A"]


def test_a_parameter_may_have_a_media_type() -> None:
    content = {"application/json": {"schema": {"type": "object"}}}

    assert operation({"parameters": [{"name": "f", "in": "query", "content": content}]}).parameters == [
        Parameter("f", "query", "JSON (object)")
    ]
    content["text/csv"] = content.pop("application/json")
    assert operation({"parameters": [{"name": "f", "in": "query", "content": content}]}).parameters == [
        Parameter("f", "query", "object")
    ]


@pytest.mark.parametrize(
    ("schema", "type_", "values"),
    [
        ({"type": "string", "format": "date-time"}, "string (date-time)", ()),
        ({"type": "string", "format": "binary"}, "file", ()),
        ({"type": ["string", "null"], "enum": ["a", None, "b"]}, "string or null", ("a", "b")),
        ({"type": "boolean"}, "boolean", ("true", "false")),
        ({"const": "x"}, "string", ("x",)),
        ({"enum": ["1.10", True]}, "string", ("1.10", "true")),
        ({"enum": [True, False]}, "boolean", ("true", "false")),
        ({"type": "array"}, "array", ()),
        ({"type": ["null", "boolean"]}, "null or boolean", ("true", "false")),
        ({"type": ["array", "null"], "items": {"enum": ["a", "b"]}}, "array of string or null", ("a", "b")),
        ({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, "array of array of integer", ()),
        ({"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}, "string or null", ("a",)),
        ({"allOf": [{"properties": {}}]}, "object", ()),
        ({"enum": [str(number) for number in range(101)]}, "string", ()),
        ({}, "any", ()),
        (True, "any", ()),
        (None, "any", ()),
        ({"type": 5, "enum": "x"}, "string", ()),
    ],
)
def test_types_and_values(schema: Any, type_: str, values: tuple[str, ...]) -> None:
    (field,) = _fields({"properties": {"f": schema}})

    assert (field.type, tuple(field.values)) == (type_, values)


def test_fields_of_alternatives_are_listed_and_only_those_of_all_are_required() -> None:
    schema = {
        "required": ["a", "d"],
        "properties": {"a": {"type": "string"}},
        "allOf": [{"$ref": "#/components/schemas/B"}, {"required": ["c"]}],
        "oneOf": [
            {"required": ["c", "e"], "properties": {"c": {"type": "integer"}, "e": {"type": "string"}}},
            {"required": ["d"], "properties": {"d": {"type": "string"}}},
        ],
    }
    schemas = {"B": {"required": ["b"], "properties": {"b": {"type": "string"}}}}

    fields = _fields(schema, components={"schemas": schemas})

    assert [(each.name, each.required, each.suggested) for each in fields] == [
        ("a", True, False),
        ("b", True, False),
        ("c", True, False),
        ("e", False, True),
        ("d", True, False),
    ]


def test_null_is_not_one_of_several_alternatives() -> None:
    schema = {"anyOf": [{"type": "null"}, {"required": ["a"], "properties": {"a": {"type": "string"}}}]}

    assert [(each.name, each.required) for each in _fields(schema)] == [("a", True)]


def test_a_default_or_a_description_beside_a_reference_applies() -> None:
    beside = {"$ref": "#/S", "default": "a", "description": "the order"}
    schema = {"required": ["order", "other"], "properties": {"order": beside, "other": {"$ref": "#/S"}}}

    assert [(each.name, each.required, each.text) for each in _fields(schema, S={"description": "s"})] == [
        ("order", False, "the order"),
        ("other", True, "s"),
    ]


def test_any_method_of_aws_is_each_method_that_the_path_does_not_list() -> None:
    node = {"x-amazon-apigateway-any-method": {"summary": "any"}, "get": {"summary": "get"}, "options": {}}
    operations = Compiler(openapi({"/{proxy+}": node})).operations()

    assert {each.method: each.summary for each in operations} == {
        "GET": "get",
        "POST": "any",
        "PUT": "any",
        "PATCH": "any",
        "DELETE": "any",
        "OPTIONS": "",
    }


def test_the_summary_of_a_path_applies_to_operations_without_one() -> None:
    node = {"summary": "of the path", "get": {}, "post": {"summary": "own"}, "put": {"description": "described"}}

    found = {each.method: each.summary for each in Compiler(openapi({"/a": node})).operations()}

    assert found == {"GET": "of the path", "POST": "own", "PUT": "described"}


def test_of_several_media_types_json_is_used_then_forms() -> None:
    def media_type(*names: str) -> str:
        body = operation({"requestBody": {"content": {name: {} for name in names}}}).body
        assert body is not None
        return body.media_type

    assert media_type("text/xml", "application/json; charset=utf-8") == "application/json; charset=utf-8"
    assert media_type("multipart/form-data", "text/plain") == "multipart/form-data"
    assert media_type("text/plain", "application/merge-patch+json") == "application/merge-patch+json"
    assert media_type("text/plain", "text/csv") == "text/plain"


@pytest.mark.parametrize(
    ("servers", "path"),
    [
        (None, ""),
        ([], ""),
        ([{"url": "/"}], ""),
        ([{"url": "https://other.example/v1/"}], "/v1"),
        ([{"url": "https://other.example/v1"}, {"url": "https://API.test/v2"}], "/v2"),
        ([{"url": "v3"}], "/x/v3"),
        ([{"url": "./v3?x#y"}], "/x/v3"),
        ([{"url": "../v3"}], "/v3"),
        ([{"url": "/v3/"}], "/v3"),
        ([{"url": "//host/v4"}], "/v4"),
        ([{"url": "https://{h}.test/{v}", "variables": {"h": {"default": "a"}, "v": {"default": "v5"}}}], "/v5"),
        ([{"url": "https://h/{v}/a"}], "/a"),
        ([{"url": 5}, "x"], ""),
        ("x", ""),
    ],
)
def test_the_path_of_the_server(servers: Any, path: str) -> None:
    assert Compiler(openapi({}, servers=servers), "https://api.test/x").server_path() == path


def test_references_outside_the_document_are_not_followed() -> None:
    references = (
        "other.yaml#/a",
        "https://example.test/a.json",
        "file:///etc/passwd",
        "#/missing",
        "#anchor",
        "#/paths/9",
    )
    compiler = Compiler(
        openapi({"/a": {"get": {"parameters": [{"$ref": each} for each in references]}}, "/b": {"$ref": "b.yaml"}})
    )

    assert compiler.operations() == [Operation("GET", "/a", "", parameters=[], responses=[])]
    assert compiler.skipped == len(references) + 1


def test_a_reference_is_a_json_pointer() -> None:
    node = {"parameters": [{"$ref": "#/paths/~1a/x-list/1/%7E0b%20c"}]}
    document = openapi({"/a": {"get": node, "x-list": [0, {"~b c": {"name": "found", "in": "query"}}]}})

    assert [each.name for each in Compiler(document).operations()[0].parameters] == ["found"]


def test_cycles_and_alternatives_without_an_end_are_bounded() -> None:
    schemas: dict[str, Any] = {
        "Self": {"$ref": "#/components/schemas/Self"},
        "Tree": {"properties": {"left": {"$ref": "#/components/schemas/Tree"}, "n": {"type": "integer"}}},
        "List": {"type": "array", "items": {"$ref": "#/components/schemas/List"}},
        "All": {"properties": {"a": {}}, "allOf": [{"$ref": "#/components/schemas/All"}] * 2},
    }
    body = {
        name: {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}}
        for name in schemas
    }
    paths = {f"/{name}": {"post": {"summary": name, "requestBody": body[name]}} for name in schemas}

    compiler = Compiler(openapi(paths, components={"schemas": schemas}))
    fields = {
        each.path: [(field.name, field.type) for field in each.parameters_in("body")] for each in compiler.operations()
    }

    assert fields == {"/Self": [], "/Tree": [("left", "object"), ("n", "integer")], "/List": [], "/All": []}
    assert compiler.truncated == 1  # /All: its details are omitted


def test_all_text_is_one_printable_line() -> None:
    hostile = "a\x1b]0;x\x07\n\tb\u202ec\ud800"
    node = {
        "summary": hostile,
        "parameters": [{"name": hostile, "in": "query", "description": hostile, "schema": {"enum": [hostile]}}],
        "responses": {hostile: {"description": hostile}},
        "requestBody": {"content": {hostile: {"schema": {"type": hostile}}}},
    }

    compiled = operation(node)

    clean = "a\\x1b]0;x\\x07 b\\u202ec\\ud800"
    assert compiled == Operation(
        "POST",
        "/a",
        clean,
        parameters=[Parameter(clean, "query", "string", values=(clean,), text=clean)],
        body=Body(clean, required=False, type=clean),
        responses=[Response(clean, clean, "")],
    )


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({}, "neither an `openapi` nor a `swagger` field"),
        ({"openapi": "2.0"}, "uses OpenAPI 2.0, which is not supported"),
        ({"openapi": {}}, "neither an `openapi` nor a `swagger` field"),
        ({"swagger": "1.2"}, "uses Swagger 1.2, which is not supported"),
        ({"swagger": "3.0\x1b"}, "uses Swagger 3.0\\x1b, which is not supported"),
    ],
)
def test_another_kind_of_document_is_rejected(document: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem.replace("\\", r"\\")):
        Compiler(document)


@pytest.mark.parametrize("paths", [None, [], {}, {"/a": None}, {"x-a": {"get": {}}}, {"/a": {"trace": {}, "get": 5}}])
def test_a_document_without_operations_is_rejected(paths: Any) -> None:
    with pytest.raises(UsageError, match="contains no operations"):
        Compiler(openapi(paths)).operations()


@pytest.mark.slow
def test_too_many_operations_are_rejected() -> None:
    with pytest.raises(UsageError, match="more than 50,000 operations"):
        Compiler(openapi({f"/{number}": {"get": {}} for number in range(50_001)})).operations()

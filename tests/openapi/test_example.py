"""The example call of an operation is one that xapi accepts, with the required parameters."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.openapi.documents import SWAGGER, operation
from xapi_cli.openapi.compiler import Compiler
from xapi_cli.openapi.example import example
from xapi_cli.openapi.operations import Body, Operation, Parameter
from xapi_cli.request import items, nested_json


def _with_body(schema: Any, media_type: str = "application/json") -> Operation:
    return operation({"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}})


def _required(**properties: Any) -> Any:
    return {"required": list(properties), "properties": properties}


def test_examples_of_a_swagger_document() -> None:
    assert [" ".join(example(each, each.path)[2:]) for each in Compiler(SWAGGER).operations()] == [
        "/pets/1 view==short",
        "PUT /pets/1 name=NAME",
        "/pets/1/photo photo@FILE",
    ]


@pytest.mark.parametrize(
    ("schema", "media_type", "words"),
    [
        (_required(a={"type": "integer"}, b={"type": "boolean"}), "application/json", ["a:=1", "b:=true"]),
        (_required(a={"type": "array"}, b={"type": "object"}), "application/json", ["a:=[]", "b:={}"]),
        (_required(**{"a=b:c": {"type": "string"}}), "application/json", [r"a\=b\:c=A_B_C"]),
        (_required(**{"a[b]": {"type": "string"}}), "application/json", [r"a\[b\]=A_B"]),
        (_required(**{"a[b]": {"type": "string"}}), "application/x-www-form-urlencoded", ["--form", "a[b]=A_B"]),
        (_required(a={"type": ["integer", "null"]}), "application/json", ["a:=1"]),
        (_required(a={"enum": ["x y"]}), "application/json", ["a=x y"]),
        (_required(a={"type": "integer"}), "application/x-www-form-urlencoded", ["--form", "a=1"]),
        ({"properties": {"a": {}, "b": {}}}, "application/json", ["a=A"]),
        ({"type": "string"}, "text/csv", ["-d", "@FILE", "Content-Type:text/csv"]),
        ({"type": "array"}, "application/json", ["-d", "@FILE"]),
        ({}, "application/json-patch+json", ["-d", "@FILE", "Content-Type:application/json-patch+json"]),
        (_required(a={}), "application/merge-patch+json", ["Content-Type:application/merge-patch+json", "a=A"]),
        (_required(a={}), "application/json; charset=utf-8", ["a=A"]),
        (_required(a={}), "application/xml", ["-d", "@FILE", "Content-Type:application/xml"]),
        (_required(a={}), "*/*", ["a=A"]),
        (_required(a={"type": "integer", "enum": ["0", "5"]}), "application/json", ["a:=0"]),
        (_required(a={"type": "integer", "enum": ["010", "5"]}), "application/json", ["a:=5"]),
        (_required(a={"type": ["null", "boolean"], "enum": [None, False]}), "application/json", ["a:=false"]),
        (_required(a={"type": ["array", "null"], "items": {"type": "string"}}), "application/json", ["a:=[]"]),
        (_required(a={"enum": [True]}), "application/json", ["a:=true"]),
        ({"anyOf": [_required(a={}, b={"type": "number"}), {"type": "null"}]}, "application/json", ["a=A", "b:=1"]),
        ({"oneOf": [_required(a={"const": "cat"}), _required(b={})]}, "application/json", ["a=cat"]),
        ({"oneOf": [_required(a={}, b={}), _required(a={}, c={})]}, "application/json", ["a=A", "b=B"]),
        (_required(a={"allOf": [{"type": "array"}, {"description": "x"}]}), "application/json", ["a:=[]"]),
    ],
)
def test_the_body_of_an_example(schema: Any, media_type: str, words: list[str]) -> None:
    assert example(_with_body(schema, media_type), "/a") == ["xapi", "request", "/a", *words]


@pytest.mark.parametrize(
    ("path", "values", "shown"),
    [
        ("/a#overload=b", (), "/a"),
        ("/a{?page,size}", (), "/a"),
        ("/a?kind={kind}", ("x",), "/a?kind=x"),
        ("/{kind}", ("a/b?c#d%",), "/a%2Fb%3Fc%23d%25"),
        ("/{+kind}/raw", ("x",), "/x/raw"),
        ("/{kind=users/*}:revoke", (), "/KIND:revoke"),
    ],
)
def test_the_path_of_an_example(path: str, values: tuple[str, ...], shown: str) -> None:
    found = Operation("GET", path, "", parameters=[Parameter("kind", "path", "string", True, values)])

    assert example(found, path) == ["xapi", "request", shown]


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"schema": {"type": "array", "items": {"type": "integer"}}}, ["a==1"]),
        ({"schema": {"type": ["integer", "null"]}}, ["a==1"]),
        ({"schema": {"type": "object"}}, []),  # its members are parameters
        ({"schema": {}}, ["a==A"]),
        ({"content": {"application/json": {"schema": {"type": "object"}}}}, ["a=={}"]),
        ({"content": {"application/json": {"schema": {"type": "array", "items": {}}}}}, ["a==[]"]),
    ],
)
def test_a_query_parameter_of_an_example(node: Any, words: list[str]) -> None:
    parameter = {"name": "a", "in": "query", "required": True, **node}

    assert example(operation({"parameters": [parameter]}), "/a") == ["xapi", "request", "POST", "/a", *words]


def test_required_cookies_are_one_header() -> None:
    cookies = [Parameter(name, "cookie", "string", name != "c") for name in ("a", "b", "c")]

    assert example(Operation("GET", "/a", "", parameters=cookies), "/a")[3:] == ["Cookie:a=A; b=B"]


def test_a_method_is_named_if_it_is_not_the_default() -> None:
    assert example(operation({}), "/a") == ["xapi", "request", "POST", "/a"]


def test_a_parameter_that_is_not_described_is_in_capitals() -> None:
    assert example(operation({})._replace(method="GET"), "/a/{user-id}/{}") == ["xapi", "request", "/a/USER_ID/VALUE"]


@pytest.mark.parametrize(
    ("place", "name", "values", "words"),
    [
        ("query", "sort", ("@/etc/passwd", "name"), ["sort==name"]),
        ("query", "sort", ("@/etc/passwd",), ["sort==SORT"]),
        ("header", "X-A", ("=@/etc/passwd", "@b"), ["X-A:X_A"]),
        ("header", "C", ("/x",), ["C:C"]),
        ("header", "no token", (), []),
    ],
)
def test_a_value_that_would_be_read_as_something_else_is_not_in_the_example(
    place: str, name: str, values: tuple[str, ...], words: list[str]
) -> None:
    found = Operation("GET", "/a", "", parameters=[Parameter(name, place, "string", True, values)])

    assert example(found, "/a") == ["xapi", "request", "/a", *words]


def test_a_field_that_would_read_a_file_is_not_in_the_example() -> None:
    assert example(_with_body(_required(a={"enum": ["@/etc/passwd"]})), "/a")[3:] == ["a=A"]
    assert example(_with_body(_required(**{"a/b": {}})), "/a")[3:] == ["-d", "@FILE"]


@pytest.mark.parametrize(
    ("place", "name", "value", "words"),
    [
        ("body", "--base-url", "http://evil.test", ["-d", "@FILE"]),
        ("body", "--output", ".bashrc", ["-d", "@FILE"]),
        ("header", "-obashrc", "-x", ["-H", "-obashrc:-x"]),
        ("cookie", "-obashrc", "-x", ["Cookie:-obashrc=-x"]),
        ("cookie", "@/etc/passwd", "x", []),
        ("cookie", "=a", "x", []),
        ("path", "id", "--output=x", []),
    ],
)
def test_no_name_or_value_is_read_as_an_option_of_xapi(place: str, name: str, value: str, words: list[str]) -> None:
    parameters = [Parameter(name, place, "string", True, (value,))]
    body = Body("application/json", True, "object") if place == "body" else None
    found = Operation("POST", "/{id}", "", parameters=parameters, body=body)

    shown = example(found, "/{id}")

    start = shown.index("/ID" if place != "path" else "/--output=x")
    assert shown[start + 1 :] == words


def test_a_field_that_cannot_be_an_item_is_not_the_one_in_the_example() -> None:
    assert example(_with_body({"properties": {"--output": {}, "a": {}}}), "/a")[3:] == ["a=A"]


@pytest.mark.parametrize("media_type", ["@/etc/passwd", "=x/y", "@/etc/x+json", "-o/x"])
def test_a_media_type_that_would_be_read_as_something_else_is_not_in_the_example(media_type: str) -> None:
    for schema in ({"type": "string"}, _required(a={})):
        assert "@/etc" not in "".join(words := example(_with_body(schema, media_type), "/a")[3:])
        assert not any(word.startswith("Content-Type:=") for word in words)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (_required(a={"type": "string"}), ["--form", "a=A"]),  # xapi sends text fields urlencoded
        ({**_required(a={}), "properties": {"a": {}, "b": {"format": "binary"}}}, ["a=A", "b@FILE"]),
        ({"properties": {"a": {}, "b": {"format": "binary"}}}, ["a=A", "b@FILE"]),
        (_required(a={"format": "binary"}, b={"format": "binary"}), ["a@FILE", "b@FILE"]),
        (_required(a={"type": "array", "items": {"contentMediaType": "application/octet-stream"}}), ["a@FILE"]),
        (_required(a={"anyOf": [{"type": "string", "format": "binary"}, {"type": "null"}]}), ["a@FILE"]),
    ],
)
def test_a_multipart_body_has_a_file_if_it_can(schema: Any, words: list[str]) -> None:
    assert example(_with_body(schema, "multipart/form-data"), "/a")[3:] == words


_TEXTS = st.text("aZ1-=:@/\\?[]{}; ", min_size=1, max_size=6)


@given(st.sampled_from(["query", "header"]), _TEXTS, _TEXTS)
def test_the_example_is_read_as_what_it_stands_for(place: str, name: str, value: str) -> None:
    found = Operation("GET", "/a", "", parameters=[Parameter(name, place, "string", True, (value,))])

    words = example(found, "/a")[3:]

    if words and not words[0].startswith("-"):
        parsed = items.parse(words, read=lambda _: pytest.fail("the example reads a file"))
        assert [name for name, _ in (parsed.query if place == "query" else parsed.headers)] == [name]


_NAMES = st.sampled_from(["--base-url", "--output", "-obashrc", "-", "a"]) | _TEXTS
_VALUES = st.lists(st.sampled_from(["http://evil.test", "--output=x", "-x", "b"]) | _TEXTS, max_size=2)
_PARAMETERS = st.builds(
    Parameter,
    _NAMES,
    st.sampled_from(["path", "query", "header", "cookie", "body"]),
    st.sampled_from(["string", "file", "integer", "array of string"]),
    st.booleans(),
    _VALUES,
)
_MEDIA_TYPES = ["application/json", "application/x-www-form-urlencoded", "multipart/form-data", "text/csv", "-o/x"]


@given(st.lists(_PARAMETERS, max_size=5), st.sampled_from(_MEDIA_TYPES))
def test_only_known_options_are_in_an_example(parameters: list[Parameter], media_type: str) -> None:
    found = Operation("PUT", "/{-o}/{a}", "", parameters=parameters, body=Body(media_type, True, "object"))

    words = iter(example(found, found.path))

    for word in words:
        if word in ("-d", "-H"):
            next(words)
        elif word != "--form":
            assert not word.startswith("-")


@given(st.lists(_TEXTS, min_size=1, max_size=2, unique=True))
def test_the_fields_of_an_example_are_those_of_the_document(names: list[str]) -> None:
    found = _with_body(_required(**{name: {"type": "string"} for name in names}))

    words = example(found, "/a")[3:]

    if "-d" not in words:
        body = nested_json.build(items.parse(words, read=lambda _: pytest.fail("the example reads a file")).fields)
        assert isinstance(body, dict)
        assert set(body) == {each.name for each in found.parameters}

"""Any document, also one with values of the wrong types everywhere, is an index of printable text or one error."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.openapi.documents import SWAGGER, as_bytes, decoded, index_of_paths, openapi
from xapi_cli.errors import UsageError
from xapi_cli.openapi.compiler import Compiler
from xapi_cli.openapi.documents import parse
from xapi_cli.openapi.example import example
from xapi_cli.openapi.index import IndexInfo, encode
from xapi_cli.openapi.routes import Routes, TooManyTemplates
from xapi_cli.sandbox.description import DOCUMENT

_KEYS = st.sampled_from([
    "$ref", "type", "properties", "required", "items", "enum", "const", "allOf", "oneOf", "anyOf", "parameters", "name",
    "in", "schema", "content", "requestBody", "responses", "200", "get", "post", "application/json", "description",
    "summary", "deprecated", "readOnly", "format", "consumes", "url", "variables", "default",
])  # fmt: skip
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(
        ["#", "#/", "#/paths", "#/paths/~1a/post", "array", "object", "query", "path", "body", "formData"]
    )
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS | st.text(max_size=6), inner, max_size=6),
    max_leaves=40,
)


def _check(document: Any) -> None:
    """Load *document* and use everything in its index; only UsageError is allowed."""
    try:
        compiler = Compiler(parse(as_bytes(document), "x"), "https://api.test")
        operations = compiler.operations()
    except UsageError as error:
        assert str(error).isprintable()
        return
    index = decoded(encode(IndexInfo(compiler.title, compiler.server_path(), "x"), operations))
    routes = Routes(index, "/base")
    assert routes.completions("") == sorted({routes.path(entry) for entry in index.entries})
    for entry, compiled in zip(index.entries, operations, strict=True):
        found = index.operation(entry)
        assert found.method == compiled.method
        assert str(found).isprintable()
        assert "".join(example(found, routes.path(entry))).isprintable()
        routes.find(routes.path(entry))
        routes.closest(routes.path(entry) + "x")


def test_a_short_document_has_no_large_index() -> None:
    values = [f"{number:03}" + "v" * 190 for number in range(100)]
    schema = {"properties": {f"f{number}": {"$ref": "#/P"} for number in range(1000)}}
    body = {"content": {"application/json": {"schema": schema}}}
    paths = {f"/p{number}": {"post": {"requestBody": {"$ref": "#/B"}}} for number in range(400)}
    compiler = Compiler(openapi(paths, P={"enum": values, "description": "d" * 999, "type": "string"}, B=body))

    operations = compiler.operations()

    assert (len(operations), compiler.truncated) == (400, 400)
    assert len(encode(IndexInfo("", "", ""), operations)) < 100_000


def test_the_index_of_a_document_is_limited_as_a_whole() -> None:
    parameters = [{"name": f"n{number}", "in": "query", "description": "d" * 999} for number in range(100)]
    compiler = Compiler(openapi({f"/p{number}": {"get": {"parameters": parameters}} for number in range(400)}))

    encoded = encode(IndexInfo("", "", ""), compiler.operations())

    assert 0 < compiler.truncated < 400
    assert 16_000_000 < len(encoded) < 64_000_000


def test_long_texts_do_not_displace_other_details_and_are_limited_as_a_whole() -> None:
    parameters = [{"name": f"n{number}", "in": "query", "description": "d" * 60_000} for number in range(100)]
    compiler = Compiler(openapi({f"/p{number}": {"get": {"parameters": parameters}} for number in range(200)}))

    operations = compiler.operations()
    lengths = [[len(each.text) for each in operation.parameters] for operation in operations]

    assert compiler.truncated == 0
    assert set(map(tuple, lengths)) == {(60_000, *[1000] * 99), (1000,) * 100}
    assert sum(60_000 in each for each in lengths) == 100
    assert {each.text for each in operations[150].parameters} == {"d" * 999 + "…"}


class _Counted(list[Any]):
    """A long list that counts how many of its elements are read."""

    read = 0

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            _Counted.read += 1
            yield each


def test_no_long_list_is_read_again_for_each_reference() -> None:
    _Counted.read = 0
    names = _Counted(f"r{number}" for number in range(60_000))
    parameters = _Counted({"name": f"n{number}", "in": "query"} for number in range(10_000))
    schema = {"allOf": [{"$ref": "#/R"}] * 1000}
    paths: dict[str, Any] = {f"/a{number}": {"$ref": "#/I"} for number in range(100)}
    paths["/b"] = {"post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}}
    document = openapi(paths, R={"required": names}, I={"parameters": parameters, "get": {}})

    operations = Compiler(document).operations()

    assert len(operations) == 101
    assert len(operations[0].parameters) == 300
    assert _Counted.read < 100_000


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("/" + "{+a}" * 400 + "x", "/" + "a" * 500),
        ("/" + "{a}" * 400 + "x", "/" + "a" * 500),
        ("/" + "{a*}/" * 300, "/x" * 350),
        ("/{" + ":" * 1900, "/" + "a" * 500),
        ("/" + "{" * 1900, "/" + "{" * 500),
    ],
)
def test_no_template_takes_exponential_time(template: str, path: str) -> None:
    routes = Routes(index_of_paths(template), "")  # a regular expression would run into the time limit of the test

    assert routes.find(path) == []
    routes.find_prefix(path)
    routes.closest(path)
    list(routes.completions(path))


@pytest.mark.parametrize(
    ("templates", "path"),
    [
        ([f"/{'a' * 400}{number:05}" for number in range(4000)], f"/{'a' * 400}4444"),
        ([f"/{'a' * 9}{number:05}" for number in range(40_000)], f"/{'a' * 9}4444"),
        (["/a" * depth + f"/{number}" + "/a" * (8 - depth) for depth in range(8) for number in range(4000)], "/a" * 9),
    ],
)
@pytest.mark.slow
def test_a_suggestion_compares_few_words(monkeypatch: pytest.MonkeyPatch, templates: list[str], path: str) -> None:
    compared = []

    class Counted(difflib.SequenceMatcher[str]):
        def set_seq1(self, a: Sequence[str]) -> None:
            compared.append(len(a))
            super().set_seq1(a)

    routes = Routes(index_of_paths(*templates), "")
    monkeypatch.setattr(difflib, "SequenceMatcher", Counted)

    routes.closest(path)

    assert len(compared) <= 210
    assert max(compared, default=0) <= 40


def test_the_templates_that_are_compared_with_a_path_are_limited() -> None:
    index = index_of_paths("/b/7", *(f"/{{p{number}}}" for number in range(1000)), *(f"/c/{n}" for n in range(9000)))

    for call, path in ((Routes.find, "/a"), (Routes.find_prefix, "/a/x"), (Routes.closest, "/a/")):
        with pytest.raises(TooManyTemplates):
            call(Routes(index, "", budget=50_000), path)

    index = index_of_paths(
        "/b/7", *(f"/b/x{number}" for number in range(9000)), *(f"/c/{{n}}/{n}" for n in range(9000))
    )
    assert Routes(index, "", budget=1000).find("/b/7")[0].path == "/b/7"
    assert Routes(index, "", budget=1000).find("/c/x/7")[0].path == "/c/{n}/7"


def test_the_paths_of_a_document_are_limited_as_a_whole() -> None:
    with pytest.raises(UsageError, match="has paths of more than 5,000,000 characters in total"):
        Compiler(openapi({f"/{'a' * 1900}{number}": {"get": {}} for number in range(2700)})).operations()


@given(_VALUES)
def test_any_document_is_an_index_of_printable_text_or_one_error(value: Any) -> None:
    _check(value)
    _check(openapi(value))
    _check(openapi({"/a": value}))
    _check(openapi({"/a": {"post": value}}, components=value, servers=value, info=value))
    _check({**SWAGGER, "paths": {"/a/{b}": {"parameters": value, "get": value}}, "basePath": value, "consumes": value})


@given(st.data())
def test_a_document_with_one_other_value_is_an_index_or_one_error(data: st.DataObject) -> None:
    document = parse(as_bytes(data.draw(st.sampled_from([SWAGGER, DOCUMENT]))), "x")
    node: Any = document
    while isinstance(node, dict | list) and node:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[key], dict | list) or data.draw(st.booleans()):
            node[key] = data.draw(_VALUES)
            break
        node = node[key]
    _check(document)

"""Which requests differ from the API description; a false alarm is worse than a warning that is missing."""

from pathlib import Path
from typing import Any

import pytest

from tests.openapi.documents import openapi
from xapi_cli.http import urls
from xapi_cli.openapi import index_file
from xapi_cli.openapi.compiler import Compiler
from xapi_cli.openapi.index import Entry, Index, IndexInfo, encode
from xapi_cli.openapi.operations import Operation
from xapi_cli.request import items
from xapi_cli.request.description_check import warning
from xapi_cli.request.options import RequestOptions
from xapi_cli.system.private_files import StateDirectory

BASE = "https://api.test"


def check(
    directory: Path, document: Any, command: str, base_url: str = BASE, location: str | None = None, **options: Any
) -> str:
    """Return the warning for the arguments *command* of `xapi request`, empty if there is none."""
    compiler = Compiler(document, base_url, location=location)
    operations = compiler.operations()
    info = IndexInfo(
        "", compiler.server_path(), "", base_url, compiler.other_server_paths(), is_partial=compiler.is_partial
    )
    index_file.write(StateDirectory(directory), "p", encode(info, operations), b"")
    method, path, arguments = items.split_arguments(command.split())
    parsed = items.parse(arguments)
    url = urls.resolve(base_url, path, parsed.query)
    return (
        warning(lambda: StateDirectory(directory), "p", base_url, method, url, parsed, RequestOptions([], **options))
        or ""
    )


def body(schema: Any, media_type: str = "application/json") -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


TEXT, READ_ONLY = {"type": "string"}, {"type": "string", "readOnly": True}


@pytest.mark.parametrize(
    "schema",
    [
        {"required": ["id", "name"], "properties": {"id": {"$ref": "#/T", "readOnly": True}, "name": TEXT}},
        {"required": ["id", "name"], "properties": {"id": {"$ref": "#/R"}, "name": TEXT}},
        {"required": ["id"], "properties": {"id": {"allOf": [{"$ref": "#/T"}, {"readOnly": True}]}, "name": TEXT}},
        {"required": ["id"], "properties": {"id": {"allOf": [{"$ref": "#/R"}], "description": "x"}, "name": TEXT}},
        {"required": ["id"], "allOf": [{"properties": {"id": TEXT}}, {"properties": {"id": READ_ONLY}}]},
        {"allOf": [{"required": ["id"], "properties": {"id": READ_ONLY}}, {"properties": {"name": TEXT}}]},
        {"required": ["id"], "properties": {"id": {"type": "string", "default": "x"}}},
        {"required": ["other"], "additionalProperties": TEXT, "properties": {"name": TEXT}},
        {"additionalProperties": True},
        {
            "oneOf": [
                {"required": ["a"], "properties": {"a": TEXT}},
                {"required": ["name"], "properties": {"name": TEXT}},
            ]
        },
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": TEXT, "b": TEXT}},
        {"properties": {"name": TEXT}, "not": {"required": ["name"]}, "dependentRequired": {"name": ["a"]}},
        {"type": "array", "items": {"required": ["a"], "properties": {"a": TEXT}}},
        {"$ref": "other.json#/A"},
        True,
    ],
)
def test_a_body_with_what_a_client_can_send_is_complete(tmp_path: Path, schema: Any) -> None:
    document = openapi({"/a": {"post": body(schema)}}, T=TEXT, R=READ_ONLY)

    assert check(tmp_path, document, "/a name=x") == ""


@pytest.mark.parametrize("path", ["/any", "/x/y/z"])
@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
def test_an_export_of_aws_with_any_method_has_every_method(tmp_path: Path, path: str, method: str) -> None:
    node: Any = {"x-amazon-apigateway-any-method": {}}
    document = openapi({"/any": node, "/{proxy+}": {**node, "options": {}}})

    assert check(tmp_path, document, f"{method} {path}") == ""


def test_what_a_suggested_alternative_requires_is_not_missing(tmp_path: Path) -> None:
    alternatives = [{"required": [name], "properties": {name: TEXT}} for name in ("cat", "dog")]
    document = openapi({"/a": {"post": body({"oneOf": alternatives})}})

    assert check(tmp_path, document, "/a dog=x") == ""


def test_a_file_that_is_one_of_several_is_missing_as_a_file(tmp_path: Path) -> None:
    schema = {"required": ["f"], "properties": {"f": {"type": "array", "items": {"format": "binary"}}}}
    document = openapi({"/a": {"post": body(schema, "multipart/form-data")}})

    assert "lacks f@, which" in check(tmp_path, document, "POST /a", form=True)


def test_a_required_field_that_is_missing_is_named(tmp_path: Path) -> None:
    schema = {"allOf": [{"required": ["id", "name"]}, {"properties": {"id": {"$ref": "#/R"}, "name": TEXT}}]}
    document = openapi({"/a": {"post": body(schema)}}, R=READ_ONLY)

    assert check(tmp_path, document, "/a other=x") == (
        "the request lacks name=, which the API description requires; see `xapi api show POST /a`"
    )


@pytest.mark.parametrize(("is_form", "warns"), [(True, False), (False, True)])
def test_only_the_kind_of_body_that_the_index_describes_is_compared(tmp_path: Path, is_form: bool, warns: bool) -> None:
    node = body({"required": ["name"], "properties": {"name": TEXT}})
    node["requestBody"]["content"]["multipart/form-data"] = {"schema": {"properties": {"file": TEXT}}}

    assert bool(check(tmp_path, openapi({"/a": {"post": node}}), "/a file=x", form=is_form)) == warns
    assert check(tmp_path, openapi({"/a": {"post": node}}), "/a file@x") == ""


def parameter(name: str, place: str, **members: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": True, "schema": TEXT, **members}


@pytest.mark.parametrize(
    ("parameters", "arguments", "missing"),
    [
        ([parameter("X-A", "header")], "/a x-a:1", ""),
        ([parameter("X-A", "header")], "/a x-a:", "X-A:"),
        ([parameter("Content-Length", "header"), parameter("host", "header")], "/a", ""),
        ([parameter("sid", "cookie")], "/a", ""),
        ([parameter("page", "query", schema={"type": "object"})], "/a size==1", ""),
        ([parameter("page", "query", schema={"$ref": "other.json"})], "/a", ""),
        ([parameter("ids[]", "query")], "/a ids[0]==1", ""),
        ([parameter("q", "query", schema={"type": "string", "default": "x"})], "/a", ""),
        ([parameter("q", "query")], "/a", "q=="),
        ([parameter("a b", "query")], "/a?a+b=", ""),
    ],
)
def test_required_parameters(tmp_path: Path, parameters: Any, arguments: str, missing: str) -> None:
    found = check(tmp_path, openapi({"/a": {"get": {"parameters": parameters}}}), arguments)

    assert found.removeprefix("the request lacks ").partition(",")[0] == missing


@pytest.mark.parametrize(
    ("of_path", "of_operation"),
    [
        (parameter("q", "query"), parameter("q", "query", required=False)),
        (parameter("X-A", "header"), parameter("x-a", "header", required=False)),
        (parameter("q", "query"), parameter("q", "query", schema={"type": "string", "default": "x"})),
    ],
)
def test_a_parameter_of_the_operation_replaces_that_of_the_path(
    tmp_path: Path, of_path: Any, of_operation: Any
) -> None:
    item = {"parameters": [of_path], "get": {"parameters": [of_operation]}, "post": {}}

    assert check(tmp_path, openapi({"/a": item}), "GET /a") == ""
    assert check(tmp_path, openapi({"/a": item}), "POST /a") != ""


def test_a_body_of_the_operation_replaces_that_of_the_path(tmp_path: Path) -> None:
    def schema(name: str) -> dict[str, Any]:
        return {
            "in": "body",
            "name": f"body-{name}",
            "required": True,
            "schema": {"required": [name], "properties": {name: {}}},
        }

    item = {"parameters": [schema("a")], "post": {"parameters": [schema("b")]}}

    assert check(tmp_path, {"swagger": "2.0", "paths": {"/a": item}}, "POST /a b=1") == ""


PATHS = (
    "/{a}.{b}",
    "/x/{name}",
    "/compare/{base}...{head}",
    "/files/{+path}",
    "/trees/{path*}/raw",
    "/v1/{name=users/*/keys/*}:revoke",
    "/page{?size,next}",
    "/action?kind={kind}",
    "/users({id})",
    "/a%20b/{x}",
    "no-slash",
    "/archive/{path}",
)


@pytest.mark.parametrize(
    "path",
    [
        "/report.csv",
        "/x/a.b",
        "/x/report",
        "/compare/v1...v2",
        "/compare/a.b...c",
        "/files/a",
        "/files/a/b/c.txt",
        "/trees/a/b/raw",
        "/v1/users/7/keys/8:revoke",
        "/page?size=2",
        "/action?kind=x",
        "/users('7')",
        "/a b/1",
        "/a%20b/%2F",
        "/no-slash",
        "/archive/a/b/c",
    ],
)
def test_a_path_that_fits_a_template_is_known(tmp_path: Path, path: str) -> None:
    assert check(tmp_path, openapi({each: {"get": {}} for each in PATHS}), path.replace(" ", "%20")) == ""


def test_the_template_with_all_the_text_of_the_path_decides(tmp_path: Path) -> None:
    paths = {
        "/{name}": {"get": {}},
        "/{name}.{format}": {"get": {"parameters": [parameter("q", "query")]}},
        "/{base}...{head}": {"get": {"parameters": [parameter("r", "query")]}},
    }

    found = [check(tmp_path, openapi(paths), path) for path in ("/a", "/a.b", "/a...b")]

    assert [each.partition("lacks ")[2][:3] for each in found] == ["", "q==", "r=="]


def test_a_method_of_a_more_general_template_is_known(tmp_path: Path) -> None:
    paths: dict[str, Any] = {"/users/me": {"get": {}}, "/users/{id}": {"delete": {}, "patch": {}}}

    assert check(tmp_path, openapi(paths), "DELETE /users/me") == ""
    assert check(tmp_path, openapi(paths), "PUT /users/me").endswith("; it lists GET")


def test_of_overloads_one_suffices(tmp_path: Path) -> None:
    needs_q = {"get": {"parameters": [parameter("q", "query")]}}

    assert check(tmp_path, openapi({"/a": needs_q, "/a#by=id": {"get": {}}}), "/a") == ""


def test_of_operations_that_match_alike_one_suffices(tmp_path: Path) -> None:
    paths = {"/{id}": {"get": {"parameters": [parameter("q", "query")]}}, "/{name}": {"get": {}}}

    assert check(tmp_path, openapi(paths), "/x") == ""


class _Records:
    """The number of records that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read = 0
        read = Index.operation

        def counted(index: Index, entry: Entry) -> Operation:
            self.read += 1
            return read(index, entry)

        monkeypatch.setattr(Index, "operation", counted)


@pytest.mark.parametrize(("count", "warns"), [(20, True), (21, False), (30_000, False)])
@pytest.mark.slow
def test_of_very_many_operations_that_match_alike_none_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, warns: bool
) -> None:
    records = _Records(monkeypatch)
    paths = {f"/{{p{number}}}": {"get": {"parameters": [parameter("q", "query")]}} for number in range(count)}

    assert ("lacks q==" in check(tmp_path, openapi(paths), "/x")) == warns
    assert records.read == (count if warns else 0)


def test_large_records_of_operations_that_match_alike_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = _Records(monkeypatch)
    parameters = [parameter(f"p{number}", "query", description="d" * 900) for number in range(100)]

    assert check(tmp_path, openapi({f"/{{p{n}}}": {"get": {"parameters": parameters}} for n in range(10)}), "/x") == ""
    assert records.read == 0
    assert check(tmp_path, openapi({"/{p}": {"get": {"parameters": parameters}}}), "/x") != ""


def test_a_warning_is_short(tmp_path: Path) -> None:
    names = [f"p{number}" + "x" * 190 for number in range(200)]
    document = openapi({f"/a/{{{'b' * 1900}}}": {"get": {"parameters": [parameter(each, "query") for each in names]}}})

    found = check(tmp_path, document, "/a/1")

    assert len(found) < 500
    assert f"{'x' * 20}… and 195 more, which" in found
    assert found.endswith("; see `xapi api show GET /a/1`")


@pytest.mark.parametrize(
    ("servers", "base_url", "location", "known", "unknown"),
    [
        ([{"url": "/v2"}], BASE, None, "/v2/users", "/users"),
        ([{"url": "/v2"}], f"{BASE}/gateway", "/gateway/openapi.json", "/users", "/v3/users"),
        ([{"url": "/v2"}], f"{BASE}/gateway", "/gateway/openapi.json", "/v2/users", "/v3/users"),
        ([{"url": "/v2"}], f"{BASE}/gateway/v2", None, "/users", "/user"),
        ([{"url": "v2"}], f"{BASE}/gateway", "/gateway/openapi.json", "/v2/users", "/users"),
        ([{"url": "../v2"}], BASE, "/docs/openapi.json", "/v2/users", "/docs/v2/users"),
        ([{"url": "."}], f"{BASE}/api", "/api/openapi.json", "/users", "/api/users"),
        ([{"url": "/v1"}, {"url": "/v2"}], BASE, None, "/v2/users", "/v3/users"),
        ([{"url": "/v1"}, {"url": "/v2"}], f"{BASE}/v2", None, "/users", "/v2/users"),
        (
            [{"url": "https://api.test/{v}", "variables": {"v": {"default": "v1", "enum": ["v1", "v2"]}}}],
            BASE,
            None,
            "/v2/users",
            "/users",
        ),
        ([{"url": "https://elsewhere.test/api"}], BASE, None, "/api/users", "/users"),
    ],
)
def test_the_path_of_a_server_may_precede_a_path(
    tmp_path: Path, servers: Any, base_url: str, location: str | None, known: str, unknown: str
) -> None:
    document = openapi({"/users": {"get": {}}}, servers=servers)

    assert check(tmp_path, document, known, base_url, location) == ""
    assert "has no path" in check(tmp_path, document, unknown, base_url, location)


def test_servers_of_a_path_or_an_operation_are_known(tmp_path: Path) -> None:
    paths = {
        "/a": {"servers": [{"url": "/uploads"}], "get": {}},
        "/b": {"get": {"servers": [{"url": "https://h.test/x"}]}},
    }
    document = openapi(paths, servers=[{"url": "/v1"}])

    assert [check(tmp_path, document, path) for path in ("/v1/a", "/uploads/a", "/x/b")] == ["", "", ""]
    assert check(tmp_path, document, "/y/a") != ""


def test_paths_in_other_documents_are_not_unknown(tmp_path: Path) -> None:
    document = openapi({"/a": {"get": {}}, "/b": {"$ref": "b.yaml"}})

    assert check(tmp_path, document, "/b") == ""
    assert check(tmp_path, document, "DELETE /a") != ""


@pytest.mark.parametrize(
    ("path", "suggestion"),
    [
        ("/user/a%2Fb/keys", "/users/a%2Fb/keys"),
        ("/user/a%20b/keys", "/users/a%20b/keys"),
        ("/user/a%3Fb%23/keys", "/users/a%3Fb%23/keys"),
        ("/user/100%25/keys", "/users/100%25/keys"),
        ("/user/ü/keys", "/users/ü/keys"),
        ("/user/%FF/keys", "/users/%FF/keys"),
        ("/user/$HOME/keys", "'/users/$HOME/keys'"),
        ("/user/it's/keys", "'/users/it'\\''s/keys'"),
        ("/user/a&b/keys", "'/users/a&b/keys'"),
        ("/user/{id}/keys", "/users/{id}/keys"),
        ("/user/{a,b}/keys", "'/users/{a,b}/keys'"),
    ],
)
def test_a_suggestion_can_be_pasted(tmp_path: Path, path: str, suggestion: str) -> None:
    document = openapi({"/users/{id}/keys": {"get": {}}})

    assert check(tmp_path, document, path).endswith(f"; did you mean {suggestion}?")


def test_the_command_in_a_warning_can_be_pasted(tmp_path: Path) -> None:
    document = openapi({"/it's/{a b}": {"get": {"parameters": [parameter("q", "query")]}}})

    assert check(tmp_path, document, "/it's/1").endswith("; see `xapi api show GET '/it'\\''s/{a b}'`")

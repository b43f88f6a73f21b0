"""`xapi api`: load, list, show and compare API descriptions, and complete paths and query parameters."""

import json
import re
from typing import Any

import pytest

from tests.commands.api import bearing, response
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, request, send
from xapi_cli.features.sandbox import Sandbox
from xapi_cli.features.sandbox.description import DOCUMENT

VIEW = {"name": "view", "in": "query", "description": "how much", "schema": {"enum": ["short", "full"]}}
ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
PET = {
    "required": ["name", "id"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string", "description": "its name"},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["cat", "dog"]}},
    },
}
JSON = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}
PHOTO = {"properties": {"photo": {"type": "string", "format": "binary"}}}
PETS: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1.2"},
    "servers": [{"url": "https://api.test/v2"}],
    "paths": {
        "/pets/{id}": {
            "parameters": [ID],
            "get": {
                "summary": "Find a pet",
                "parameters": [VIEW, {**ID, "description": "its number"}],
                "responses": {"200": {"description": "ok", **JSON}},
            },
            "put": {"deprecated": True, "requestBody": {"required": True, **JSON}},
        },
        "/pets/{id}/photo": {
            "post": {"parameters": [VIEW], "requestBody": {"content": {"multipart/form-data": {"schema": PHOTO}}}}
        },
    },
    "components": {"schemas": {"Pet": PET}},
}
ENV = {"XAPI_BASE_URL": "https://api.test"}
LOADED = Outcome(0, "", "xapi: loaded 3 operations of Pets 1.2 for profile default\n")
NOTHING_LOADED = (
    "xapi: error: no API description is loaded for profile default; "
    "run `xapi api load FILE`, or `xapi api load /openapi/v1.json` if the API serves one\n"
)


def load(xapi: Xapi, document: Any = PETS, env: dict[str, str] = ENV) -> Outcome:
    """Load *document* from a file."""
    (xapi.home / "api.json").write_text(json.dumps(document))
    return xapi("api", "load", "api.json", env=env)


# load


def test_the_document_of_the_sandbox_is_loaded_with_the_token_and_every_operation_exists(
    xapi: Xapi, sandbox: Sandbox
) -> None:
    xapi("login", env=sandbox.settings)

    shown = xapi("api", "load", "/openapi/v1.json", env=sandbox.settings)

    count = sum(name != "parameters" for item in DOCUMENT["paths"].values() for name in item)
    assert shown == Outcome(0, "", f"xapi: loaded {count} operations of xapi sandbox 1 for profile default\n")
    for line in xapi("api", "list", env=sandbox.settings).out.splitlines():
        method, path, _ = line.split("\t")
        if path not in ("/x-api/token", "/sandbox/kill-tokens"):
            found = xapi("request", method, path.replace("{id}", "1"), env=sandbox.settings)
            assert not re.search("responded with 40[45]", found.err), line


def test_a_description_belongs_to_a_profile_and_is_replaced_and_removed_with_it(xapi: Xapi) -> None:
    assert load(xapi) == LOADED
    assert xapi("profile", "set", "base_url", "https://stage.test", "-p", "Stage").code == 0
    assert xapi("api", "list", "-p", "Stage").code == 2
    assert xapi("api", "load", "api.json", "-p", "Stage").code == 0
    assert xapi("profile", "remove", "Stage").code == 0

    assert len(list((xapi.state / "api").iterdir())) == 1
    assert load(xapi, {**PETS, "paths": {"/a": {"get": {}}}}).code == 0
    assert xapi("api", "list", env=ENV).out == "GET\t/v2/a\t\n"


def test_a_token_or_a_query_that_may_be_secret_is_not_stored(xapi: Xapi) -> None:
    token = "t0ken-" + "x" * 30
    document = {**PETS, "paths": {f"/{token}": {"get": {"summary": token, "description": "a" * 480 + token}}}}
    with Server([request(), send(response("200 OK", json.dumps(document).encode()))]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": token}
        assert xapi("api", "load", "/openapi/v1.json?api_key=S3CRET", env=env).code == 0
        assert "was loaded from a PATH with a query" in xapi("api", "diff", env=env).err

    [file] = (xapi.state / "api").iterdir()
    stored = file.read_text()
    assert "/***" in stored
    assert "t0ken" not in stored
    assert "S3CRET" not in stored


@pytest.mark.parametrize(
    ("received", "code", "error"),
    [
        (response("404 Not Found", b"x"), 4, "responded with 404"),
        (response("503 Service Unavailable", b"x"), 5, "responded with 503"),
        (response("200 OK", b"\xff"), 11, "the response is not valid UTF-8"),
        (response("200 OK", b"openapi: 3.1.0"), 11, "the response is not valid JSON at line 1, column 1; load an"),
        (response("200 OK", b'{"a', "Content-Length: 10"), 11, "was truncated after 3 bytes"),
    ],
)
def test_a_response_that_is_not_a_description_is_one_error(xapi: Xapi, received: bytes, code: int, error: str) -> None:
    with Server([request(), send(received)]) as server:
        shown = xapi("api", "load", "/a", env=bearing(server))

    assert (shown.code, shown.out) == (code, "")
    assert error in shown.err
    assert shown.err.count("\n") == 1
    assert xapi("api", "list").err == NOTHING_LOADED


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (
            "missing.json",
            "cannot read missing.json: No such file or directory; check the path; a PATH of the API starts",
        ),
        (".", "cannot read .: Is a directory"),
        ("broken.json", "broken.json is not valid JSON at line 1, column 2"),
    ],
)
def test_a_file_that_is_not_a_description_is_one_error(xapi: Xapi, source: str, error: str) -> None:
    (xapi.home / "broken.json").write_text("{")

    shown = xapi("api", "load", source)

    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith(f"xapi: error: {error}")


def test_a_damaged_description_is_one_error_and_no_completion(xapi: Xapi) -> None:
    load(xapi)
    [file] = (xapi.state / "api").iterdir()
    for content in (b"{", b"{}", b"[]", b"\xff"):
        file.write_bytes(content)
        shown = xapi("api", "list")
        assert (shown.code, shown.out) == (2, "")
        assert shown.err.endswith("; run `xapi api load` again\n")
        assert complete(xapi, "xapi request /") == ""
    assert load(xapi) == LOADED


# list and show


def test_list_filters_by_a_word_and_prints_lines_or_a_table(xapi: Xapi) -> None:
    load(xapi)

    assert xapi("api", "list", "PHOTO", env=ENV) == Outcome(0, "POST\t/v2/pets/{id}/photo\t\n")
    assert xapi("api", "list", "x\x1b", env=ENV) == Outcome(0, "", "xapi: no operation contains x\\x1b\n")
    with xapi.on_terminal("api", "list", env=ENV) as terminal:
        assert terminal.wait() == 0
        assert "METHOD  PATH                 SUMMARY\r\nGET     /v2/pets/{id}        Find a pet\r\n" in terminal.text


def test_show_prints_the_operations_of_a_path(xapi: Xapi) -> None:
    load(xapi)

    assert xapi("api", "show", "/v2/pets/7", env=ENV) == Outcome(
        0,
        """\
GET /v2/pets/{id}
  Find a pet

Path parameters
  id  integer, required  its number

Query parameters
  view  any  how much; one of: short, full

Response 200 (object)
  ok
  id    integer, required
  name  string, required  its name
  tags  array of string  one of: cat, dog

PUT /v2/pets/{id}
  (deprecated)

Path parameters
  id  integer, required

Body (application/json, object, required)
  id    integer, required
  name  string, required  its name
  tags  array of string  one of: cat, dog
""",
    )


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["/\x1b"], "the API description has no operation /\\x1b; see `xapi api list`"),
        (["delete", "/v2/pets/7"], "the API description has no operation DELETE /v2/pets/7; see `xapi api list`"),
        (["GET", "/a", "/b"], "too many arguments; write for example: xapi api show POST /x-api/echo"),
    ],
)
def test_an_operation_that_does_not_exist_is_one_error(xapi: Xapi, arguments: list[str], error: str) -> None:
    load(xapi)

    assert xapi("api", "show", *arguments, env=ENV) == Outcome(2, "", f"xapi: error: {error}\n")


# diff


def test_diff_reads_the_source_again_and_exits_with_1_if_there_is_a_change(xapi: Xapi) -> None:
    load(xapi)
    assert xapi("api", "diff", env=ENV) == Outcome(0, "", "xapi: no changes\n")

    new = json.loads(json.dumps(PETS))
    new["components"]["schemas"]["Pet"]["properties"]["name"]["type"] = "integer"
    (xapi.home / "new.json").write_text(json.dumps(new), "utf-8-sig")
    assert xapi("api", "diff", "new.json", env=ENV).code == 1
    (xapi.home / "new.json").rename(xapi.home / "api.json")

    assert xapi("api", "diff", env=ENV) == Outcome(
        1,
        "GET\t/v2/pets/{id}\tresponse 200 field name type changed from string to integer\n"
        "PUT\t/v2/pets/{id}\tbody field name type changed from string to integer\n",
        "xapi: 2 changes\n",
    )


def test_diff_reads_a_path_of_the_api_again(xapi: Xapi) -> None:
    old, new = (json.dumps({**PETS, "paths": {"/a": {method: {}}}}).encode() for method in ("get", "put"))
    scripts = [[request(), send(response("200 OK", document))] for document in (old, new)]
    assert xapi("profile", "set", "headers", "X-Team: blue").code == 0
    with Server(*scripts) as server:
        assert xapi("api", "load", "/openapi/v1.json", env=bearing(server)).code == 0
        shown = xapi("api", "diff", env=bearing(server))
        assert all(b"X-Team: blue" in received for received in server.received)

    assert (shown.code, shown.out) == (1, "GET\t/v2/a\tremoved\nPUT\t/v2/a\tadded\n")


# completion


def complete(xapi: Xapi, line: str, **env: str) -> str:
    """Return the words that bash gets for the last word of *line*."""
    request = {"_XAPI_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    found = xapi(env=request | env)
    assert (found.code, found.err) == (0, "")
    return "" if found.out.startswith(":") else found.out.removesuffix("\n").replace("\n", " ")


def test_paths_and_query_parameters_complete(xapi: Xapi) -> None:
    load(xapi)

    for line, words in (
        ("xapi request P", "PATCH POST PUT"),
        ("xapi request /", "/v2/pets/{id} /v2/pets/{id}/photo"),
        ("xapi request /v2/pets/7", "/v2/pets/7 /v2/pets/7/photo"),
        ("xapi request POST /v2/", "/v2/pets/{id}/photo"),
        ("xapi api show PUT /v2/", "/v2/pets/{id}"),
        ("xapi request /v2/pets/7 ", "view=="),
        ("xapi request /v2/pets/7?a=b v", "view=="),
        ("xapi request /v2/pets/7/photo ", "view=="),
        ("xapi request /v2/pets/7 view==", "view==short view==full"),
        ("xapi request /v2/pets/7 view==full ", ""),
        ("xapi request PUT /v2/pets/7 ", ""),
        ("xapi request --base-url https://other.test /v2/", ""),
        ("xapi request -p other /v2/", ""),
    ):
        assert complete(xapi, line, **ENV) == words, line

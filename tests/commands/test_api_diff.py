"""`xapi api diff`: what has changed since the description was loaded."""

import json
from typing import Any

import pytest

from tests.commands.api import bearing, response
from tests.commands.descriptions import NOTHING_LOADED, load, write
from tests.openapi.documents import as_bytes, openapi
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, request, send
from xapi_cli.sandbox import Sandbox

LIMIT = {"name": "limit", "in": "query", "schema": {"type": "integer"}}


def document(*paths: str, parameters: tuple[dict[str, Any], ...] = ()) -> Any:
    return openapi({path: {"get": {"parameters": list(parameters)}} for path in paths})


OLD, NEW = document("/a", "/b"), document("/a", "/c", parameters=({**LIMIT, "required": True},))
CHANGES = [
    {
        "method": "GET",
        "path": "/a",
        "kind": "changed",
        "text": "query parameter limit added, required",
        "breaking": True,
    },
    {"method": "GET", "path": "/b", "kind": "removed", "text": "", "breaking": True},
    {"method": "GET", "path": "/c", "kind": "added", "text": "", "breaking": False},
]
LINES = "breaking\tGET\t/a\tquery parameter limit added, required\nbreaking\tGET\t/b\tremoved\n-\tGET\t/c\tadded\n"
SUMMARY = "xapi: 3 changes, 2 breaking\n"


def test_a_file_is_compared_with_the_loaded_description(xapi: Xapi) -> None:
    load(xapi, OLD)
    write(xapi, NEW, "new.json")

    assert xapi("api", "diff", "new.json") == Outcome(1, LINES, SUMMARY)
    shown = xapi("api", "diff", "new.json", "--json")
    assert (shown.code, json.loads(shown.out), shown.err) == (1, CHANGES, SUMMARY)


def test_without_changes_the_exit_code_is_0(xapi: Xapi) -> None:
    load(xapi, OLD)

    assert xapi("api", "diff") == Outcome(0, "", "xapi: no changes\n")
    assert xapi("api", "diff", "--json").out == "[]\n"
    write(xapi, as_bytes(OLD).replace(b": ", b" :  "), "same.json")
    assert xapi("api", "diff", "same.json").code == 0


def test_the_file_is_read_again_from_any_directory(xapi: Xapi) -> None:
    load(xapi, OLD)
    path = write(xapi, NEW)
    (xapi.home / "elsewhere").mkdir()

    assert xapi("api", "diff", cwd=xapi.home / "elsewhere") == Outcome(1, LINES, SUMMARY)

    path.unlink()
    gone = xapi("api", "diff")
    assert gone == Outcome(2, "", f"xapi: error: cannot read {path}: No such file or directory; check the path\n")


def test_the_loaded_description_stays_until_it_is_loaded_again(xapi: Xapi) -> None:
    load(xapi, OLD)
    write(xapi, NEW)

    assert [xapi("api", "diff").code for _ in "12"] == [1, 1]
    assert xapi("api", "load", "api.json").code == 0
    assert xapi("api", "diff").code == 0


def test_a_document_of_the_api_is_requested_again(xapi: Xapi) -> None:
    replies = [[request(), send(response("200 OK", as_bytes(each)))] for each in (OLD, NEW)]
    with Server(*replies) as server:
        env = bearing(server)
        assert xapi("api", "load", "/v1/openapi", env=env).code == 0
        assert xapi("api", "diff", env=env).out.endswith("-\tGET\t/c\tadded\n")

    assert [each.partition(b" HTTP")[0] for each in server.received] == [b"GET /v1/openapi", b"GET /v1/openapi"]


def test_the_sandbox_does_not_change(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)
    xapi("api", "load", "/openapi.json", env=sandbox.settings)

    assert xapi("api", "diff", env=sandbox.settings) == Outcome(0, "", "xapi: no changes\n")


def test_stdin_is_compared_but_cannot_be_read_again(xapi: Xapi) -> None:
    assert xapi("api", "load", "-", input=as_bytes(OLD)).code == 0

    assert xapi("api", "diff", "-", input=as_bytes(NEW)).code == 1
    assert xapi("api", "diff") == Outcome(
        2,
        "",
        "xapi: error: the API description was loaded from stdin; name the FILE or PATH to compare it with\n",
    )


def test_a_path_with_a_query_is_not_stored(xapi: Xapi) -> None:
    with Server([request(), send(response("200 OK", as_bytes(OLD)))]) as server:
        assert xapi("api", "load", "/openapi?key=S3CRET", env=bearing(server)).code == 0
        shown = xapi("api", "diff", env=bearing(server))

    assert shown.code == 2
    assert "was loaded from a PATH with a query, which is not stored; name the FILE or PATH" in shown.err
    assert b"S3CRET" not in b"".join(each.read_bytes() for each in (xapi.state / "api").iterdir())


@pytest.mark.parametrize(
    ("status", "body", "code"), [("500 Oops", b"", 5), ("200 OK", b"<html>", 11), ("404 Not Found", b"", 4)]
)
def test_a_failed_request_is_no_change(xapi: Xapi, status: str, body: bytes, code: int) -> None:
    replies = [response("200 OK", as_bytes(OLD)), response(status, body)]
    with Server(*([request(), send(each)] for each in replies)) as server:
        assert xapi("api", "load", "/openapi", env=bearing(server)).code == 0
        shown = xapi("api", "diff", env=bearing(server))

    assert (shown.code, shown.out) == (code, "")


def test_nothing_loaded_is_a_usage_error(xapi: Xapi) -> None:
    assert xapi("api", "diff") == Outcome(2, "", NOTHING_LOADED)


def test_a_description_of_an_older_version_must_be_loaded_again(xapi: Xapi) -> None:
    load(xapi, OLD)
    (xapi.state / "api" / "default.document").unlink()

    shown = xapi("api", "diff")

    assert (shown.code, shown.out) == (2, "")
    assert shown.err == (
        "xapi: error: the API description of profile default cannot be compared:"
        " an older version of xapi has loaded it; run `xapi api load` again\n"
    )


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:-5], "it is damaged"),
        (
            lambda data: data.replace(b"xapi-document 1 ", b"xapi-document 2 "),
            "it was written by another version of xapi",
        ),
        (lambda data: b"", "it was written by another version of xapi"),
        (lambda data: data.replace(b'["', b'"'), "it is damaged"),
    ],
)
def test_a_damaged_document_is_one_error(xapi: Xapi, damage: Any, reason: str) -> None:
    load(xapi, OLD)
    path = xapi.state / "api" / "default.document"
    path.write_bytes(damage(path.read_bytes()))

    assert xapi("api", "diff") == Outcome(
        2,
        "",
        f"xapi: error: the API description of profile default cannot be used: {reason}; run `xapi api load` again\n",
    )


def test_the_document_follows_its_profile(xapi: Xapi) -> None:
    xapi("profile", "set", "base_url", "https://api.test")
    load(xapi, OLD)
    write(xapi, NEW, "new.json")

    assert xapi("api", "diff", "new.json").code == 1
    assert xapi("profile", "remove", "default").code == 0
    assert list((xapi.state / "api").iterdir()) == []


def test_a_terminal_shows_a_table(xapi: Xapi) -> None:
    load(xapi, OLD)
    write(xapi, NEW)
    with xapi.on_terminal("api", "diff", columns=100) as terminal:
        assert terminal.wait() == 1

    lines = [line.split() for line in terminal.text.splitlines()]
    assert lines == [
        ["METHOD", "PATH", "CHANGE"],
        ["breaking", "GET", "/a", "query", "parameter", "limit", "added,", "required"],
        ["breaking", "GET", "/b", "removed"],
        ["GET", "/c", "added"],
        SUMMARY.split(),
    ]


def test_control_characters_of_a_document_reach_no_terminal(xapi: Xapi) -> None:
    load(xapi, OLD)
    write(xapi, document("/a\x1b[31m"))

    assert "\x1b" not in xapi("api", "diff").out


@pytest.mark.slow
def test_a_schema_that_is_too_complex_is_a_warning(xapi: Xapi) -> None:
    properties = {f"p{number}": {"anyOf": [{"type": "string"}] * 300} for number in range(500)}
    body = {"200": {"description": "", "content": {"application/json": {"schema": {"properties": properties}}}}}
    load(xapi, openapi({"/a": {"get": {"responses": body}}}))
    write(xapi, openapi({"/a": {"get": {"responses": body, "deprecated": True}}}))

    shown = xapi("api", "diff")

    assert (shown.code, shown.out) == (1, "-\tGET\t/a\tdeprecated\n")
    assert shown.err == (
        "xapi: warning: some schemas are too complex to be compared completely\nxapi: 1 change, 0 breaking\n"
    )

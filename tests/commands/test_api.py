"""`xapi api load`: load a document from a file, stdin or the API."""

import gzip
import json
import stat
import zlib

import pytest

from tests.commands.api import bearing, response
from tests.commands.descriptions import NOTHING_LOADED, load, write
from tests.openapi.documents import SWAGGER, as_bytes, openapi
from tests.support.program import PYTHON, Outcome, Xapi, how_to_add
from tests.support.servers import Server, request, send
from xapi_cli.sandbox import Sandbox
from xapi_cli.sandbox.description import DOCUMENT

# load


def test_the_document_of_the_sandbox_is_loaded_with_the_token(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)

    shown = xapi("api", "load", "/openapi.json", env=sandbox.settings)

    count = sum(len(methods) for methods in DOCUMENT["paths"].values())
    assert shown == Outcome(0, "", f"xapi: loaded {count} operations of xapi sandbox 1 for profile default\n")
    assert "GET\t/x-api/me\tShow the user of the token\n" in xapi("api", "list", env=sandbox.settings).out


def test_every_operation_of_the_sandbox_exists(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)
    xapi("api", "load", "/openapi.json", env=sandbox.settings)

    for line in xapi("api", "list", env=sandbox.settings).out.splitlines():
        method, path, _ = line.split("\t")
        if path not in ("/x-api/token", "/sandbox/kill-tokens"):
            assert xapi("request", method, path, env=sandbox.settings).code == 0, line


def test_a_document_comes_from_a_file_or_from_stdin(xapi: Xapi) -> None:
    write(xapi, SWAGGER)

    from_file = xapi("api", "load", "api.json")
    from_stdin = xapi("api", "load", "-", input=as_bytes(SWAGGER))

    assert from_file == from_stdin == Outcome(0, "", "xapi: loaded 3 operations of Pets 1.2 for profile default\n")


def test_yaml_is_loaded(xapi: Xapi) -> None:
    write(xapi, b"openapi: 3.0.3\npaths:\n  /a:\n    get: {summary: 'Read: a'}\n", "api.yaml")

    assert xapi("api", "load", "api.yaml").err == "xapi: loaded 1 operation for profile default\n"
    assert xapi("api", "list").out == "GET\t/a\tRead: a\n"


def test_yaml_without_the_extra_is_one_error(xapi: Xapi) -> None:
    write(xapi, b"openapi: 3.0.3\n", "api.yaml")
    hidden = "import sys; sys.modules['yaml'] = None; from xapi_cli.__main__ import main; main()"

    process = xapi.start("api", "load", "api.yaml", argv=(str(PYTHON), "-c", hidden))

    assert process.communicate(timeout=30)[1].decode() == (
        "xapi: error: api.yaml is not valid JSON, and YAML support is not installed; "
        f"{how_to_add('yaml')}, or convert the description to JSON\n"
    )
    assert process.returncode == 2


def test_a_token_that_the_server_repeats_is_not_stored(xapi: Xapi) -> None:
    token = "t0ken-" + "x" * 30
    long = "a" * 990 + token  # would be cut within the token
    document = openapi({f"/{token}": {"get": {"summary": token, "description": long, "operationId": token}}})
    with Server([request(), send(response("200 OK", as_bytes(document)))]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": token}
        assert xapi("api", "load", "/openapi.json?api_key=S3CRET", env=env).code == 0

    index, file = sorted((xapi.state / "api").iterdir())
    head, _, compressed = file.read_bytes().partition(b"\n")
    for stored in (index.read_bytes(), head + zlib.decompress(compressed)):
        assert b"/***" in stored
        assert b"t0ken" not in stored
        assert b"S3CRET" not in stored


def test_a_compressed_response_is_decoded(xapi: Xapi) -> None:
    body = gzip.compress(as_bytes(SWAGGER))
    with Server([request(), send(response("200 OK", body, "Content-Encoding: gzip"))]) as server:
        assert xapi("api", "load", "/v1/openapi", env=bearing(server)).code == 0

    assert server.received[0].startswith(b"GET /v1/openapi HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer " in server.received[0]


@pytest.mark.parametrize(
    ("received", "code", "error"),
    [
        (response("404 Not Found", b"x"), 4, "responded with 404"),
        (response("503 Service Unavailable", b"x"), 5, "responded with 503"),
        (response("204 No Content"), 11, "/a responded with 204 instead of a complete description; load another PATH"),
        (
            response("206 Partial Content", b"{}"),
            11,
            "/a responded with 206 instead of a complete description; load another PATH",
        ),
        (response("200 OK", b"\xef\xbb\xbf\n<html>"), 11, "/a is HTML or XML, not an OpenAPI description"),
        (response("200 OK"), 11, "/a is empty; load the description itself, in JSON or YAML"),
        (response("200 OK", b"\x1f\x8b\x08"), 11, "/a is compressed with gzip; decompress it with gunzip"),
        (response("200 OK", b"\xff"), 11, "/a is not valid UTF-8 at byte 0; convert it to UTF-8"),
        (response("200 OK", b"[1]"), 11, "/a is not an OpenAPI description: the top level is not an object"),
        (response("200 OK", b"{]"), 11, "/a is not valid JSON at line 1, column 2"),
        (response("200 OK", b"hello"), 11, "/a is not an OpenAPI description: the top level is not an object"),
        (
            response("200 OK", b"{}"),
            11,
            "/a is not an OpenAPI description: it has neither an `openapi` nor a `swagger` field",
        ),
        (response("200 OK", b'{"asyncapi": "3.0.0"}'), 11, "/a is an AsyncAPI document, not an OpenAPI description"),
        (
            response("200 OK", b'{"openapi": "4.0"}'),
            11,
            "/a uses OpenAPI 4.0, which is not supported; load an OpenAPI 3 or ",
        ),
        (response("200 OK", b'{"openapi": "3.1.0"}'), 11, "/a contains no operations; check that it is complete"),
        (response("200 OK", b'{"a', "Content-Length: 10"), 11, "was truncated after 3 bytes"),
    ],
)
def test_a_response_that_is_not_a_document_is_one_error(xapi: Xapi, received: bytes, code: int, error: str) -> None:
    with Server([request(), send(received)]) as server:
        shown = xapi("api", "load", "/a", env=bearing(server))

    assert (shown.code, shown.out) == (code, "")
    assert error in shown.err
    assert shown.err.count("\n") == 1
    assert xapi("api", "list").err == NOTHING_LOADED


@pytest.mark.parametrize("command", ["load", "diff"])
@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>"), (200, b"{}"), (200, b"\xff"), (203, b"[1]"), (206, b"{}"), (404, b"")]
)
def test_the_json_error_for_a_response_that_is_not_a_description_has_its_status_and_url(
    xapi: Xapi, command: str, status: int, body: bytes
) -> None:
    load(xapi, SWAGGER)

    with Server([request(), send(response(f"{status} X", body))]) as server:
        shown = xapi("api", command, "/a?key=1", "--error-format", "json", env=bearing(server))

    error = json.loads(shown.err)
    assert (error["status"], error["method"], error["url"]) == (status, "GET", f"{server.url}/a")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "api.json is empty; load the description itself, in JSON or YAML"),
        (b"<!doctype html>", "api.json is HTML or XML, not an OpenAPI description; load the description itself"),
        (b'{"discoveryVersion": "v1"}', "api.json is a Google API discovery document, not an OpenAPI description; "),
        (b'{"swagger": "2.0"}', "api.json contains no operations; check that it is complete"),
    ],
)
def test_a_file_that_is_not_a_document_is_a_usage_error(xapi: Xapi, content: bytes, error: str) -> None:
    write(xapi, content)

    for shown in (xapi("api", "load", "api.json"), xapi("api", "load", "-", input=content)):
        assert (shown.code, shown.out) == (2, "")
        assert shown.err.replace("stdin", "api.json").startswith(f"xapi: error: {error}")


def test_a_redirect_within_the_origin_is_followed_with_the_token(xapi: Xapi) -> None:
    moved = response("301 Moved Permanently", b"", "Location: /docs/v2/openapi.json")
    document = openapi({"/a": {"get": {}}}, servers=[{"url": "../api"}])
    with Server([request(), send(moved), request(), send(response("200 OK", as_bytes(document)))]) as server:
        shown = xapi("api", "load", "/openapi.json", env=bearing(server))
        assert xapi("api", "list", env=bearing(server)).out == "GET\t/docs/api/a\t\n"

    assert shown == Outcome(0, "", "xapi: loaded 1 operation of T 1 for profile default\n")
    assert b"".join(server.received).count(b"\r\nAuthorization: Bearer ") == 2


@pytest.mark.parametrize(
    ("received", "code", "message"),
    [
        (response("200 OK", as_bytes(SWAGGER)), 0, "xapi: loaded 3 operations of Pets 1.2 for profile default\n"),
        (
            response("200 OK", b"<html>"),
            11,
            (
                "xapi: error: the response from {}/files/openapi.json is HTML or XML, not an OpenAPI description;"
                " load the description itself, in JSON or YAML\n"
            ),
        ),
    ],
)
def test_a_redirect_to_another_origin_is_named_and_followed_without_the_token(
    xapi: Xapi, received: bytes, code: int, message: str
) -> None:
    with Server([request(), send(received)]) as other:
        target = f"{other.url}/files/openapi.json"
        moved = response("302 Found", b"", f"Location: {target}?signature=S3CRET")
        with Server([request(), send(moved)]) as server:
            shown = xapi("api", "load", "/openapi.json", env=bearing(server))

    note = f"xapi: a redirect led to {target}, to which the token is not sent\n"
    assert shown == Outcome(code, "", note + message.format(other.url))
    assert b"?signature=S3CRET HTTP/1.1" in other.received[0]
    assert b"authorization" not in other.received[0].lower()


@pytest.mark.parametrize("profile", [[], ["--profile", "work"]])
@pytest.mark.parametrize("command", ["load", "diff"])
def test_for_a_url_of_another_server_a_download_is_suggested(xapi: Xapi, command: str, profile: list[str]) -> None:
    if profile:
        assert xapi("profile", "set", "username", "me@example.com", *profile).code == 0
    with Server() as server, Server() as other:
        write(xapi, SWAGGER)
        assert xapi("api", "load", "api.json", *profile, env=bearing(server)).code == 0
        outcome = xapi("api", command, f"{other.url}/openapi.json", *profile, env=bearing(server))
        assert server.received == other.received == []

    problem = f"PATH has the origin {other.url}, but the base URL has {server.url}"
    download = f"download the file and run `xapi api {' '.join([command, *profile])} FILE`"
    assert outcome == Outcome(2, "", f"xapi: error: {problem}; {download}, or use only the path if the API serves it\n")


def test_an_error_of_another_origin_names_it(xapi: Xapi) -> None:
    with Server([request(), send(response("401 Unauthorized", b"x"))]) as other:
        moved = response("302 Found", b"", f"Location: {other.url}/x")
        with Server([request(), send(moved)]) as server:
            shown = xapi("api", "load", "/openapi.json", env=bearing(server))

    assert shown == Outcome(
        4,
        "",
        f"xapi: error: GET {other.url}/x responded with 401 Unauthorized;"
        " a redirect led to another origin, to which the token is not sent; check the base URL\n",
    )


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("missing.json", "the file missing.json does not exist; a PATH of the API starts with a slash"),
        ("a\x1bb", "the file a\\x1bb does not exist; a PATH of the API starts with a slash"),
        ("/openapi.json", "no base URL; give --base-url, set XAPI_BASE_URL, or run `xapi login`"),
    ],
)
def test_a_source_that_cannot_be_read_is_a_usage_error(xapi: Xapi, source: str, error: str) -> None:
    shown = xapi("api", "load", source)

    assert shown == Outcome(2, "", f"xapi: error: {error}\n")


def test_a_directory_is_named_in_the_error(xapi: Xapi) -> None:
    (xapi.home / "docs").mkdir()
    path = str(xapi.home / "docs")

    relative = xapi("api", "load", "docs")
    with Server([request(), send(response("404 Not Found"))]) as server:
        absolute = xapi("api", "load", path, env=bearing(server))

    assert relative == Outcome(2, "", "xapi: error: docs is a directory; give the file in it\n")
    assert absolute.code == 4
    assert absolute.err.endswith(f"; {path} is also a directory: to load a file, name the file in it\n")


def test_an_absolute_path_of_a_directory_is_a_path_of_the_api_too(xapi: Xapi) -> None:
    (xapi.home / "docs").mkdir()
    with Server([request(), send(response("200 OK", as_bytes(SWAGGER)))]) as server:
        shown = xapi("api", "load", str(xapi.home / "docs"), env=bearing(server))

    assert shown == Outcome(0, "", "xapi: loaded 3 operations of Pets 1.2 for profile default\n")


def test_a_document_of_more_than_50_mb_is_rejected_before_it_is_complete(xapi: Xapi) -> None:
    process = xapi.start("api", "load", "/dev/zero")

    assert process.communicate(timeout=60)[1] == (
        b"xapi: error: /dev/zero is larger than 50 MB; load a smaller description\n"
    )
    assert process.returncode == 2


def test_what_was_skipped_is_reported(xapi: Xapi) -> None:
    node = {"parameters": [{"$ref": "other.json"}, {"$ref": "more.json#/a"}]}
    write(xapi, openapi({"/a": {"get": node}}))

    assert xapi("api", "load", "api.json").err == (
        "xapi: loaded 1 operation of T 1 for profile default\n"
        "xapi: skipped 2 references that are external or unresolvable\n"
    )


def test_a_failed_load_keeps_the_index(xapi: Xapi) -> None:
    load(xapi)
    write(xapi, b"{}")

    assert xapi("api", "load", "api.json").code == 2
    assert len(xapi("api", "list").out.splitlines()) == 3


def test_the_index_is_a_private_file(xapi: Xapi) -> None:
    load(xapi)

    files = list((xapi.state / "api").iterdir())
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600, 0o600]
    assert stat.S_IMODE(files[0].parent.stat().st_mode) == 0o700


def test_a_state_directory_that_cannot_be_written_exits_with_14(xapi: Xapi) -> None:
    write(xapi, SWAGGER)
    xapi.state.mkdir(parents=True, mode=0o700)
    (xapi.state / "api").touch()

    shown = xapi("api", "load", "api.json")

    assert shown.code == 14
    assert shown.err.startswith("xapi: error: the API description cannot be stored: ")

"""METHOD, PATH, ITEMs and stdin of `xapi request`."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from tests.commands.api import ME, bearing, echoed, heads
from tests.support.program import Outcome, Xapi
from tests.support.servers import OK, Server, request, send
from xapi_cli.features.sandbox import Sandbox
from xapi_cli.http.decoding import ACCEPTED

ECHO = "/x-api/echo"


def _parts(seen: dict[str, Any]) -> dict[str, Any]:
    return {"method": seen["method"], "query": seen["query"], "text": seen["text"]}


# METHOD and PATH


@pytest.mark.parametrize(
    ("args", "method"),
    [([ECHO], "GET"), ([ECHO, "-d", ""], "POST"), (["GeT", ECHO, "a=1"], "GET"), ([ECHO, "-X", "options"], "OPTIONS")],
)
def test_the_method_defaults_to_get_or_to_post_with_a_body(
    xapi: Xapi, sandbox: Sandbox, args: list[str], method: str
) -> None:
    assert echoed(xapi("request", *args, env=bearing(sandbox)))["method"] == method


@pytest.mark.parametrize(
    ("args", "query", "headers"),
    [
        (["b==2", "a==1", "--", "e==6"], "b=2&a=1&e=6", []),
        (["X-A:3", "-H", "X-A: 1", "X-A:4", "--header=X-A:2"], "", ["1", "2", "3", "4"]),
        (["X-A:2", "-H", "X-A:"], "", ["2"]),
        (["-HX-A:1", "X-A:"], "", []),
    ],
)
def test_items_keep_their_order_after_the_headers_of_options(
    xapi: Xapi, args: list[str], query: str, headers: list[str]
) -> None:
    with Server([request(), send(OK)]) as server:
        outcome = xapi("request", *([] if "/a" in args else ["/a"]), *args, env=bearing(server))

    assert outcome == Outcome(0, "ok")
    target, *fields = server.received[0].decode().split("\r\n")
    assert target == f"GET /a{query and '?'}{query} HTTP/1.1"
    assert [value for name, _, value in (field.partition(": ") for field in fields) if name == "X-A"] == headers


@pytest.mark.parametrize("path", ["/x-api/me", "x-api/me", "{base}/x-api/me", "/x-api/m%65"])
def test_a_path_is_relative_to_the_base_url_or_an_absolute_url(xapi: Xapi, sandbox: Sandbox, path: str) -> None:
    outcome = xapi("request", path.format(base=sandbox.base_url), env=bearing(sandbox))

    assert outcome == (Outcome(0, ME) if "%" not in path else Outcome(4, outcome.out, outcome.err))


def test_the_path_prefix_of_the_base_url_is_kept(xapi: Xapi) -> None:
    with Server([request(), send(OK)]) as server:
        env = bearing(server) | {"XAPI_BASE_URL": f"{server.url}/v1/"}

        assert xapi("request", "/a", "b==c d", env=env) == Outcome(0, "ok")

    assert heads(server.received[0])[0] == "GET /v1/a?b=c%20d HTTP/1.1"


def test_head_prints_the_headers(xapi: Xapi, sandbox: Sandbox) -> None:
    env = bearing(sandbox)
    shown = xapi("request", "HEAD", "/x-api/me", env=env).out.split("\r\n")
    assert shown[0] == "HTTP/1.1 200 OK"
    assert f"Content-Length: {len(ME)}" in shown
    assert shown[-2:] == ["", ""]


# ITEMs


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["a==1", "b==x y&=/é", "a==2"], {"query": [["a", "1"], ["b", "x y&=/é"], ["a", "2"]]}),
        (["?a=0", "b==1"], {"query": [["a", "0"], ["b", "1"]]}),
        (["a=1", "b=é \"x\""], {"text": '{"a": "1", "b": "é \\"x\\""}'}),
        (["a=@text", "b:=@json"], {"text": '{"a": "zwei\\nZeilen: é\\n", "b": {"b": 1.0}\n}'}),
        (["--form", "a=x y&z", "b=@text"], {"text": "a=x%20y%26z&b=zwei%0AZeilen%3A%20%C3%A9%0A"}),
        (["-d", '{"a" : 1.10}'], {"text": '{"a" : 1.10}'}),
        (["--data", "@json"], {"text": '{"b": 1.0}\n'}),
    ],
)  # fmt: skip
def test_items_become_query_headers_and_body(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path, args: list[str], parts: dict[str, Any]
) -> None:
    (tmp_path / "text").write_text("zwei\nZeilen: é\n", "utf-8")
    (tmp_path / "json").write_text('{"b": 1.0}\n', "utf-8")
    path = ECHO + args.pop(0) if args[0].startswith("?") else ECHO

    seen = echoed(xapi("request", path, *args, env=bearing(sandbox), cwd=tmp_path))

    method = "POST" if "text" in parts else "GET"
    assert _parts(seen) == {"method": method, "query": [], "text": ""} | parts


@pytest.mark.parametrize(
    "args",
    [
        ["X-One:1", "X-Two: two words ", "Accept:", "User-Agent:me", "X-Empty:"],
        ["-H", "X-One: 1", "-H", "X-Two:two words", "-H", "Accept:", "--header", "User-Agent: me"],
    ],
)
def test_headers_are_set_replaced_and_removed(xapi: Xapi, sandbox: Sandbox, args: list[str]) -> None:
    headers = echoed(xapi("request", ECHO, *args, env=bearing(sandbox)))["headers"]

    del headers["host"]
    assert headers == {
        "x-one": "1", "x-two": "two words", "user-agent": "me", "accept-encoding": ACCEPTED,
    }  # fmt: skip


def test_nested_fields_and_values_from_files_are_sent(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes("é x\r\n".encode())
    args = ["a[b][]:=1.10", "a[b][]=@text", "a[c]=z", "X-One:@text", "q==@text", "X-Two:@-", "X-Three:1", "X-Three:"]

    seen = echoed(xapi("request", ECHO, *args, env=bearing(sandbox), cwd=tmp_path, input=b"key\n"))

    assert seen["json"] == {"a": {"b": [1.10, "é x\r\n"], "c": "z"}}
    assert seen["query"] == [["q", "é x"]]
    assert {name: text for name, text in seen["headers"].items() if name.startswith("x-")} == {
        "x-one": "é x", "x-two": "key",
    }  # fmt: skip


def test_an_upload_is_multipart(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "text").write_text("from a file")

    args = ["title=x y", "note=@text", "file@a.png", "other@text;type=text/csv"]
    with Server([request(), send(OK)]) as server:
        outcome = xapi("request", "/", *args, env=bearing(server), cwd=tmp_path)

    assert outcome == Outcome(0, "ok")
    head, _, body = server.received[0].partition(b"\r\n\r\n")
    boundary = head.partition(b"boundary=")[2].partition(b"\r\n")[0]
    assert body == b"\r\n".join([
        b"--" + boundary, b'Content-Disposition: form-data; name="title"', b"", b"x y",
        b"--" + boundary, b'Content-Disposition: form-data; name="note"', b"", b"from a file",
        b"--" + boundary, b'Content-Disposition: form-data; name="file"; filename="a.png"',
        b"Content-Type: image/png", b"", b"\x89PNG",
        b"--" + boundary, b'Content-Disposition: form-data; name="other"; filename="text"',
        b"Content-Type: text/csv", b"", b"from a file",
        b"--" + boundary + b"--", b"",
    ])  # fmt: skip
    assert b"Content-Length: %d\r\n" % len(body) in head + b"\r\n"


@pytest.mark.parametrize("args", [["Authorization:Basic abc"], ["-H", "authorization: Basic abc"], ["Authorization:"]])
def test_a_user_supplied_authorization_header_disables_the_token_and_the_login(
    xapi: Xapi, sandbox: Sandbox, args: list[str]
) -> None:
    outcome = xapi("request", "/x-api/me", *args, env=sandbox.settings)

    assert (outcome.code, sandbox.requests, sandbox.login_attempts) == (10, 1, 0)
    assert outcome.err == (
        f"xapi: error: GET {sandbox.base_url}/x-api/me responded with 401 Unauthorized: "
        "an Authorization header with a bearer token is required; the request sets or removes the Authorization header,"
        " so xapi did not log in\n"
    )


# stdin


def test_a_body_from_stdin_is_sent_verbatim(xapi: Xapi, sandbox: Sandbox) -> None:
    body = bytes(range(256)) * 12_000

    seen = echoed(xapi("request", "PUT", ECHO, "-d", "@-", input=body, env=bearing(sandbox)))

    assert (seen["length"], seen["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())


@pytest.mark.parametrize(
    ("args", "text"),
    [(["a=@-"], '{"a": "é\\n"}'), (["a:=@-", "b=1"], None), (["--form", "a=@-"], "a=%C3%A9%0A")],
)
def test_a_field_can_be_read_from_stdin(xapi: Xapi, sandbox: Sandbox, args: list[str], text: str | None) -> None:
    outcome = xapi("request", ECHO, *args, input="é\n" if text else "[1.0]", env=bearing(sandbox))

    assert echoed(outcome)["text"] == (text or '{"a": [1.0], "b": "1"}')


def test_stdin_is_not_read_unless_requested(xapi: Xapi, sandbox: Sandbox) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"untouched")

    process = xapi.start("request", "/x-api/me", stdin=reader, env=bearing(sandbox))
    out, err = process.communicate()  # stdin is still open

    assert (process.returncode, out.decode(), err) == (0, ME, b"")
    assert os.read(reader, 100) == b"untouched"
    os.close(reader)
    os.close(writer)

"""Redirects: token, headers and body are sent only to the origin of the base URL."""

import ssl
from itertools import cycle
from pathlib import Path

import pytest
import trustme

from tests.commands.api import TOKEN, bearing, heads, response
from tests.support.combinations import combined
from tests.support.program import Outcome, Xapi
from tests.support.servers import OK, Server, request, send, serve
from xapi_cli.features.sandbox import Sandbox

CODES = [301, 302, 303, 307, 308]
ELSEWHERE = ["http://{other}/x", "//{other}/x", "http://user:pass@{other}/x", "http://{name}/x"]
WITHIN = ["/x-api/echo?q=1", "echo?q=1", "./a/../echo?q=1#fragment", "{base}/x-api/echo?q=1"]


def _to(target: str, status: int = 302) -> bytes:
    return response(f"{status} Elsewhere", b"see there", f"Location: {target}")


@pytest.mark.parametrize(
    ("status", "target", "method"),
    [(*case, method) for case, method in zip(combined(CODES, ELSEWHERE), cycle(["GET", "POST"]), strict=False)],
)
def test_no_token_header_or_body_is_sent_to_another_origin(xapi: Xapi, status: int, method: str, target: str) -> None:
    body = ["a=canary-body"] if method == "POST" else []
    with Server([serve(OK)]) as other, Server() as api:
        location = target.format(other=other.name, name=f"localhost:{other.port}")
        api._scripts = ([request(), send(_to(location, status))],)  # noqa: SLF001 - it has to know the other's address
        outcome = xapi("request", method, "/", *body, "X-Mine:canary-header", "Cookie:canary", env=bearing(api))

    received = b"".join(other.received)
    assert b"canary" not in received
    assert TOKEN.encode() in api.received[0]
    if method == "POST" and status != 303:
        assert (outcome.code, outcome.out, received) == (3, "see there", b"")
        assert outcome.err.count("\n") == 1
        reason = "a body is not sent to another origin" if status > 303 else "not followed, because a POST would become"
        assert reason in outcome.err
    else:
        origin = "http://" + location.partition("//")[2].rpartition("@")[2].removesuffix("/x")
        note = f"xapi: the response came from another origin, {origin}, without the token\n"
        assert outcome == Outcome(0, "ok", note)
        assert received.startswith(b"GET /x HTTP/1.1\r\n")
        assert b"uthorization" not in received


@pytest.mark.parametrize(
    ("status", "target", "method"),
    [(*case, method) for case, method in zip(combined(CODES, WITHIN), cycle(["GET", "POST"]), strict=False)],
)
def test_a_redirect_within_the_origin_keeps_token_headers_and_body(
    xapi: Xapi, status: int, method: str, target: str
) -> None:
    body = ["a=b"] if method == "POST" else []
    with Server() as api:
        location = target.format(base=api.url)
        api._scripts = ([request(), send(_to(location, status)), request(), send(OK)],)  # noqa: SLF001 - the same
        outcome = xapi("request", method, "/x-api/old", *body, "X-Mine:1", env=bearing(api))

    if method == "POST" and status in {301, 302}:
        assert (outcome.code, outcome.out) == (3, "see there")
        return
    assert outcome == Outcome(0, "ok")
    keeps = method == "GET" or status in {307, 308}
    before, mark, after = api.received[0].rpartition(b" /x-api/echo?q=1 HTTP/1.1\r\n")
    assert mark
    assert before.endswith(method.encode() if keeps else b"GET")
    assert {f"Authorization: Bearer {TOKEN}", "X-Mine: 1"} < set(heads(after))
    assert after.endswith(b'\r\n\r\n{"a": "b"}' if method == "POST" and keeps else b"\r\n\r\n")


def test_a_401_from_another_origin_exits_with_4_without_a_login(xapi: Xapi, sandbox: Sandbox) -> None:
    token = sandbox.settings
    xapi("login", env=token)
    logins = sandbox.login_attempts
    with Server([serve(response("401 Unauthorized", b"who?"))]) as other, Server() as api:
        api._scripts = ([request(), send(_to(f"{other.url}/x"))],)  # noqa: SLF001 - the same
        outcome = xapi("request", "/", env=bearing(api) | {"XAPI_TOKEN": "canary"})

    assert (outcome.code, outcome.out) == (4, "who?")
    assert "a redirect led to another origin, to which the token is not sent" in outcome.err
    assert sandbox.login_attempts == logins


def test_no_follow_exits_with_3_and_prints_the_body_and_the_target(xapi: Xapi) -> None:
    with Server([request(), send(_to("/b", 307))]) as server:
        outcome = xapi("request", "/a", "--no-follow", env=bearing(server))

    assert outcome == Outcome(
        3,
        "see there",
        f"xapi: error: {server.url}/a redirects (307) to {server.url}/b; omit --no-follow to follow it\n",
    )


@pytest.mark.parametrize("options", [["--no-follow"], ["a=1"], []])
def test_a_redirect_that_is_not_followed_leaves_the_file_of_o_unchanged(
    xapi: Xapi, tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "out").write_text("old")
    target = "/again" if options != ["a=1"] else "http://127.0.0.1:9/x"
    with Server([serve(_to(target, 307))]) as server:
        args = ["/", *options, "-o", "out"]
        printed = xapi("request", *args, env=bearing(server), cwd=tmp_path)
        hidden = xapi("request", *args, "--error-body", "none", env=bearing(server), cwd=tmp_path)

    assert (printed.code, printed.out) == (3, "see there")
    assert hidden == Outcome(3, "", printed.err)
    assert (tmp_path / "out").read_text() == "old"


def test_more_than_ten_redirects_exit_with_3(xapi: Xapi) -> None:
    ten = [step for number in range(10) for step in (request(), send(_to(f"/{number}")))]
    with Server([*ten, request(), send(OK)]) as server:
        assert xapi("request", "/", env=bearing(server)) == Outcome(0, "ok")

    with Server([serve(_to("/again"))]) as server:
        outcome = xapi("request", "/", env=bearing(server))
    assert (outcome.code, outcome.out) == (3, "see there")
    assert b"".join(server.received).count(b"GET ") == 11
    assert "more than ten redirects" in outcome.err


@pytest.mark.parametrize("command", ["request", "batch"])
def test_a_server_that_cannot_be_reached_after_a_redirect_is_not_that_of_the_base_url(xapi: Xapi, command: str) -> None:
    with Server() as closed:
        pass
    with Server([request(), send(_to(f"{closed.url}/x"))]) as server:
        args, text = (["/a"], None) if command == "request" else ([], '{"path": "/a"}\n')
        outcome = xapi(command, *args, env=bearing(server), input=text)

    assert outcome.code == 11
    refused = f"no connection to {closed.name}: connection refused"
    if command == "request":
        hint = f"check the host and port of the redirect of {server.url}/a, and whether the server is running"
        assert outcome.err == f"xapi: error: {refused}; {hint}\n"
    else:
        assert refused in outcome.out


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://127.0.0.1/", "javascript:alert(1)", "http://", "http://[::1", "/\\evil", ""]
)
def test_an_invalid_redirect_target_exits_with_3(xapi: Xapi, target: str) -> None:
    with Server([serve(_to(target))]) as server:
        outcome = xapi("request", "/", env=bearing(server))

    assert (outcome.code, outcome.out) == (3, "see there")
    assert outcome.err.count("\n") == 1
    assert not target or outcome.err.endswith("; report this to the operators of the server\n")


def test_control_characters_in_a_redirect_target_are_escaped(xapi: Xapi) -> None:
    with Server([serve(_to("/a\x1b]0;x\x07b", 307))]) as server:
        outcome = xapi("request", "/", "--no-follow", env=bearing(server))

    assert outcome.code == 3
    assert outcome.err.rstrip("\n").isprintable()


def test_a_redirect_from_https_to_http_is_not_followed(xapi: Xapi) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    bundle = xapi.home / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    with Server([serve(OK)]) as plain, Server([request(), send(_to(f"{plain.url}/x"))], tls=context) as api:
        outcome = xapi("request", "/", "--ca-bundle", str(bundle), env=bearing(api))

    assert (outcome.code, outcome.out, plain.received) == (3, "see there", [])
    assert "from https to plain http: not followed" in outcome.err


def test_cookies_are_not_stored(xapi: Xapi) -> None:
    first = response("302 Found", b"", "Location: /b", "Set-Cookie: sid=1; Path=/")
    with Server([request(), send(first), request(), send(OK)]) as server:
        assert xapi("request", "/", env=bearing(server)) == Outcome(0, "ok")

    assert b"ookie" not in server.received[0]


def test_netrc_is_not_read(xapi: Xapi) -> None:
    (xapi.home / ".netrc").write_text("machine 127.0.0.1 login me password canary\ndefault login me password canary\n")
    (xapi.home / ".netrc").chmod(0o600)
    with Server([request(), send(OK)]) as server:
        assert xapi("request", "/", env=bearing(server)) == Outcome(0, "ok")

    assert f"Authorization: Bearer {TOKEN}" in heads(server.received[0])


@pytest.mark.parametrize(
    "path",
    [
        "http://other.test/x", "https://127.0.0.1:{port}/", "http://127.0.0.1:{port}.other.test/", "//other.test/x",
        "http://canary:x@127.0.0.1:{port}/", "http://127.0.0.1:1/", "http://127.0.0.1:{port}@other.test/",
        "/\\other.test", "\\\\other.test", "C:/Program Files/Git/x-api/me", "c:\\x", "/a%0d%0aX: y", "/a%00b", "/../x",
        "/%2e%2e/x", "/a\r\nX: y", "ftp://127.0.0.1:{port}/", "http:/x", "/%2f/other.test", "/a#b", " ", "",
    ],
)  # fmt: skip
def test_a_path_on_another_origin_is_rejected_before_anything_is_sent(xapi: Xapi, path: str) -> None:
    with Server([serve(OK)]) as server:
        outcome = xapi("request", path.format(port=server.port), env=bearing(server))

    assert (outcome.code, outcome.out, server.received) == (2, "", [])
    assert outcome.err.startswith("xapi: error: PATH ")
    assert outcome.err.count("\n") == 1
    assert "canary" not in outcome.err

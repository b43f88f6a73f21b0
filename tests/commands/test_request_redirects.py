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

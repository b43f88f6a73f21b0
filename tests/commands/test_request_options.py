"""The options of `xapi request` that print, report and reject."""

import json
from pathlib import Path

import pytest

import xapi_cli
from tests.commands.api import ME, TOKEN, bearing, response
from tests.support.program import Outcome, Xapi
from tests.support.servers import OK, Server, request, send, serve, sleep
from xapi_cli.features.sandbox import Sandbox
from xapi_cli.http.decoding import ACCEPTED


def test_include_prints_the_response_headers_before_the_body(xapi: Xapi) -> None:
    sent = response("200 Alles gut", b"body", "X-Two: 1", "X-Two: \u00e9", "Content-Type: text/plain")
    sent = sent.replace(b"HTTP/1.1", b"HTTP/1.0")
    with Server([request(), send(sent)]) as server:
        outcome = xapi("request", "/", "-i", env=bearing(server))

    assert outcome == Outcome(0, sent.decode())


def test_only_the_headers_of_the_final_response_are_printed(xapi: Xapi) -> None:
    with Server([request(), send(response("302 Found", b"", "Location: /b")), request(), send(OK)]) as server:
        outcome = xapi("request", "/", "-i", env=bearing(server))

    assert outcome == Outcome(0, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def test_verbose_prints_headers_and_text_on_stderr_without_the_token(xapi: Xapi) -> None:
    kind = "Content-Type: text/plain; charset=ISO-8859-1"
    sent = response("200 OK", b"\xe9", f"X-Echo: {TOKEN}", "Set-Cookie: sid=canary-cookie", "X-Odd: \x1b[31m", kind)
    with Server([request(), send(sent)]) as server:
        outcome = xapi("request", "/a?api_key=canary-key", "X-Api-Key:canary-own", "-vv", env=bearing(server))

    assert (outcome.code, outcome.out) == (0, "\udce9")
    assert "canary" not in outcome.err
    lines = outcome.err.splitlines()
    assert [line for line in lines if not line.startswith("*")] == [
        "> GET /a?api_key=*** HTTP/1.1", f"> Host: {server.name}", "> X-Api-Key: ***", "> Accept: */*",
        f"> Accept-Encoding: {ACCEPTED}", f"> User-Agent: xapi/{xapi_cli.__version__}", "> Authorization: Bearer ***",
        ">", "< HTTP/1.1 200 OK", "< X-Echo: ***", "< Set-Cookie: ***", "< X-Odd: \\x1b[31m", f"< {kind}",
        "< Content-Length: 1", "<", "< é",
    ]  # fmt: skip
    assert f"* connected to {server.name}" in lines


def test_verbose_prints_a_login_without_the_password(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("request", "/x-api/me", "--verbose", env=sandbox.settings)

    assert (outcome.code, outcome.out) == (0, ME)
    assert "> POST /x-api/token HTTP/1.1" in outcome.err
    for piece in ("correct", "horse", "ttery"):
        assert piece not in outcome.err


def test_vv_shows_bodies_but_not_those_of_a_login(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("request", "/x-api/echo", "a=b", "-vv", env=sandbox.settings)

    assert '> {"a": "b"}\n' in outcome.err
    assert '< {"method":"POST"' in outcome.err
    assert "grant_type" not in outcome.err
    assert "access_token" not in outcome.err


@pytest.mark.parametrize(
    ("args", "out", "err"),
    [
        ([], "oops", ""),
        (["--error-body", "stdout"], "oops", ""),
        (["--error-body", "stderr"], "", "oops\n"),
        (["--error-body", "none"], "", ""),
        (["--error-body", "stderr", "-o", "out"], "", "oops\n"),
        (["-o", "out"], "oops", ""),
    ],
)
def test_error_body_selects_the_destination_of_an_error_body(
    xapi: Xapi, tmp_path: Path, args: list[str], out: str, err: str
) -> None:
    (tmp_path / "out").write_text("old")
    reply = response("404 Not Found", b"oops")
    with Server([request(), send(reply[:-2]), sleep(0.1), send(reply[-2:])]) as server:
        outcome = xapi("request", "/", *args, env=bearing(server), cwd=tmp_path)

    assert (outcome.code, outcome.out) == (4, out)
    body, _, line = outcome.err.rpartition("xapi: error: ")
    assert body == err
    assert line.startswith(f"GET {server.url}/ responded with 404 Not Found: oops; ")
    assert line.count("\n") == 1
    assert (tmp_path / "out").read_text() == "old"


WHY_POST = "a body makes it a POST: write a query parameter as name==value, or give METHOD (such as PUT) first"


@pytest.mark.parametrize(
    ("args", "status", "hint"),
    [
        (["/a", "b=1"], "405 No", WHY_POST),
        (["/a", "-d", ""], "501 No", WHY_POST),
        (["POST", "/a", "b=1"], "405 No", "allowed methods: GET, \\x1bHEAD"),
        (["/a"], "405 No", "allowed methods: GET, \\x1bHEAD"),
        (["PUT", "/a"], "501 No", "the server does not support the method; check METHOD"),
        (["/a"], "500 No", "try again later"),
        (["/a"], "404 No", "check the path and the base URL"),
        (["/a"], "429 No", "try again later, or use --retry"),
    ],
)  # fmt: skip
def test_the_error_for_a_rejected_request_has_a_hint(xapi: Xapi, args: list[str], status: str, hint: str) -> None:
    with Server([request(), send(response(status, b"", "Allow: GET, \x1bHEAD"))]) as server:
        outcome = xapi("request", *args, env=bearing(server))

    assert outcome.code == (4 if status < "5" else 5)
    assert outcome.err.endswith(f" {server.url}/a responded with {status}; {hint}\n")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("200 OK", 0), ("204 No Content", 0), ("304 Not Modified", 0), ("300 Choices", 3), ("302 Found", 3),
        ("400 No", 4), ("499 No", 4), ("500 No", 5), ("599 No", 5), ("401 No", 10),
    ],
)  # fmt: skip
def test_the_exit_code_follows_the_final_status(xapi: Xapi, status: str, code: int) -> None:
    body = b"" if status[:3] in {"204", "304"} else b"body"
    with Server([serve(response(status, body))]) as server:
        outcome = xapi("request", "/", env=bearing(server))
        unchecked = xapi("request", "/", "--no-check-status", env=bearing(server))

    assert (outcome.code, outcome.out) == (code, body.decode())
    assert outcome.err.count("\n") == (0 if code == 0 else 1)
    assert (unchecked.code, unchecked.out) == (10 if code == 10 else 0, body.decode())
    assert unchecked.err == (outcome.err if code == 10 else "")


def test_no_login_never_logs_in(xapi: Xapi, sandbox: Sandbox) -> None:
    missing = xapi("request", "/x-api/me", "--no-login", env=sandbox.settings)
    assert (missing.code, missing.out, sandbox.requests) == (10, "", 0)
    assert "no stored token" in missing.err
    assert "--no-login was given" in missing.err

    assert xapi("request", "/x-api/me", env=sandbox.settings).code == 0
    sandbox.revoke_tokens()
    rejected = xapi("request", "/x-api/me", "--no-login", env=sandbox.settings)
    assert rejected.code == 10
    assert json.loads(rejected.out)["error"] == "invalid_token"
    assert "omit --no-login" in rejected.err
    assert sandbox.login_attempts == 1

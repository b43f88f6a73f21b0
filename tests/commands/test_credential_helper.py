"""`xapi credential-helper get`: the token for Bazel and other programs."""

import fcntl
import json
import subprocess
import termios
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.program import PROGRAM, Environ, Xapi
from tests.support.threads import wait_until
from xapi_cli.sandbox import MASTER, Sandbox

GET = ("credential-helper", "get")


def _request(url: str, **members: object) -> str:
    return json.dumps({"uri": url, **members})


def _until_read(pipe: int) -> None:
    """Wait until nothing is left in *pipe*."""
    wait_until(lambda: not any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))))


@pytest.mark.parametrize("path", ["", "/", "/x-api/me", "/anything?a=b"])
def test_the_response_has_the_header_and_the_expiry(xapi: Xapi, sandbox: Sandbox, path: str) -> None:
    outcome = xapi(*GET, env=sandbox.settings, input=_request(sandbox.base_url + path, unknown=["member"]))

    response = json.loads(outcome.out)
    assert list(response) == ["headers", "expires"]
    (header,) = response["headers"].pop("Authorization")
    assert response["headers"] == {}
    assert sandbox.user_of(header.removeprefix("Bearer ")) == MASTER
    left = datetime.fromisoformat(response["expires"]) - datetime.now(UTC)
    assert timedelta(0) < left <= timedelta(seconds=sandbox.expires_in)
    assert sandbox.requests == 0


def test_a_stored_token_is_used_and_renewed_for_min_ttl(xapi: Xapi, sandbox: Sandbox) -> None:
    request = _request(sandbox.base_url)
    sandbox.expires_in = 3660
    xapi("login", env=sandbox.settings)
    first = xapi(*GET, env=sandbox.settings, input=request)
    second = xapi(*GET, "--min-ttl", "1h", env=sandbox.settings, input=request)
    sandbox.expires_in = 7200
    renewed = xapi(*GET, "--min-ttl", "90m", env=sandbox.settings, input=request)

    assert (first.code, second.code, renewed.code) == (0, 0, 0)
    assert first.out != renewed.out


def test_the_expiry_is_omitted_if_it_is_unknown(xapi: Xapi) -> None:
    env: Environ = {"XAPI_BASE_URL": "https://api.test", "XAPI_TOKEN": "abc"}

    outcome = xapi(*GET, env=env, input=_request("https://API.test:443/x"))
    assert json.loads(outcome.out) == {"headers": {"Authorization": ["Bearer abc"]}}


@pytest.mark.parametrize(
    "url",
    [
        "https://other.test/x",
        "http://api.test/x",
        "https://api.test:8443/x",
        "https://api.test.evil.test/",
        "https://CANARY@api.test/",
        "https://api.test@other.test/",
        "https:\\\\api.test/",
        "//api.test/x",
        "/x-api/me",
        "x-api/me",
        "/x?next=https://api.test/",
        "api.test",
        "",
        "https://api.test/\nCANARY",
        "ftp://api.test/",
    ],
)
def test_another_origin_exits_with_2_and_prints_no_token(xapi: Xapi, url: str) -> None:
    env: Environ = {"XAPI_BASE_URL": "https://api.test/v1", "XAPI_TOKEN": "abc"}
    outcome = xapi(*GET, env=env, input=_request(url))

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        "xapi: error: the requested uri is not an absolute URL on the origin of the base URL https://api.test/v1;"
        " configure the credential helper only for the host of the API\n"
    )


@pytest.mark.parametrize(
    "request_text", [b"", b"{}", b"[]", b"null", b"CANARY", b'{"uri": 1}', b"\xff", b"[" * 60_000, b" " * 65_537]
)
def test_an_invalid_request_exits_with_2_and_sends_nothing(xapi: Xapi, sandbox: Sandbox, request_text: bytes) -> None:
    outcome = xapi(*GET, env=sandbox.settings, input=request_text)

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert "the request on stdin" in outcome.err
    assert "CANARY" not in outcome.err
    assert sandbox.login_attempts == 0


@pytest.mark.parametrize("closes", [True, False], ids=["and closes it", "and keeps it open"])
def test_a_program_may_write_the_request_in_parts(xapi: Xapi, closes: bool) -> None:
    env: Environ = {"XAPI_BASE_URL": "https://api.test", "XAPI_TOKEN": "abc"}
    process = xapi.start(*GET, env=env, stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    request = _request(f"https://api.test/{'{}' * 10_000}", headers={}, text="a{}").encode()
    for start in range(0, len(request), 999):
        process.stdin.write(request[start : start + 999])
        process.stdin.flush()
        _until_read(process.stdin.fileno())
    if closes:
        process.stdin.close()

    assert json.loads(process.stdout.readline()) == {"headers": {"Authorization": ["Bearer abc"]}}
    process.stdin.close()
    assert process.wait(60) == 0


def test_a_request_of_more_than_64_kib_is_refused_as_such(xapi: Xapi) -> None:
    env: Environ = {"XAPI_BASE_URL": "https://api.test", "XAPI_TOKEN": "abc"}
    outcome = xapi(*GET, env=env, input=_request(f"https://api.test/{'a' * 70_000}"))

    assert (outcome.code, outcome.out) == (2, "")
    assert "the request on stdin is larger than 64 KiB" in outcome.err


def test_without_a_login_the_exit_code_is_10(xapi: Xapi, sandbox: Sandbox) -> None:
    env = {**sandbox.settings, "XAPI_PASSWORD": None}

    outcome = xapi(*GET, env=env, input=_request(sandbox.base_url))
    assert (outcome.code, outcome.out) == (10, "")


def test_a_script_as_bazel_runs_it_prints_the_header(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    script = tmp_path / "xapi-helper"
    script.write_text(f'#!/bin/sh\nexec {PROGRAM} credential-helper "$@"\n')
    script.chmod(0o700)

    done = subprocess.run(
        (script, "get"),
        input=_request(sandbox.base_url).encode(),
        env=xapi.environment(sandbox.settings),
        capture_output=True,
        timeout=60,
        check=True,
    )
    (header,) = json.loads(done.stdout)["headers"]["Authorization"]
    assert sandbox.user_of(header.removeprefix("Bearer ")) == MASTER

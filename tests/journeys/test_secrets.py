"""Secrets that servers and keyring backends repeat are redacted, and output of backends is discarded."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, request, send
from xapi_cli.features.sandbox import MASTER, Sandbox

TOKEN = "canary-of-a-token"
PASSWORD = "canary & passwörd"
KEYRINGS = Path(__file__).parents[1] / "support" / "keyrings"


def noisy(xapi: Xapi, sandbox: Sandbox, backend: str = "Noisy") -> dict[str, Any]:
    return {
        **sandbox.settings,
        "XAPI_STORAGE": "keyring",
        "PYTHONPATH": str(KEYRINGS),
        "PYTHON_KEYRING_BACKEND": f"fake_keyrings.{backend}",
        "FAKE_KEYRING": str(xapi.home / "fake.json"),
    }


def test_output_of_a_keyring_backend_is_discarded(xapi: Xapi, sandbox: Sandbox) -> None:
    env = noisy(xapi, sandbox)

    login = xapi("login", env=env)
    shown = xapi("token", "show", env=env)
    answered = xapi("request", "/x-api/echo", "-d", "@-", input=b'"the body"', env=env)

    assert login.code == 0
    assert login.out == ""
    assert login.err.startswith("xapi: logged in as ")
    assert login.err.count("\n") == 1
    assert (shown.code, shown.err) == (0, "")
    assert sandbox.user_of(shown.out.strip()) == MASTER
    assert (answered.code, answered.err) == (0, "")
    assert '"json":"the body"' in answered.out
    assert "NOISE" not in answered.out


def test_a_keyring_backend_that_never_returns_times_out(xapi: Xapi, sandbox: Sandbox) -> None:
    env = noisy(xapi, sandbox, "Busy")
    started = time.monotonic()

    outcome = xapi("token", "show", env=env)

    assert (outcome.code, outcome.out) == (13, "")
    assert time.monotonic() - started < 8  # a time limit of 3 s, on a busy machine


@pytest.mark.parametrize(
    "reply",
    [
        f"HTTP/1.1 400 what is {TOKEN}\r\nContent-Length: 0\r\n\r\n",
        f"HTTP/1.1 302 Found\r\nLocation: /{TOKEN}/here\r\nContent-Length: 0\r\n\r\n",
        f"HTTP/1.1 307 Away\r\nLocation: http://127.0.0.1:1/{TOKEN}\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_a_token_that_the_api_repeats_is_redacted(xapi: Xapi, reply: str) -> None:
    with Server([request(), send(reply.encode())]) as server:
        outcome = xapi(
            "request", "/x", "a=b", "--no-follow", "-v", env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": TOKEN}
        )

    assert outcome.code in {3, 4}
    assert "xapi: error: " in outcome.err
    assert "***" in outcome.err
    assert TOKEN not in outcome.out + outcome.err


def test_verbose_redacts_secrets_in_the_urls_of_a_response(xapi: Xapi) -> None:
    url = "https://me:canary@127.0.0.1:1/a?access_token=canary&page=2"
    headers = f'Location: {url}\r\nContent-Location: {url}\r\nLink: <{url}>; rel="next"\r\nRefresh: 5; url={url}\r\n'
    response = f"HTTP/1.1 302 Found\r\n{headers}Content-Length: 0\r\n\r\n"
    with Server([request(), send(response.encode())]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": TOKEN}
        outcome = xapi("request", "/x;jsessionid=canary", "--no-follow", "-v", env=env)

    assert outcome.code == 3
    assert outcome.err.count("https://***@127.0.0.1:1/a?access_token=***&page=2") == 4
    assert "canary" not in outcome.err


@pytest.mark.parametrize("repeated", [PASSWORD, "canary%20%26%20passw%C3%B6rd"])
def test_a_password_that_the_token_endpoint_repeats_is_redacted(xapi: Xapi, repeated: str) -> None:
    reply = f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/{repeated}/x\r\nContent-Length: 0\r\n\r\n"
    with Server([request(), send(reply.encode())]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me@example.com", "XAPI_PASSWORD": PASSWORD}
        outcome = xapi("request", "/x", env=env)
        stored = b"".join(path.read_bytes() for path in xapi.state.rglob("*") if path.is_file())

    assert (outcome.code, outcome.out) == (3, "")
    assert "canary" not in outcome.err
    assert b"canary" not in stored


def test_output_and_meta_cannot_be_the_same_file(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("request", "/x-api/me", "-o", "f", "--meta", "./f", env=sandbox.settings)

    assert outcome == Outcome(2, "", "xapi: error: -o and --meta are the same file; use two different files\n")
    assert sandbox.requests == 0

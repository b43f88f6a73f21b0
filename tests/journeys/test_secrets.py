"""Secrets that servers and keyring backends repeat are redacted, and output of backends is discarded."""

import pytest

from tests.support.program import Xapi
from tests.support.servers import Server, request, send

TOKEN = "canary-of-a-token"
PASSWORD = "canary & passwörd"


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

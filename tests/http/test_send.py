"""What is sent to the API, after a 401 too, and the errors for statuses."""

from typing import Any

import httpx
import pytest

import xapi_cli
from tests.http.sending import BASE, USER_HEADERS, Router, Tokens, sender_for
from xapi_cli.errors import (
    LoginRefused,
    NetworkError,
    TimeoutExpired,
    TokenRejected,
    XapiError,
)
from xapi_cli.http.decoding import ACCEPTED
from xapi_cli.http.send import Call
from xapi_cli.request.body.spool import Text
from xapi_cli.request.status_errors import status_error
from xapi_cli.tokens import Token


def test_the_token_the_default_headers_and_the_headers_of_the_user_are_sent(router: Router) -> None:
    router.get(f"{BASE}/a").respond(200)

    reply = sender_for(router).send(Call("GET", f"{BASE}/a", (("X-Mine", "1"), ("accept", "text/plain"))))

    assert (reply.response.status, reply.from_api, reply.refused_redirect) == (200, True, None)
    assert [(name.decode(), value.decode()) for name, value in router.calls[0].request.headers.raw] == [
        ("Host", "api.test"),
        ("X-Mine", "1"),
        ("accept", "text/plain"),
        ("Accept-Encoding", ACCEPTED),
        ("User-Agent", f"xapi/{xapi_cli.__version__}"),
        ("Authorization", "Bearer token-1"),
    ]


def test_a_header_without_a_value_removes_the_default(router: Router) -> None:
    router.post(f"{BASE}/a").respond(200)
    removed = [(name, None) for name in ("Accept", "accept-encoding", "User-Agent", "Content-Type")]

    sender_for(router).send(Call("POST", f"{BASE}/a", removed, Text(b"{}", "application/json")))

    assert dict(router.calls[0].request.headers) == {
        "host": "api.test",
        "content-length": "2",
        "authorization": "Bearer token-1",
    }


def test_a_host_header_of_the_user_replaces_the_default(router: Router) -> None:
    router.post(f"{BASE}/a").respond(200)

    sender_for(router).send(Call("POST", f"{BASE}/a", (("Host", "inner.test"),), Text(b"x", None)))

    assert [value for name, value in router.calls[0].request.headers.raw if name.lower() == b"host"] == [b"inner.test"]


def test_after_a_401_the_same_request_is_replayed_with_a_newer_token(router: Router) -> None:
    router.put(f"{BASE}/a").mock(side_effect=[httpx.Response(401), httpx.Response(200)])
    sender = sender_for(router)

    reply = sender.send(Call("PUT", f"{BASE}/a", USER_HEADERS, Text(b"body", "application/json")))

    assert reply.response.status == 200
    assert sender.attempts == 2
    assert router.sent == [
        ("PUT", f"{BASE}/a", "Bearer token-1", "canary-header", b"body"),
        ("PUT", f"{BASE}/a", "Bearer token-2", "canary-header", b"body"),
    ]
    first, second = (dict(call.request.headers) | {"authorization": ""} for call in router.calls)
    assert first == second


def test_a_second_401_is_final(router: Router) -> None:
    router.get(f"{BASE}/a").respond(401)
    tokens = Tokens()
    sender = sender_for(router, tokens=tokens)

    reply = sender.send(Call("GET", f"{BASE}/a"))
    error = status_error(reply, tokens)

    assert isinstance(error, TokenRejected)
    assert str(error) == "GET https://api.test/v1/a responded with 401; check the account"
    assert (len(router.calls), sender.attempts) == (2, 2)
    assert tokens.calls == ["renew", "record_rejection"]


def test_without_credentials_no_token_is_sent_and_a_401_is_final(router: Router) -> None:
    router.get(f"{BASE}/a").respond(401)

    reply = sender_for(router, tokens=None).send(Call("GET", f"{BASE}/a"))

    assert router.sent == [("GET", f"{BASE}/a", None, None, b"")]
    error = status_error(reply, None)
    assert isinstance(error, TokenRejected)
    assert "the request sets or removes the Authorization header" in str(error)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("error", [LoginRefused("no"), NetworkError("no such host"), TimeoutExpired("too slow")])
def test_a_failed_login_ends_the_call_without_a_retry(router: Router, error: XapiError, first: bool) -> None:
    router.get(f"{BASE}/a").respond(401)
    sender = sender_for(router, tokens=Tokens(error, first=first), retries=5)

    with pytest.raises(XapiError) as caught:
        sender.send(Call("GET", f"{BASE}/a"))

    assert caught.value is error
    assert len(router.calls) == (0 if first else 1)
    assert sender.attempts == 1


def test_each_replay_has_a_newer_token_up_to_the_limit(router: Router) -> None:
    router.get(f"{BASE}/a").respond(401)
    tokens = Tokens(logins=9)

    reply = sender_for(router, tokens=tokens, replays=5).send(Call("GET", f"{BASE}/a"))

    assert reply.is_rejection
    assert [sent[2] for sent in router.sent] == [f"Bearer token-{number}" for number in range(1, 7)]
    assert tokens.calls == ["renew"] * 5 + ["record_rejection"]
    assert len(set(tokens.sent_at)) == 5


def test_a_get_that_was_accepted_can_be_repeated_with_another_token(router: Router) -> None:
    router.get(f"{BASE}/a").respond(200)
    router.post(f"{BASE}/a").respond(204)
    repeats: list[Any] = []

    class Repeating(Tokens):
        def accepted(self, token: Token, status: int, sent_at: float, repeat: Any) -> None:
            repeats.append(repeat)

    sender = sender_for(router, tokens=Repeating())
    sender.send(Call("GET", f"{BASE}/a", USER_HEADERS))
    sender.send(Call("POST", f"{BASE}/a"))

    assert (repeats[0](Token("other")), repeats[1]) == (200, None)
    assert router.sent[-1] == ("GET", f"{BASE}/a", "Bearer other", "canary-header", b"")

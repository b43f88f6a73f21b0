"""What is sent to the API, after a 401 too, and the errors for statuses."""

import httpx
import pytest

from tests.request.sending import BASE, USER_HEADERS, Credentials, Router, sender_for, tokens_of
from xapi_cli.errors import (
    ClientStatusError,
    LoginRefused,
    NetworkError,
    ServerStatusError,
    TimeoutExpired,
    TokenRejected,
    XapiError,
)
from xapi_cli.http.content_coding import accepted
from xapi_cli.request.body.spool import Text
from xapi_cli.request.calls import Call
from xapi_cli.request.send import status_error


def test_the_token_the_default_headers_and_the_headers_of_the_user_are_sent(router: Router) -> None:
    router.get(f"{BASE}/a").respond(200)

    reply = sender_for(router).send(Call("GET", f"{BASE}/a", (("X-Mine", "1"), ("accept", "text/plain"))))

    assert (reply.response.status, reply.from_api, reply.refused_redirect) == (200, True, None)
    assert [(name.decode(), value.decode()) for name, value in router.calls[0].request.headers.raw] == [
        ("Host", "api.test"),
        ("X-Mine", "1"),
        ("accept", "text/plain"),
        ("Accept-Encoding", accepted()),
        ("User-Agent", "xapi/0.1.0"),
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
    credentials = Credentials()
    tokens = tokens_of(credentials)
    sender = sender_for(router, tokens=tokens)

    reply = sender.send(Call("GET", f"{BASE}/a"))
    error = status_error(reply, tokens)

    assert isinstance(error, TokenRejected)
    assert error is not None
    assert error.message == "GET https://api.test/v1/a responded with 401"
    assert (len(router.calls), sender.attempts) == (2, 2)
    assert credentials.calls == ["current", "renew", "record_rejection"]


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
    sender = sender_for(router, tokens=tokens_of(Credentials(error, first=first)), retries=5)

    with pytest.raises(XapiError) as caught:
        sender.send(Call("GET", f"{BASE}/a"))

    assert caught.value is error
    assert len(router.calls) == (0 if first else 1)
    assert sender.attempts == 1


# errors for statuses


@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        (400, ClientStatusError, "GET https://api.test/v1/a responded with 400"),
        (403, ClientStatusError, "responded with 403; the API serves only users with master rights"),
        (404, ClientStatusError, "responded with 404; check the path and the base URL"),
        (429, ClientStatusError, "responded with 429; try again later, or use --retry"),
        (500, ServerStatusError, "responded with 500; try again later"),
        (599, ServerStatusError, "responded with 599; try again later"),
    ],
)
def test_the_error_of_a_status(router: Router, status: int, kind: type[XapiError], text: str) -> None:
    router.get(f"{BASE}/a").respond(status)
    reply = sender_for(router).send(Call("GET", f"{BASE}/a?secret=canary"))

    error = status_error(reply, None)

    assert type(error) is kind
    assert str(error).endswith(text)
    assert "canary" not in str(error)
    assert status_error(reply, None, check_status=False) is None


@pytest.mark.parametrize(
    ("method", "status", "retry_after", "hint"),
    [
        ("GET", 429, "5", "try again in 5 s, or use --retry"),
        ("GET", 429, "301", "try again in 301 s (--retry waits at most 300 s)"),
        ("POST", 429, "5", "try again in 5 s"),
        ("POST", 429, "soon", "try again later"),
        ("GET", 429, "Wed, 21 Oct 2015 07:28:00 GMT", "try again later, or use --retry"),
        ("GET", 503, "7", "try again in 7 s"),
        ("GET", 503, "0", "try again later"),
    ],
)
def test_the_error_names_the_time_that_the_server_asks_to_wait(
    router: Router, method: str, status: int, retry_after: str, hint: str
) -> None:
    router.route(method=method, url=f"{BASE}/a").respond(status, headers={"Retry-After": retry_after})

    error = status_error(sender_for(router).send(Call(method, f"{BASE}/a")), None)

    assert str(error) == f"{method} {BASE}/a responded with {status}; {hint}"


@pytest.mark.parametrize("status", [200, 201, 204, 299, 304])
def test_success_and_304_are_not_errors(router: Router, status: int) -> None:
    router.get(f"{BASE}/a").respond(status)

    assert status_error(sender_for(router).send(Call("GET", f"{BASE}/a")), None) is None


def test_the_reason_phrase_is_escaped_and_shortened(router: Router) -> None:
    reason = b"\x1b[31mno way " + b"x" * 200
    router.get(f"{BASE}/a").mock(return_value=httpx.Response(400, extensions={"reason_phrase": reason}))

    error = status_error(sender_for(router).send(Call("GET", f"{BASE}/a")), None)

    assert str(error) == "GET https://api.test/v1/a responded with 400 \\x1b[31mno way " + "x" * 45 + "…"

from typing import Any

import httpx
import pytest
import respx

from xapi_cli.errors import (
    ClientStatusError,
    LoginRefused,
    NetworkError,
    RedirectError,
    ServerStatusError,
    TimeoutExpired,
    TokenRejected,
    XapiError,
)
from xapi_cli.http.content_coding import accepted
from xapi_cli.request.body.spool import Text
from xapi_cli.request.calls import Call
from xapi_cli.request.send import Sender, status_error
from xapi_cli.tokens import Token

BASE = "https://api.test/v1"
OTHER = "https://other.test"
USER_HEADERS = (("X-Mine", "canary-header"), ("Content-Type", "text/csv"))


class _Credentials:
    """Return `token-1`, after a 401 `token-2`; raise *error* after a 401, or with *first*, immediately."""

    login_reason = None

    def __init__(self, error: XapiError | None = None, *, first: bool = False) -> None:
        self.calls: list[str] = []
        self._error, self._first = error, first

    def renew_unlimited(self, rejected: Token) -> Token | None:
        return self.renew(rejected)

    def newer(self, than: Token) -> Token | None:
        return None

    def is_fresh(self, token: Token) -> bool:
        return False

    def check(self) -> None:
        """Do nothing: a token is always available."""

    def current(self) -> Token:
        self.calls.append("current")
        if self._error and self._first:
            raise self._error
        return Token("token-1" if "renew" not in self.calls else "token-2")

    def renew(self, rejected: Token) -> Token | None:
        self.calls.append("renew")
        if self._error:
            raise self._error
        return Token("token-2") if self.calls.count("renew") == 1 else None

    def record_rejection(self) -> None:
        self.calls.append("record_rejection")

    def advice(self) -> str:
        return "check the account"


Sent = tuple[str, str, str | None, str | None, bytes]


class _Router(respx.Router):
    """Record method, URL, token, the user's header and the body of each request when it is sent."""

    def __init__(self) -> None:
        super().__init__(assert_all_called=False)
        self.sent: list[Sent] = []

    def handler(self, request: httpx.Request) -> httpx.Response:
        token, mine = (request.headers.get(name) for name in ("Authorization", "X-Mine"))
        self.sent.append((request.method, str(request.url), token, mine, request.read()))
        return super().handler(request)


@pytest.fixture
def router() -> _Router:
    return _Router()


def _no_wait(seconds: float) -> None:
    pass


def _sender(router: _Router, **more: Any) -> Sender:
    client = httpx.Client(transport=httpx.MockTransport(router.handler), follow_redirects=False)
    options: dict[str, Any] = {"credentials": _Credentials(), "sleep": _no_wait} | more
    return Sender(client, BASE, **options)


def test_the_token_the_default_headers_and_the_headers_of_the_user_are_sent(router: _Router) -> None:
    router.get(f"{BASE}/a").respond(200)

    reply = _sender(router).send(Call("GET", f"{BASE}/a", (("X-Mine", "1"), ("accept", "text/plain"))))

    assert (reply.response.status_code, reply.from_api, reply.refused_redirect) == (200, True, None)
    assert [(name.decode(), value.decode()) for name, value in router.calls[0].request.headers.raw] == [
        ("Host", "api.test"),
        ("X-Mine", "1"),
        ("accept", "text/plain"),
        ("Accept-Encoding", accepted()),
        ("User-Agent", "xapi/0.1.0"),
        ("Authorization", "Bearer token-1"),
    ]


def test_a_header_without_a_value_removes_the_default(router: _Router) -> None:
    router.post(f"{BASE}/a").respond(200)
    removed = [(name, None) for name in ("Accept", "accept-encoding", "User-Agent", "Content-Type")]

    _sender(router).send(Call("POST", f"{BASE}/a", removed, Text(b"{}", "application/json")))

    assert dict(router.calls[0].request.headers) == {
        "host": "api.test",
        "content-length": "2",
        "authorization": "Bearer token-1",
    }


def test_a_host_header_of_the_user_replaces_the_default(router: _Router) -> None:
    router.post(f"{BASE}/a").respond(200)

    _sender(router).send(Call("POST", f"{BASE}/a", (("Host", "inner.test"),), Text(b"x", None)))

    assert [value for name, value in router.calls[0].request.headers.raw if name.lower() == b"host"] == [b"inner.test"]


def test_after_a_401_the_same_request_is_replayed_with_a_newer_token(router: _Router) -> None:
    router.put(f"{BASE}/a").mock(side_effect=[httpx.Response(401), httpx.Response(200)])
    sender = _sender(router)

    reply = sender.send(Call("PUT", f"{BASE}/a", USER_HEADERS, Text(b"body", "application/json")))

    assert reply.response.status_code == 200
    assert sender.attempts == 2
    assert router.sent == [
        ("PUT", f"{BASE}/a", "Bearer token-1", "canary-header", b"body"),
        ("PUT", f"{BASE}/a", "Bearer token-2", "canary-header", b"body"),
    ]
    first, second = (dict(call.request.headers) | {"authorization": ""} for call in router.calls)
    assert first == second


def test_a_second_401_is_final(router: _Router) -> None:
    router.get(f"{BASE}/a").respond(401)
    credentials = _Credentials()
    sender = _sender(router, credentials=credentials)

    reply = sender.send(Call("GET", f"{BASE}/a"))
    error = status_error(reply, credentials)

    assert isinstance(error, TokenRejected)
    assert str(error) == "GET https://api.test/v1/a responded with 401; check the account"
    assert (len(router.calls), sender.attempts) == (2, 2)
    assert credentials.calls == ["current", "renew", "record_rejection"]


def test_without_credentials_no_token_is_sent_and_a_401_is_final(router: _Router) -> None:
    router.get(f"{BASE}/a").respond(401)

    reply = _sender(router, credentials=None).send(Call("GET", f"{BASE}/a"))

    assert router.sent == [("GET", f"{BASE}/a", None, None, b"")]
    error = status_error(reply, None)
    assert isinstance(error, TokenRejected)
    assert "the request sets or removes the Authorization header" in str(error)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("error", [LoginRefused("no"), NetworkError("no such host"), TimeoutExpired("too slow")])
def test_a_failed_login_ends_the_call_without_a_retry(router: _Router, error: XapiError, first: bool) -> None:
    router.get(f"{BASE}/a").respond(401)
    sender = _sender(router, credentials=_Credentials(error, first=first), retries=5)

    with pytest.raises(XapiError) as caught:
        sender.send(Call("GET", f"{BASE}/a"))

    assert caught.value is error
    assert len(router.calls) == (0 if first else 1)
    assert sender.attempts == 1


# redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
def test_method_and_body_after_a_redirect_within_the_api(router: _Router, status: int, method: str) -> None:
    router.request(method, f"{BASE}/a").respond(status, headers={"Location": "/v1/b?c=d"})
    router.route(path="/v1/b").respond(200)
    becomes_get = (status == 303 and method != "HEAD") or (status in {301, 302} and method == "POST")
    body = None if method in {"GET", "HEAD"} else Text(b"body", "application/json")

    reply = _sender(router).send(Call(method, f"{BASE}/a", USER_HEADERS, body))

    assert (reply.response.status_code, reply.from_api, reply.refused_redirect) == (200, True, None)
    onward = ("GET", b"") if becomes_get else (method, b"body" if body else b"")
    assert router.sent[1] == (onward[0], f"{BASE}/b?c=d", "Bearer token-1", "canary-header", onward[1])
    assert ("content-type" in router.calls[1].request.headers) == (not becomes_get)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "target", ["https://other.test/x", "https://api.test:8443/x", "https://api.test.evil.test/x", "//other.test/x"]
)
def test_a_get_redirected_to_another_origin_has_no_token(router: _Router, status: int, target: str) -> None:
    router.get(f"{BASE}/a").respond(status, headers={"Location": target})
    router.get(path="/x").respond(200)

    reply = _sender(router).send(Call("GET", f"{BASE}/a", (("X-Mine", "canary-header"), ("Cookie", "canary"))))

    assert (reply.response.status_code, reply.from_api) == (200, False)
    assert set(router.calls[1].request.headers) == {"host", "accept", "accept-encoding", "user-agent"}


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("status", [307, 308])
def test_a_body_is_never_sent_to_another_origin(router: _Router, status: int, method: str) -> None:
    router.request(method, f"{BASE}/a").respond(status, headers={"Location": f"{OTHER}/x?signature=s3cret"})

    reply = _sender(router).send(Call(method, f"{BASE}/a", (), Text(b"canary", None)))

    assert len(router.calls) == 1
    error = status_error(reply, None)
    assert isinstance(error, RedirectError)
    assert str(error) == (
        f"{BASE}/a responded with {status}, a redirect to {OTHER}/x?signature=***: a body is not sent to another origin"
        f"; if you trust it, use --base-url {OTHER}:443"
    )


def test_a_303_after_a_post_is_followed_to_another_origin_without_the_body(router: _Router) -> None:
    router.post(f"{BASE}/a").respond(303, headers={"Location": f"{OTHER}/x"})
    router.get(f"{OTHER}/x").respond(200)

    reply = _sender(router).send(Call("POST", f"{BASE}/a", USER_HEADERS, Text(b"canary", "application/json")))

    assert (reply.response.status_code, reply.from_api) == (200, False)
    assert router.sent[1] == ("GET", f"{OTHER}/x", None, None, b"")
    assert "content-type" not in router.calls[1].request.headers


def test_token_and_headers_are_not_sent_after_a_redirect_back_to_the_api(router: _Router) -> None:
    router.get(f"{BASE}/a").respond(302, headers={"Location": f"{OTHER}/x"})
    router.get(f"{OTHER}/x").respond(302, headers={"Location": f"{BASE}/b"})
    router.get(f"{BASE}/b").respond(401)
    credentials = _Credentials()

    reply = _sender(router, credentials=credentials).send(Call("GET", f"{BASE}/a", USER_HEADERS))

    assert router.sent[1:] == [("GET", f"{OTHER}/x", None, None, b""), ("GET", f"{BASE}/b", None, None, b"")]
    assert credentials.calls == ["current"]
    for check_status in (True, False):
        error = status_error(reply, credentials, check_status=check_status)
        assert isinstance(error, ClientStatusError)
        assert "a redirect led to another origin, to which the token is not sent" in str(error)


def test_a_redirect_from_https_to_http_is_not_followed(router: _Router) -> None:
    router.get(f"{BASE}/a").respond(302, headers={"Location": "http://api.test/v1/b"})

    reply = _sender(router).send(Call("GET", f"{BASE}/a"))

    assert len(router.calls) == 1
    error = status_error(reply, None)
    assert isinstance(error, RedirectError)
    assert "from https to plain http: not followed" in str(error)


def test_more_than_ten_redirects_are_not_followed(router: _Router) -> None:
    router.get(f"{BASE}/a").mock(
        side_effect=[httpx.Response(302, headers={"Location": f"{BASE}/a"})] * 10 + [httpx.Response(200)]
    )
    assert _sender(router).send(Call("GET", f"{BASE}/a")).response.status_code == 200

    router.get(f"{BASE}/b").respond(302, headers={"Location": f"{BASE}/b"})
    reply = _sender(router).send(Call("GET", f"{BASE}/b"))
    assert len(router.calls) == 11 + 11
    assert reply.response.status_code == 302
    assert "more than ten redirects; the server redirects in a loop" in str(status_error(reply, None))


def test_with_no_follow_the_redirect_is_the_final_response(router: _Router) -> None:
    router.get(f"{BASE}/a").respond(307, headers={"Location": "/b"}, content=b"see there")

    reply = _sender(router, follow=False).send(Call("GET", f"{BASE}/a"))

    assert reply.response.read() == b"see there"
    error = status_error(reply, None)
    assert isinstance(error, RedirectError)
    assert str(error) == (
        "https://api.test/v1/a responded with 307, a redirect to https://api.test/b, not followed; "
        "omit --no-follow to follow it"
    )
    assert status_error(reply, None, check_status=False) is None


@pytest.mark.parametrize("target", ["ftp://api.test/", "file:///etc/passwd", "", "http://", "https://h:99999/", "/\\h"])
def test_a_redirect_to_an_invalid_target_is_the_final_response(router: _Router, target: str) -> None:
    router.get(f"{BASE}/a").respond(302, headers={"Location": target})

    reply = _sender(router).send(Call("GET", f"{BASE}/a"))

    assert (reply.response.status_code, len(router.calls)) == (302, 1)
    assert isinstance(status_error(reply, None), RedirectError)


@pytest.mark.parametrize("status", [300, 305, 306, 302])
def test_other_3xx_and_redirects_without_a_location_are_final(router: _Router, status: int) -> None:
    router.get(f"{BASE}/a").respond(status, headers={} if status == 302 else {"Location": "/b"})

    reply = _sender(router).send(Call("GET", f"{BASE}/a"))

    error = status_error(reply, None)
    assert isinstance(error, RedirectError)
    assert "the response has no Location that can be followed" in str(error)


# retries


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_transient_failure_is_retried_and_reported(router: _Router, status: int) -> None:
    headers = {"Retry-After": "7"}
    router.get(f"{BASE}/a").mock(
        side_effect=[httpx.Response(status, headers=headers), httpx.Response(status), httpx.Response(200)]
    )
    notes: list[str] = []
    waits: list[float] = []
    sender = _sender(router, retries=2, note=notes.append, sleep=waits.append)

    reply = sender.send(Call("GET", f"{BASE}/a?key=canary"))

    assert (reply.response.status_code, sender.attempts) == (200, 3)
    assert waits[0] == 7.0
    assert 0 <= waits[1] <= 1.0
    assert notes == [
        f"https://api.test/v1/a?key=*** responded with {status}; retrying in 7.0 s (1 of 2)",
        f"https://api.test/v1/a?key=*** responded with {status}; retrying in {waits[1]:.1f} s (2 of 2)",
    ]


def test_the_last_failure_is_the_final_response_after_all_retries(router: _Router) -> None:
    router.get(f"{BASE}/a").respond(503)
    sender = _sender(router, retries=2)

    reply = sender.send(Call("GET", f"{BASE}/a"))

    assert (reply.response.status_code, sender.attempts, len(router.calls)) == (503, 3, 3)


@pytest.mark.parametrize("method", ["POST", "PATCH", "REPORT"])
def test_a_method_that_is_not_idempotent_is_not_retried(router: _Router, method: str) -> None:
    router.request(method, f"{BASE}/a").respond(503)

    assert _sender(router, retries=3).send(Call(method, f"{BASE}/a")).response.status_code == 503
    assert len(router.calls) == 1


@pytest.mark.parametrize("status", [200, 400, 403, 404, 408, 500, 501, 505])
def test_other_statuses_are_not_retried(router: _Router, status: int) -> None:
    router.get(f"{BASE}/a").respond(status)

    assert _sender(router, retries=3).send(Call("GET", f"{BASE}/a")).response.status_code == status
    assert len(router.calls) == 1


def test_a_failed_connection_is_retried(router: _Router) -> None:
    router.get(f"{BASE}/a").mock(side_effect=[NetworkError("refused"), NetworkError("reset"), httpx.Response(200)])

    assert _sender(router, retries=5).send(Call("GET", f"{BASE}/a")).response.status_code == 200


@pytest.mark.parametrize("error", [NetworkError("truncated", headers_received=True), TimeoutExpired("too slow")])
def test_a_timeout_and_a_truncated_response_are_not_retried(router: _Router, error: XapiError) -> None:
    router.get(f"{BASE}/a").mock(side_effect=error)

    with pytest.raises(XapiError) as caught:
        _sender(router, retries=5).send(Call("GET", f"{BASE}/a"))

    assert caught.value is error
    assert len(router.calls) == 1


def test_a_retry_after_of_more_than_300_seconds_ends_the_retries(router: _Router) -> None:
    router.get(f"{BASE}/a").respond(503, headers={"Retry-After": "301"})

    assert _sender(router, retries=5).send(Call("GET", f"{BASE}/a")).response.status_code == 503
    assert len(router.calls) == 1


def test_a_delay_beyond_the_deadline_ends_the_retries(router: _Router) -> None:
    import time

    router.get(f"{BASE}/a").respond(503, headers={"Retry-After": "60"})

    reply = _sender(router, retries=5, deadline=time.monotonic() + 30).send(Call("GET", f"{BASE}/a"))

    assert (reply.response.status_code, len(router.calls)) == (503, 1)


def test_the_number_of_attempts_includes_retries_and_the_replay(router: _Router) -> None:
    statuses = [503, 401, 503, 302, 503, 200]
    router.get(f"{BASE}/a").mock(
        side_effect=[httpx.Response(status, headers={"Location": f"{BASE}/a"}) for status in statuses]
    )
    sender = _sender(router, retries=3)

    assert sender.send(Call("GET", f"{BASE}/a")).response.status_code == 200
    assert sender.attempts == 1 + 3 + 1
    tokens = [token for _, _, token, _, _ in router.sent]
    assert tokens == ["Bearer token-1"] * 2 + ["Bearer token-2"] * 4


def test_redirects_do_not_reset_the_number_of_retries(router: _Router) -> None:
    router.get(f"{BASE}/a").mock(side_effect=[httpx.Response(503), httpx.Response(302, headers={"Location": "/v1/b"})])
    router.get(f"{BASE}/b").respond(503)

    assert _sender(router, retries=2).send(Call("GET", f"{BASE}/a")).response.status_code == 503
    assert len(router.calls) == 4


# errors for statuses


@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        (400, ClientStatusError, "GET https://api.test/v1/a responded with 400"),
        (403, ClientStatusError, "responded with 403; the API serves only users with master rights"),
        (404, ClientStatusError, "responded with 404; check the path and the base URL"),
        (429, ClientStatusError, "responded with 429; too many requests: wait, or use --retry"),
        (500, ServerStatusError, "responded with 500; server error; try again later"),
        (599, ServerStatusError, "responded with 599; server error; try again later"),
    ],
)
def test_the_error_of_a_status(router: _Router, status: int, kind: type[XapiError], text: str) -> None:
    router.get(f"{BASE}/a").respond(status)
    reply = _sender(router).send(Call("GET", f"{BASE}/a?secret=canary"))

    error = status_error(reply, None)

    assert type(error) is kind
    assert str(error).endswith(text)
    assert "canary" not in str(error)
    assert status_error(reply, None, check_status=False) is None


@pytest.mark.parametrize("status", [200, 201, 204, 299, 304])
def test_success_and_304_are_not_errors(router: _Router, status: int) -> None:
    router.get(f"{BASE}/a").respond(status)

    assert status_error(_sender(router).send(Call("GET", f"{BASE}/a")), None) is None


def test_the_reason_phrase_is_escaped_and_shortened(router: _Router) -> None:
    reason = b"\x1b[31mno way " + b"x" * 200
    router.get(f"{BASE}/a").mock(return_value=httpx.Response(400, extensions={"reason_phrase": reason}))

    error = status_error(_sender(router).send(Call("GET", f"{BASE}/a")), None)

    assert str(error) == "GET https://api.test/v1/a responded with 400 \\x1b[31mno way"

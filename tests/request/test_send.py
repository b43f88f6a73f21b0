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
from xapi_cli.request.body.spool import Text
from xapi_cli.request.calls import Call
from xapi_cli.request.send import Exchange, failure
from xapi_cli.tokens import Token

BASE = "https://api.test/v1"
OTHER = "https://other.test"
USER_HEADERS = (("X-Mine", "canary-header"), ("Content-Type", "text/csv"))


class _Credentials:
    """Gives `token-1`, after a 401 `token-2`, or raises *trouble* in place of either."""

    login_reason = None

    def __init__(self, trouble: XapiError | None = None, *, first: bool = False) -> None:
        self.calls: list[str] = []
        self._trouble, self._first = trouble, first

    def replace(self, rejected: Token) -> Token | None:
        return self.renew(rejected)

    def newer(self, than: Token) -> Token | None:
        return None

    def is_fresh(self, token: Token) -> bool:
        return False

    def check(self) -> None:
        """Have a token, or a way to get one."""

    def current(self) -> Token:
        self.calls.append("current")
        if self._trouble and self._first:
            raise self._trouble
        return Token("token-1" if "renew" not in self.calls else "token-2")

    def renew(self, rejected: Token) -> Token | None:
        self.calls.append("renew")
        if self._trouble:
            raise self._trouble
        return Token("token-2") if self.calls.count("renew") == 1 else None

    def refused(self) -> None:
        self.calls.append("refused")

    def advice(self) -> str:
        return "ask somebody"


Sent = tuple[str, str, str | None, str | None, bytes]


class _Router(respx.Router):
    """Keeps method, URL, token, the user's header and body of all that was sent, as it was at that moment."""

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


def _exchange(router: _Router, **more: Any) -> Exchange:
    client = httpx.Client(transport=httpx.MockTransport(router.handler), follow_redirects=False)
    wishes: dict[str, Any] = {"credentials": _Credentials(), "sleep": _no_wait} | more
    return Exchange(client, BASE, **wishes)


def test_a_plain_call_sends_the_token_the_defaults_and_what_the_user_gave(router: _Router) -> None:
    router.get(f"{BASE}/a").respond(200)

    answer = _exchange(router).send(Call("GET", f"{BASE}/a", (("X-Mine", "1"), ("accept", "text/plain"))))

    assert (answer.status, answer.from_api, answer.refusal) == (200, True, None)
    assert [(name.decode(), value.decode()) for name, value in router.calls[0].request.headers.raw] == [
        ("Host", "api.test"),
        ("X-Mine", "1"),
        ("accept", "text/plain"),
        ("Accept-Encoding", "gzip, deflate"),
        ("User-Agent", "xapi/0.1.0"),
        ("Authorization", "Bearer token-1"),
    ]


def test_a_header_without_a_value_removes_a_default_one(router: _Router) -> None:
    router.post(f"{BASE}/a").respond(200)
    removed = [(name, None) for name in ("Accept", "accept-encoding", "User-Agent", "Content-Type")]

    _exchange(router).send(Call("POST", f"{BASE}/a", removed, Text(b"{}", "application/json")))

    assert dict(router.calls[0].request.headers) == {
        "host": "api.test",
        "content-length": "2",
        "authorization": "Bearer token-1",
    }


def test_a_host_of_the_users_own_takes_the_place_of_the_real_one(router: _Router) -> None:
    router.post(f"{BASE}/a").respond(200)

    _exchange(router).send(Call("POST", f"{BASE}/a", (("Host", "inner.test"),), Text(b"x", None)))

    assert [value for name, value in router.calls[0].request.headers.raw if name.lower() == b"host"] == [b"inner.test"]


def test_after_a_401_the_same_request_is_sent_once_more_with_a_newer_token(router: _Router) -> None:
    router.put(f"{BASE}/a").mock(side_effect=[httpx.Response(401), httpx.Response(200)])
    exchange = _exchange(router)

    answer = exchange.send(Call("PUT", f"{BASE}/a", USER_HEADERS, Text(b"body", "application/json")))

    assert answer.status == 200
    assert exchange.attempts == 2
    assert router.sent == [
        ("PUT", f"{BASE}/a", "Bearer token-1", "canary-header", b"body"),
        ("PUT", f"{BASE}/a", "Bearer token-2", "canary-header", b"body"),
    ]
    first, second = (dict(call.request.headers) | {"authorization": ""} for call in router.calls)
    assert first == second


def test_a_second_401_is_the_last_word(router: _Router) -> None:
    router.get(f"{BASE}/a").respond(401)
    credentials = _Credentials()
    exchange = _exchange(router, credentials=credentials)

    answer = exchange.send(Call("GET", f"{BASE}/a"))
    error = failure(answer, credentials)

    assert isinstance(error, TokenRejected)
    assert str(error) == "GET https://api.test/v1/a answered 401; ask somebody"
    assert (len(router.calls), exchange.attempts) == (2, 2)
    assert credentials.calls == ["current", "renew", "refused"]


def test_without_credentials_no_token_is_sent_and_a_401_stands(router: _Router) -> None:
    router.get(f"{BASE}/a").respond(401)

    answer = _exchange(router, credentials=None).send(Call("GET", f"{BASE}/a"))

    assert router.sent == [("GET", f"{BASE}/a", None, None, b"")]
    error = failure(answer, None)
    assert isinstance(error, TokenRejected)
    assert "the Authorization header was given or removed by hand" in str(error)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("trouble", [LoginRefused("no"), NetworkError("no such host"), TimeoutExpired("too slow")])
def test_a_login_that_fails_ends_the_call_and_is_not_tried_again(
    router: _Router, trouble: XapiError, first: bool
) -> None:
    router.get(f"{BASE}/a").respond(401)
    exchange = _exchange(router, credentials=_Credentials(trouble, first=first), retries=5)

    with pytest.raises(XapiError) as caught:
        exchange.send(Call("GET", f"{BASE}/a"))

    assert caught.value is trouble
    assert len(router.calls) == (0 if first else 1)
    assert exchange.attempts == 1


# redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
def test_method_and_body_after_a_redirect_within_the_api(router: _Router, status: int, method: str) -> None:
    router.request(method, f"{BASE}/a").respond(status, headers={"Location": "/v1/b?c=d"})
    router.route(path="/v1/b").respond(200)
    becomes_get = (status == 303 and method != "HEAD") or (status in {301, 302} and method == "POST")
    body = None if method in {"GET", "HEAD"} else Text(b"body", "application/json")

    answer = _exchange(router).send(Call(method, f"{BASE}/a", USER_HEADERS, body))

    assert (answer.status, answer.from_api, answer.refusal) == (200, True, None)
    onward = ("GET", b"") if becomes_get else (method, b"body" if body else b"")
    assert router.sent[1] == (onward[0], f"{BASE}/b?c=d", "Bearer token-1", "canary-header", onward[1])
    assert ("content-type" in router.calls[1].request.headers) == (not becomes_get)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "target", ["https://other.test/x", "https://api.test:8443/x", "https://api.test.evil.test/x", "//other.test/x"]
)
def test_a_get_to_another_origin_goes_bare(router: _Router, status: int, target: str) -> None:
    router.get(f"{BASE}/a").respond(status, headers={"Location": target})
    router.get(path="/x").respond(200)

    answer = _exchange(router).send(Call("GET", f"{BASE}/a", (("X-Mine", "canary-header"), ("Cookie", "canary"))))

    assert (answer.status, answer.from_api) == (200, False)
    assert set(router.calls[1].request.headers) == {"host", "accept", "accept-encoding", "user-agent"}


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("status", [307, 308])
def test_a_body_never_goes_to_another_origin(router: _Router, status: int, method: str) -> None:
    router.request(method, f"{BASE}/a").respond(status, headers={"Location": f"{OTHER}/x?signature=s3cret"})

    answer = _exchange(router).send(Call(method, f"{BASE}/a", (), Text(b"canary", None)))

    assert len(router.calls) == 1
    error = failure(answer, None)
    assert isinstance(error, RedirectError)
    assert str(error) == (
        f"{BASE}/a answered {status}, a redirect to {OTHER}/x?signature=***: a body is not sent to another origin; "
        f"if you trust it, use --base-url {OTHER}:443"
    )


def test_a_303_after_a_post_leads_to_another_origin_without_the_body(router: _Router) -> None:
    router.post(f"{BASE}/a").respond(303, headers={"Location": f"{OTHER}/x"})
    router.get(f"{OTHER}/x").respond(200)

    answer = _exchange(router).send(Call("POST", f"{BASE}/a", USER_HEADERS, Text(b"canary", "application/json")))

    assert (answer.status, answer.from_api) == (200, False)
    assert router.sent[1] == ("GET", f"{OTHER}/x", None, None, b"")
    assert "content-type" not in router.calls[1].request.headers


def test_what_the_chain_has_left_behind_does_not_come_back(router: _Router) -> None:
    router.get(f"{BASE}/a").respond(302, headers={"Location": f"{OTHER}/x"})
    router.get(f"{OTHER}/x").respond(302, headers={"Location": f"{BASE}/b"})
    router.get(f"{BASE}/b").respond(401)
    credentials = _Credentials()

    answer = _exchange(router, credentials=credentials).send(Call("GET", f"{BASE}/a", USER_HEADERS))

    assert router.sent[1:] == [("GET", f"{OTHER}/x", None, None, b""), ("GET", f"{BASE}/b", None, None, b"")]
    assert credentials.calls == ["current"]
    for check_status in (True, False):
        error = failure(answer, credentials, check_status=check_status)
        assert isinstance(error, ClientStatusError)
        assert "a redirect led away from the API, where the token is not sent" in str(error)


def test_nothing_goes_from_https_to_http(router: _Router) -> None:
    router.get(f"{BASE}/a").respond(302, headers={"Location": "http://api.test/v1/b"})

    answer = _exchange(router).send(Call("GET", f"{BASE}/a"))

    assert len(router.calls) == 1
    error = failure(answer, None)
    assert isinstance(error, RedirectError)
    assert "from https to plain http: not followed" in str(error)


def test_ten_redirects_are_followed_and_the_eleventh_is_not(router: _Router) -> None:
    router.get(f"{BASE}/a").mock(
        side_effect=[httpx.Response(302, headers={"Location": f"{BASE}/a"})] * 10 + [httpx.Response(200)]
    )
    assert _exchange(router).send(Call("GET", f"{BASE}/a")).status == 200

    router.get(f"{BASE}/b").respond(302, headers={"Location": f"{BASE}/b"})
    answer = _exchange(router).send(Call("GET", f"{BASE}/b"))
    assert len(router.calls) == 11 + 11
    assert answer.status == 302
    assert "the eleventh in a row; the server redirects in a loop" in str(failure(answer, None))


def test_a_redirect_that_is_not_to_be_followed_is_the_answer(router: _Router) -> None:
    router.get(f"{BASE}/a").respond(307, headers={"Location": "/b"}, content=b"see there")

    answer = _exchange(router, follow=False).send(Call("GET", f"{BASE}/a"))

    assert answer.response.read() == b"see there"
    error = failure(answer, None)
    assert isinstance(error, RedirectError)
    assert str(error) == (
        "https://api.test/v1/a answered 307, a redirect to https://api.test/b, not followed; "
        "leave --no-follow out to follow it"
    )
    assert failure(answer, None, check_status=False) is None


@pytest.mark.parametrize("target", ["ftp://api.test/", "file:///etc/passwd", "", "http://", "https://h:99999/", "/\\h"])
def test_a_target_that_is_none_leaves_the_redirect_as_the_answer(router: _Router, target: str) -> None:
    router.get(f"{BASE}/a").respond(302, headers={"Location": target})

    answer = _exchange(router).send(Call("GET", f"{BASE}/a"))

    assert (answer.status, len(router.calls)) == (302, 1)
    assert isinstance(failure(answer, None), RedirectError)


@pytest.mark.parametrize("status", [300, 305, 306, 302])
def test_other_3xx_and_those_without_a_target_are_answers(router: _Router, status: int) -> None:
    router.get(f"{BASE}/a").respond(status, headers={} if status == 302 else {"Location": "/b"})

    answer = _exchange(router).send(Call("GET", f"{BASE}/a"))

    error = failure(answer, None)
    assert isinstance(error, RedirectError)
    assert "a redirect without a target that can be followed" in str(error)


# retries


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_passing_failure_is_tried_again_and_told(router: _Router, status: int) -> None:
    asked = {"Retry-After": "7"}
    router.get(f"{BASE}/a").mock(
        side_effect=[httpx.Response(status, headers=asked), httpx.Response(status), httpx.Response(200)]
    )
    notes: list[str] = []
    waits: list[float] = []
    exchange = _exchange(router, retries=2, note=notes.append, sleep=waits.append)

    answer = exchange.send(Call("GET", f"{BASE}/a?key=canary"))

    assert (answer.status, exchange.attempts) == (200, 3)
    assert waits[0] == 7.0
    assert 0 <= waits[1] <= 1.0
    assert notes == [
        f"https://api.test/v1/a?key=*** answered {status}; trying again in 7.0 s (1 of 2)",
        f"https://api.test/v1/a?key=*** answered {status}; trying again in {waits[1]:.1f} s (2 of 2)",
    ]


def test_the_last_failure_is_the_answer_when_the_tries_are_used_up(router: _Router) -> None:
    router.get(f"{BASE}/a").respond(503)
    exchange = _exchange(router, retries=2)

    answer = exchange.send(Call("GET", f"{BASE}/a"))

    assert (answer.status, exchange.attempts, len(router.calls)) == (503, 3, 3)


@pytest.mark.parametrize("method", ["POST", "PATCH", "REPORT"])
def test_what_is_not_idempotent_is_never_tried_again(router: _Router, method: str) -> None:
    router.request(method, f"{BASE}/a").respond(503)

    assert _exchange(router, retries=3).send(Call(method, f"{BASE}/a")).status == 503
    assert len(router.calls) == 1


@pytest.mark.parametrize("status", [200, 400, 403, 404, 408, 500, 501, 505])
def test_other_answers_are_not_tried_again(router: _Router, status: int) -> None:
    router.get(f"{BASE}/a").respond(status)

    assert _exchange(router, retries=3).send(Call("GET", f"{BASE}/a")).status == status
    assert len(router.calls) == 1


def test_a_connection_that_failed_is_tried_again(router: _Router) -> None:
    router.get(f"{BASE}/a").mock(side_effect=[NetworkError("refused"), NetworkError("reset"), httpx.Response(200)])

    assert _exchange(router, retries=5).send(Call("GET", f"{BASE}/a")).status == 200


@pytest.mark.parametrize("error", [NetworkError("cut off", answered=True), TimeoutExpired("too slow")])
def test_a_timeout_and_a_broken_answer_are_not_tried_again(router: _Router, error: XapiError) -> None:
    router.get(f"{BASE}/a").mock(side_effect=error)

    with pytest.raises(XapiError) as caught:
        _exchange(router, retries=5).send(Call("GET", f"{BASE}/a"))

    assert caught.value is error
    assert len(router.calls) == 1


def test_a_retry_after_beyond_300_seconds_ends_the_tries_at_once(router: _Router) -> None:
    router.get(f"{BASE}/a").respond(503, headers={"Retry-After": "301"})

    assert _exchange(router, retries=5).send(Call("GET", f"{BASE}/a")).status == 503
    assert len(router.calls) == 1


def test_a_wait_beyond_the_deadline_ends_the_tries_at_once(router: _Router) -> None:
    import time

    router.get(f"{BASE}/a").respond(503, headers={"Retry-After": "60"})

    answer = _exchange(router, retries=5, deadline=time.monotonic() + 30).send(Call("GET", f"{BASE}/a"))

    assert (answer.status, len(router.calls)) == (503, 1)


def test_retries_and_the_replay_share_one_call_and_add_up(router: _Router) -> None:
    statuses = [503, 401, 503, 302, 503, 200]
    router.get(f"{BASE}/a").mock(
        side_effect=[httpx.Response(status, headers={"Location": f"{BASE}/a"}) for status in statuses]
    )
    exchange = _exchange(router, retries=3)

    assert exchange.send(Call("GET", f"{BASE}/a")).status == 200
    assert exchange.attempts == 1 + 3 + 1
    tokens = [token for _, _, token, _, _ in router.sent]
    assert tokens == ["Bearer token-1"] * 2 + ["Bearer token-2"] * 4


def test_redirects_do_not_renew_the_number_of_tries(router: _Router) -> None:
    router.get(f"{BASE}/a").mock(side_effect=[httpx.Response(503), httpx.Response(302, headers={"Location": "/v1/b"})])
    router.get(f"{BASE}/b").respond(503)

    assert _exchange(router, retries=2).send(Call("GET", f"{BASE}/a")).status == 503
    assert len(router.calls) == 4


# what a status means


@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        (400, ClientStatusError, "GET https://api.test/v1/a answered 400"),
        (403, ClientStatusError, "answered 403; the API serves only users with master rights"),
        (404, ClientStatusError, "answered 404; check the path and the base URL"),
        (429, ClientStatusError, "answered 429; too many requests: wait, or use --retry"),
        (500, ServerStatusError, "answered 500; the service is in trouble; try again later"),
        (599, ServerStatusError, "answered 599; the service is in trouble; try again later"),
    ],
)
def test_the_error_of_a_status(router: _Router, status: int, kind: type[XapiError], text: str) -> None:
    router.get(f"{BASE}/a").respond(status)
    answer = _exchange(router).send(Call("GET", f"{BASE}/a?secret=canary"))

    error = failure(answer, None)

    assert type(error) is kind
    assert str(error).endswith(text)
    assert "canary" not in str(error)
    assert failure(answer, None, check_status=False) is None


@pytest.mark.parametrize("status", [200, 201, 204, 299, 304])
def test_success_and_304_are_no_errors(router: _Router, status: int) -> None:
    router.get(f"{BASE}/a").respond(status)

    assert failure(_exchange(router).send(Call("GET", f"{BASE}/a")), None) is None


def test_the_reason_of_a_server_is_shown_inert_and_short(router: _Router) -> None:
    reason = b"\x1b[31mno way " + b"x" * 200
    router.get(f"{BASE}/a").mock(return_value=httpx.Response(400, extensions={"reason_phrase": reason}))

    error = failure(_exchange(router).send(Call("GET", f"{BASE}/a")), None)

    assert str(error) == "GET https://api.test/v1/a answered 400 \\x1b[31mno way"

"""The password grant over a faked network: what is sent, and what each response means."""

import json
import re
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from itertools import count
from urllib.parse import quote

import httpx
import pytest
import respx
from hypothesis import given
from hypothesis import strategies as st

from tests.support.servers import Server, request, send
from xapi_cli.auth.grant import form, parse, request_token, token_url
from xapi_cli.errors import (
    ClientStatusError,
    GrantRefused,
    InvalidTokenResponse,
    LoginRefused,
    RedirectError,
    ServerStatusError,
    XapiError,
)
from xapi_cli.hints import Run
from xapi_cli.http.httpx_transport import HttpxTransport
from xapi_cli.http.messages import USER_AGENT
from xapi_cli.http.transport import open_transport
from xapi_cli.tokens import Identity, Token

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
ME = Identity("https://api.test/v1", "me@example.com")
URL = "https://api.test/v1/x-api/token"
PASSWORD = "CANARY pass"


def granted(*responses: httpx.Response, identity: Identity = ME) -> Token:
    """Request a token; the token endpoint sends *responses*, and any other request fails."""
    router = respx.Router()
    router.post(token_url(identity.base_url)).mock(side_effect=list(responses))
    times = (NOW + timedelta(minutes=number) for number in count())
    return request_token(
        httpx.MockTransport(router.handler),
        identity,
        PASSWORD,
        timeout=5,
        now=lambda: next(times),
        origin="the password in XAPI_PASSWORD",
    )


def refusal(response: httpx.Response) -> XapiError:
    with pytest.raises(XapiError) as caught:
        granted(response)
    assert PASSWORD not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("username", "password", "body"),
    [
        ("me@example.com", "secret", b"username=me%40example.com&password=secret"),
        ("a b@x.y", "p q", b"username=a%20b%40x.y&password=p%20q"),
        ("a+b@x.y", "1+1=2&3", b"username=a%2Bb%40x.y&password=1%2B1%3D2%263"),
        ("ü@x.y", "grün\u20ac", b"username=%C3%BC%40x.y&password=gr%C3%BCn%E2%82%AC"),
        ("a/b@x.y", "100%/?#", b"username=a%2Fb%40x.y&password=100%25%2F%3F%23"),
        ("a@x.y", "~_-.", b"username=a%40x.y&password=~_-."),
        ("a@x.y", "\U0001f511", b"username=a%40x.y&password=%F0%9F%94%91"),
        ("a@x.y", "\udcff", b"username=a%40x.y&password=%FF"),  # a byte that is not valid UTF-8 is preserved
        ("a@x.y", "tab\tend ", b"username=a%40x.y&password=tab%09end%20"),
    ],
)
def test_the_form_is_percent_encoded_to_the_byte(username: str, password: str, body: bytes) -> None:
    assert form(username, password) == b"grant_type=password&" + body


def test_the_request_is_a_bare_form_without_any_credentials() -> None:
    router = respx.Router()
    route = router.post(URL).respond(200, json={"access_token": "t"})
    request_token(httpx.MockTransport(router.handler), ME, PASSWORD, timeout=5, now=lambda: NOW)

    (call,) = route.calls
    assert call.request.content == b"grant_type=password&username=me%40example.com&password=CANARY%20pass"
    headers = {name: value for name, value in call.request.headers.items() if name in _WANTED or "auth" in name}
    assert headers == _WANTED


_WANTED = {
    "content-type": "application/x-www-form-urlencoded",
    "accept": "application/json",
    "accept-encoding": "identity",
    "content-length": "68",
}


def test_the_time_limit_of_a_login_is_in_its_request() -> None:
    def deadline(limit: float, whole: float | None) -> tuple[float, str]:
        router = respx.Router()
        route = router.post(URL).respond(200, json={"access_token": "t"})
        request_token(httpx.MockTransport(router.handler), ME, PASSWORD, timeout=limit, now=lambda: NOW, deadline=whole)
        sent = route.calls.last.request.extensions
        assert set(sent["timeout"].values()) == {None}  # httpx has a default
        return round(sent["deadline"] - time.monotonic(), -1), sent.get("deadline_name", "--max-time")

    assert deadline(30, None) == (30, "--timeout")
    assert deadline(30, time.monotonic() + 10) == (10, "--max-time")
    assert deadline(30, time.monotonic() + 100) == (30, "--timeout")


TOKENS = {
    "as documented": ({"access_token": "abc", "token_type": "bearer", "expires_in": 2592000}, 2592000.0),
    "capital Bearer": ({"access_token": "abc", "token_type": "BEARER", "expires_in": 60}, 60.0),
    "token_type null": ({"access_token": "abc", "token_type": None, "expires_in": 60}, 60.0),
    "token_type absent": ({"access_token": "abc", "expires_in": 60}, 60.0),
    "a fraction": ({"access_token": "abc", "expires_in": 0.5}, 0.5),
    "a string": ({"access_token": "abc", "expires_in": "3600"}, 3600.0),
    "a string with an exponent": ({"access_token": "abc", "expires_in": "3.6e+3"}, 3600.0),
    "ten years": ({"access_token": "abc", "expires_in": 315360000}, 315360000.0),
    "over ten years": ({"access_token": "abc", "expires_in": 315360001}, None),
    "absent": ({"access_token": "abc"}, None),
    "null": ({"access_token": "abc", "expires_in": None}, None),
    "zero": ({"access_token": "abc", "expires_in": 0}, None),
    "negative": ({"access_token": "abc", "expires_in": -1}, None),
    "true": ({"access_token": "abc", "expires_in": True}, None),
    "a list": ({"access_token": "abc", "expires_in": [60]}, None),
    "args": ({"access_token": "abc", "expires_in": "an hour"}, None),
    "not a number": ({"access_token": "abc", "expires_in": "nan"}, None),
    "more members": ({"access_token": "abc", "refresh_token": "x", "scope": [], "expires_in": 1}, 1.0),
}


@pytest.mark.parametrize("response, expires_in", TOKENS.values(), ids=TOKENS)
def test_a_usable_response_becomes_a_token(response: dict[str, object], expires_in: float | None) -> None:
    expires_at = None if expires_in is None else NOW + timedelta(seconds=expires_in)

    token = granted(httpx.Response(200, json=response))

    assert (token, token.access_token) == (Token("abc", "bearer", NOW, expires_at), "abc")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 400, "9" * 6000, "1e-400"])
def test_an_expiry_beyond_the_range_of_dates_is_unknown(number: str) -> None:
    body = f'{{"access_token": "abc", "expires_in": {number}}}'.encode()

    assert granted(httpx.Response(200, content=body)) == Token("abc", "bearer", NOW, None)


def test_the_request_is_the_same_to_the_byte_and_httpx_logs_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    refusal = b"HTTP/1.1 400 " + PASSWORD.encode() + b"\r\nContent-Length: 0\r\nSet-Cookie: a=b\r\n\r\n"
    transport = HttpxTransport(open_transport(ca_bundle=None, environ={}))
    with (
        caplog.at_level("DEBUG"),
        Server([request(), send(refusal)]) as server,
        closing(transport),
        pytest.raises(LoginRefused),
    ):
        request_token(transport, Identity(server.url, "me@example.com"), PASSWORD, timeout=5, now=lambda: NOW)

    assert server.received[0].decode() == (
        f"POST /x-api/token HTTP/1.1\r\nHost: {server.name}\r\nAccept: application/json\r\n"
        f"Accept-Encoding: identity\r\nUser-Agent: {USER_AGENT}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 68\r\n\r\n"
        "grant_type=password&username=me%40example.com&password=CANARY%20pass"
    )
    assert "/x-api/token" in caplog.text
    assert "CANARY" not in caplog.text


@pytest.mark.parametrize("status", [200, 201, 203, 206])
def test_any_2xx_is_success(status: int) -> None:
    assert granted(httpx.Response(status, json={"access_token": "abc"})).access_token == "abc"


def test_a_long_token_after_a_byte_order_mark_is_complete() -> None:
    body = b"\xef\xbb\xbf" + json.dumps({"access_token": "x" * 65536}).encode()

    assert granted(httpx.Response(200, content=body)).access_token == "x" * 65536


NO_TOKENS = {
    "empty": b"",
    "a page": b"<html>CANARY</html>",
    "not UTF-8": b'{"access_token": "CANARY\xff"}',
    "truncated": b'{"access_token": "CANARY',
    "null": b"null",
    "a list": b'["CANARY"]',
    "a string": b'"CANARY"',
    "a number": b"1",
    "an empty object": b"{}",
    "token null": b'{"access_token": null}',
    "token empty": b'{"access_token": ""}',
    "a token that is a number": b'{"access_token": 1}',
    "token a list": b'{"access_token": ["CANARY"]}',
    "token with a newline": b'{"access_token": "CANARY\\n"}',
    "token with CR LF": b'{"access_token": "CANARY\\r\\nX: y"}',
    "token with a blank": b'{"access_token": "CAN ARY"}',
    "token with a leading blank": b'{"access_token": " CANARY"}',
    "token with NUL": b'{"access_token": "CANARY\\u0000"}',
    "token with DEL": b'{"access_token": "CANARY\\u007f"}',
    "token with an umlaut": '{"access_token": "CANARYü"}'.encode(),
    "a token with an unpaired surrogate": b'{"access_token": "CANARY\\ud800"}',
    "token_type mac": b'{"access_token": "CANARY", "token_type": "mac"}',
    "token_type a number": b'{"access_token": "CANARY", "token_type": 1}',
    "token_type empty": b'{"access_token": "CANARY", "token_type": ""}',
    "token_type with a blank": b'{"access_token": "CANARY", "token_type": "bearer "}',
    "nested deeply": b"[" * 100_000,
    "too large": b'{"access_token": "CANARY", "x": "' + b"x" * 1024 * 1024 + b'"}',
    "UTF-16 without a mark": '{"access_token": "CANARY"'.encode("utf-16-be"),
}


@pytest.mark.parametrize("body", NO_TOKENS.values(), ids=NO_TOKENS)
def test_an_invalid_token_response_is_rejected_and_not_quoted(body: bytes) -> None:
    error = refusal(httpx.Response(200, content=body))

    assert (type(error), error.exit_code) == (InvalidTokenResponse, 11)
    assert error.context == {"status": 200, "method": "POST", "url": URL}
    assert str(error).startswith(f"invalid token response from {URL}: ")
    assert "CANARY" not in str(error)
    assert "CAN ARY" not in str(error)


def test_a_response_of_exactly_one_mebibyte_is_read() -> None:
    start = b'{"access_token": "abc", "x": "'
    body = start + b"x" * (1024 * 1024 - len(start) - 2) + b'"}'
    assert len(body) == 1024 * 1024

    assert granted(httpx.Response(200, content=body)).access_token == "abc"


STATUSES = {
    **dict.fromkeys((300, 301, 302, 303, 304, 307, 308), (RedirectError, 3)),
    **dict.fromkeys((400, 401, 403, 422), (LoginRefused, 10)),
    **dict.fromkeys((402, 404, 405, 407, 408, 409, 413, 415, 418, 429, 451, 499), (ClientStatusError, 4)),
    **dict.fromkeys((500, 501, 502, 503, 504, 599, 600, 999), (ServerStatusError, 5)),
}


@pytest.mark.parametrize("status, outcome", STATUSES.items())
def test_each_status_has_its_error(status: int, outcome: tuple[type[XapiError], int]) -> None:
    headers = {"Location": "https://evil.test/", "Retry-After": "7"}
    error = refusal(httpx.Response(status, json={"access_token": "abc"}, headers=headers))

    assert (type(error), error.exit_code) == outcome
    assert error.context == {"status": status, "method": "POST", "url": URL, "retry_after": 7}


HTML = {"Content-Type": "text/html; charset=utf-8"}
LOGIN = "login as me@example.com at https://api.test/v1"
CHECK_URL = "check the base URL, which is the part before /x-api/token"
OTHER = "check the base URL, or ask the operators of the API: the password is not the reason"
NO_CODE = "check the base URL, the password in XAPI_PASSWORD, and the username"
CODE = "check the password in XAPI_PASSWORD, and the username"
OF_ANOTHER = f"{LOGIN} was rejected (401 from {URL}"


def oauth(code: object, description: object = None) -> bytes:
    return json.dumps({"error": code, "error_description": description}).encode()


# Why a login was refused: status, headers, body, the class of the error, its message and its hint.
Headers = dict[str, str]
REFUSALS: dict[str, tuple[int, Headers, bytes, type[XapiError], str, str]] = {
    "invalid_grant": (400, {}, oauth("invalid_grant"), LoginRefused, f"{LOGIN} was rejected (400 invalid_grant)", CODE),
    "its description": (
        *(400, {}, oauth("invalid_grant", f"{PASSWORD} is wrong"), LoginRefused),
        *(f"{LOGIN} was rejected (400 invalid_grant)", CODE),
    ),
    "a long description": (
        *(400, {}, oauth("invalid_scope", " \x1b[2J" + "x" * 999), GrantRefused),
        *(f"the token endpoint refused the {LOGIN} (400 invalid_scope: \\x1b[2J{'x' * 193}…)", OTHER),
    ),
    "a description with the encoded password": (
        *(400, {}, oauth("invalid_client", "CANARY%20pass is wrong"), GrantRefused),
        *(f"the token endpoint refused the {LOGIN} (400 invalid_client)", OTHER),
    ),
    **{
        code: (
            *(status, Headers(), oauth(code, "it says why"), GrantRefused),
            *(f"the token endpoint refused the {LOGIN} ({status} {code}: it says why)", OTHER),
        )
        for status, code in [
            (401, "invalid_client"),
            (400, "server_error"),
            (403, "temporarily_unavailable"),
            (400, "invalid_request"),
            (403, "unauthorized_client"),
            (400, "unsupported_grant_type"),
        ]
    },
    "another code": (422, {}, oauth("locked"), LoginRefused, f"{LOGIN} was rejected (422 locked)", NO_CODE),
    "rights": (
        *(403, {}, oauth("denied", "no"), LoginRefused, f"{LOGIN} was rejected (403 denied: no)"),
        f"{NO_CODE}; the API serves only users with master rights",
    ),
    **{
        f"no code {number}": (401, Headers(), body, LoginRefused, f"{OF_ANOTHER}, {doubt})", NO_CODE)
        for number, (body, doubt) in enumerate(
            [
                (b"", "without an error code"),
                (b"[1]", "without an error code"),
                (oauth(1), "without an error code"),
                (oauth("\x1b]0;x"), "without an error code"),
                (b"\x1b[2J", "which did not respond with JSON"),
                (b"[" * 100_000, "which did not respond with JSON"),
                (b"\xff" * 2**21, "without an error code"),
            ]
        )
    },
    "a page with 401": (
        *(401, HTML, b"<h1>Unauthorized</h1>", LoginRefused, f"{OF_ANOTHER}, which did not respond with JSON)"),
        NO_CODE,
    ),
    **{
        f"a page with {status}": (
            *(status, HTML, b"<h1>No</h1>", GrantRefused, f"{URL} responded with {status} and a web page"),
            f"{CHECK_URL}, and then the password in XAPI_PASSWORD",
        )
        for status in (400, 403, 422)
    },
    "nginx": (
        *(400, HTML, b"<center>No required SSL certificate was sent</center>", GrantRefused),
        f"{URL} requires a client certificate, which xapi does not support",
        CHECK_URL,
    ),
    **{
        f"{status}": (
            *(status, Headers(), b"", kind, f"the token endpoint responded with {status} {phrase}: {URL}"),
            f"{CHECK_URL}, and then the password in XAPI_PASSWORD",
        )
        for status, kind, phrase in [
            (404, ClientStatusError, "Not Found"),
            (405, ClientStatusError, "Method Not Allowed"),
            (501, ServerStatusError, "Not Implemented"),
        ]
    },
}


@pytest.mark.parametrize(("status", "headers", "body", "kind", "message", "hint"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_names_its_reason_and_what_to_check_first(
    status: int, headers: Headers, body: bytes, kind: type[XapiError], message: str, hint: str
) -> None:
    error = refusal(httpx.Response(status, headers=headers, content=body))

    assert (type(error), error.message, error.hint) == (kind, message, hint)
    assert not isinstance(error, LoginRefused) or error.has_error_code == (f" from {URL}" not in message)


@pytest.mark.parametrize(
    "body", [{"error": "invalid_secret"}, {"error": "locked", "error_description": "the secret x"}]
)
def test_an_error_code_or_a_description_that_has_the_password_is_not_repeated(body: object) -> None:
    router = respx.Router()
    router.post(URL).respond(400, json=body)
    with pytest.raises(LoginRefused) as caught:
        request_token(httpx.MockTransport(router.handler), ME, "secret", timeout=5, now=lambda: NOW)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "location, target, remedy",
    [
        ("https://new.test/x-api/token", "https://new.test/x-api/token", "https://new.test"),
        ("https://new.test/v2/x-api/token?a=b", "https://new.test/v2/x-api/token", "https://new.test/v2"),
        ("/v2/x-api/token", "https://api.test/v2/x-api/token", "https://api.test/v2"),
        ("//new.test/", "https://new.test/", "URL"),
        ("https://u:CANARY@new.test/x", "https://new.test/x", "URL"),
        ("ftp://new.test/x-api/token", "ftp://new.test/x-api/token", "URL"),
        (f"https://new.test/{quote(PASSWORD)}", "***", "URL"),
    ],
)
def test_a_redirect_is_not_followed_and_its_target_and_the_remedy_are_named(
    location: str, target: str, remedy: str
) -> None:
    error = refusal(httpx.Response(307, headers={"Location": location}))

    assert str(error) == (
        f"the token endpoint {URL} redirects to {target}, and a password is not sent after a redirect; "
        f"if you trust it, set the base URL: `xapi login --base-url {remedy}`"
    )
    assert Run("login", "base_url", remedy) in (error.hint or "")  # so that it gets the profile


@pytest.mark.parametrize("headers", [{}, {"Location": ""}])
def test_a_redirect_without_a_target_is_reported_as_such(headers: dict[str, str]) -> None:
    error = refusal(httpx.Response(300, headers=headers))

    assert isinstance(error, RedirectError)
    assert str(error) == (
        f"the token endpoint {URL} responded with 300, a redirect without a target; check the base URL"
    )


@pytest.mark.parametrize("location", [b"https://x.test/\x1b[2J", b"javascript:alert(1)", b"http://[", b"//:99999/"])
def test_an_invalid_redirect_target_is_reported_safely(location: bytes) -> None:
    response = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n"
    transport = HttpxTransport(open_transport(ca_bundle=None, environ={}))
    with Server([request(), send(response)]) as server, closing(transport), pytest.raises(RedirectError) as caught:
        request_token(transport, Identity(server.url, "me@example.com"), PASSWORD, timeout=5, now=lambda: NOW)

    assert caught.value.exit_code == 3
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "after, when", [("7", "in 7"), ("soon", "later"), ("", "later"), ("in a day", r"in 8[56]\d{3}")]
)
def test_too_many_requests_names_the_time_to_wait(after: str, when: str) -> None:
    header = formatdate(time.time() + 86_400, usegmt=True) if after == "in a day" else after
    assert re.search(f"try again {when}( s)?$", str(refusal(httpx.Response(429, headers={"Retry-After": header}))))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
RESPONSES = st.dictionaries(st.sampled_from(["access_token", "token_type", "expires_in", "x"]), JSON)


@given(st.binary() | RESPONSES.map(lambda response: json.dumps(response).encode()))
def test_any_body_is_a_token_that_can_be_sent_or_one_error(body: bytes) -> None:
    try:
        token = parse(body, NOW, URL)
    except InvalidTokenResponse as error:
        assert error.exit_code == 11
    else:
        assert token.access_token
        assert all("!" <= char <= "~" for char in token.access_token)
        assert token.expires_at is None or NOW < token.expires_at <= NOW + timedelta(days=3650)

"""The errors for statuses."""

import httpx
import pytest

from tests.http.sending import BASE, Router, sender_for
from xapi_cli.errors import ClientStatusError, ServerStatusError, XapiError
from xapi_cli.http.send import Call
from xapi_cli.request.status_errors import reason, status_error


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
        ("GET", 429, "301", "try again in 301 s"),
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


def test_the_reason_phrase_is_escaped_and_shortened_and_the_reason_read_in_its_charset(router: Router) -> None:
    phrase, kind = b"\x1b[31mno way " + b"x" * 200, {"Content-Type": "text/plain; charset=ISO-8859-1"}
    router.get(f"{BASE}/a").mock(return_value=httpx.Response(400, headers=kind, extensions={"reason_phrase": phrase}))

    error = status_error(sender_for(router).send(Call("GET", f"{BASE}/a")), None, body=b"caf\xe9")

    assert str(error) == "GET https://api.test/v1/a responded with 400 \\x1b[31mno way " + "x" * 45 + "…: café"


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("application/json", '{"title": "t", "error": "e", "message": "m"}', "m"),
        ("application/json", '{"error": "e", "error_description": "d"}', "d"),
        ("application/json", '{"errors": [{"code": 1, "reason": " a\\n b"}, "c"]}', "a b"),
        ("application/json", '{"message": "", "code": 7}', None),
        ("application/json", '{"message": "cut', None),
        ("application/problem+json", '{"message": "m", "title": "t", "detail": "d"}', "d"),
        ("application/problem+json", '{"message": "m", "title": "t"}', "t"),
        ("text/plain", f"{'x' * 301}\nsecond", f"{'x' * 300}…"),
        ("", "<!DOCTYPE html><title>Sign &amp; in</title>", "Sign & in"),
        ("application/xml", "<e>x</e>", None),
        ("image/png", "PNG", None),
    ],
)
def test_the_reason_of_the_api_is_the_best_text_in_the_body(content_type: str, body: str, expected: str | None) -> None:
    assert reason(body.encode(), content_type) == expected

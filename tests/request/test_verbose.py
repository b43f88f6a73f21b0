import re

import httpx
import pytest

from tests.servers import Stopwatch
from xapi_cli.request.verbose import VerboseLog, joined_headers, redacted, redacted_url


def _said(request: httpx.Request, response: httpx.Response | None = None, secrets: tuple[str | None, ...] = ()) -> str:
    lines: list[str] = []
    heads = VerboseLog(lines.append, secrets)
    (before,), (after,) = heads.hooks["request"], heads.hooks["response"]
    before(request)
    if response is not None:
        after(response)
    return re.sub(r"after \d+ ms", "after N ms", "\n".join(lines))


def test_both_heads_are_shown_with_how_long_the_answer_took() -> None:
    request = httpx.Request("GET", "https://api.test/a?b=c", headers={"Accept": "*/*"})
    response = httpx.Response(
        200,
        headers=[("Content-Type", "text/plain"), ("X-Two", "1"), ("X-Two", "2")],
        extensions={"http_version": b"HTTP/1.1", "reason_phrase": b"Fine"},
    )

    assert _said(request, response).splitlines() == [
        "> GET /a?b=c HTTP/1.1",
        "> Host: api.test",
        "> Accept: */*",
        ">",
        "* answered after N ms",
        "< HTTP/1.1 200 Fine",
        "< Content-Type: text/plain",
        "< X-Two: 1",
        "< X-Two: 2",
        "<",
    ]


def test_the_token_is_hidden_wherever_it_comes_back() -> None:
    request = httpx.Request("GET", "https://api.test/", headers={"Authorization": "Bearer canary-token"})
    response = httpx.Response(302, headers={"Location": "/x?y=canary-token", "X-Echo": "you sent canary-token!"})

    said = _said(request, response)

    assert "canary" not in said
    assert "> Authorization: Bearer ***" in said
    assert "< X-Echo: you sent ***!" in said


def test_known_secrets_are_hidden_in_heads_and_in_lines_about_connections() -> None:
    lines: list[str] = []
    heads = VerboseLog(lines.append, ["canary-password", None, ""])

    heads.trace("* connected to canary-password\x1b[2J")
    heads.hooks["request"][0](httpx.Request("GET", "https://api.test/canary-password"))

    assert lines == ["* connected to ***\\x1b[2J", "> GET /*** HTTP/1.1", "> Host: api.test", ">"]


@pytest.mark.parametrize(
    "name",
    [
        "Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Api-Key", "X-API_KEY", "apikey",
        "X-Amz-Security-Token", "Client-Secret", "X-Password", "X-Session-Id", "Authentication-Info", "X-Auth-Token",
    ],
)  # fmt: skip
def test_the_values_of_headers_that_speak_of_secrets_are_hidden(name: str) -> None:
    assert redacted(name, "canary") == "***"


@pytest.mark.parametrize("name", ["Accept", "Content-Type", "WWW-Authenticate", "X-Request-Id", "ETag", "Keyboard"])
def test_other_headers_are_shown(name: str) -> None:
    assert redacted(name, "value") == "value"


def test_of_an_authorization_its_scheme_is_shown() -> None:
    assert redacted("Authorization", "Basic Y2FuYXJ5") == "Basic ***"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("/a?token=canary&b=1", "/a?token=***&b=1"),
        ("/a?b=1&api_key=canary", "/a?b=1&api_key=***"),
        ("https://h/a?X-Amz-Signature=canary#f", "https://h/a?X-Amz-Signature=***#f"),
        ("/a?code=canary&state=1", "/a?code=***&state=1"),
        ("/a?postcode=1", "/a?postcode=1"),
        ("/token=seen", "/token=seen"),
        ("/a#access_token=canary&expires_in=9", "/a#access_token=***&expires_in=9"),
        ("/a;jsessionid=canary", "/a;jsessionid=***"),
        ("/a?to=https://h/?token=canary&b=1", "/a?to=https://h/?token=***&b=1"),
        ("/a?token=canary?canary;canary", "/a?token=***"),
        ("https://user:canary@h/a", "https://***@h/a"),
        ("https://user:can@ry@h:1?a=b@c", "https://***@h:1?a=b@c"),
        ("//canary@h", "//***@h"),
        ("https://h/user@mail", "https://h/user@mail"),
        ("/a?b", "/a?b"),
        ("/a?jwt=canary&otp=canary", "/a?jwt=***&otp=***"),
        ("/a?next=https%3A%2F%2Fu%3Acanary%40h%2F&b=1", "/a?next=***&b=1"),
        ("/a?next=%2Fb%3Faccess_token%3Dcanary", "/a?next=***"),
        ("/a?next=%252Fb%253Faccess_token%253Dcanary", "/a?next=***"),
        ("/a?next=%2Fb%3Fpage%3D2", "/a?next=%2Fb%3Fpage%3D2"),
    ],
)
def test_user_info_and_secret_parameters_of_a_url_are_hidden(url: str, shown: str) -> None:
    assert redacted_url(url) == shown
    for name in ("Location", "Content-Location", "X-Next"):
        assert redacted(name, url) == shown


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        (
            "Link",
            '<https://u:canary@h/a?access_token=canary&page=2>; rel="next", </b?token=canary>; rel=prev; title="x"',
            '<https://***@h/a?access_token=***&page=2>; rel="next", </b?token=***>; rel=prev; title="x"',
        ),
        ("Refresh", "5; url=https://u:canary@h/a?access_token=canary", "5; url=https://***@h/a?access_token=***"),
        ("Refresh", "0;URL='/a#token=canary'", "0;URL='/a#token=***"),
    ],
)
def test_the_urls_in_a_header_are_redacted(name: str, value: str, shown: str) -> None:
    assert redacted(name, value) == shown


@pytest.mark.parametrize(
    "value", ["?" * 60_000, "?token" * 10_000, "//" * 30_000, ";token=x>" * 7_000, "//a@" * 15_000]
)
def test_a_long_header_is_redacted_in_time(value: str) -> None:
    with Stopwatch() as watch:
        redacted("X-Long", value)
    assert watch.seconds < 2


def test_what_a_terminal_would_obey_is_shown_inert() -> None:
    response = httpx.Response(
        200, headers=[(b"X-Odd", b"\x1b]0;title\x07\xff\xc2\x9b")], extensions={"reason_phrase": b"\x9b1m"}
    )

    said = _said(httpx.Request("GET", "https://api.test/"), response)

    assert said.isprintable() or said.replace("\n", "").isprintable()
    assert "< X-Odd: \\x1b]0;title\\x07\\xff\\x9b" in said
    assert "200 \\x9b1m" in said


def test_headers_are_joined_by_lower_case_name() -> None:
    raw = [(b"X-Two", b"1"), (b"Content-Type", b"text/plain"), (b"x-two", "é".encode()), (b"X-Odd", b"\xff")]

    assert joined_headers(raw) == {"x-two": "1, é", "content-type": "text/plain", "x-odd": "\\xff"}

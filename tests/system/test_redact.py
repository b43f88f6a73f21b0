import json
from random import Random
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.system.redact import Redactor, redact_header, redact_url
from xapi_cli.system.render import escape_json, printable


def test_a_known_secret_is_redacted_as_it_is_and_percent_encoded() -> None:
    redactor = Redactor()
    redactor.add("s e/cret")

    assert redactor.redact("a s e/cret, s%20e%2Fcret") == "a ***, ***"


@pytest.mark.parametrize("secret", [None, "", "abc"])
def test_a_missing_or_very_short_secret_is_not_redacted(secret: str | None) -> None:
    redactor = Redactor()
    redactor.add(secret)

    assert redactor.redact("abcd") == "abcd"


@pytest.mark.parametrize(
    "name",
    [
        "Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Api-Key", "X-API_KEY", "apikey",
        "Ocp-Apim-Subscription-Key",
        "X-Functions-Key", "X-JWT", "X-Pin", "X-Amz-Security-Token",
        "Client-Secret", "X-Password", "X-Session-Id", "Authentication-Info", "X-Auth-Token",
    ],
)  # fmt: skip
def test_the_value_of_a_header_with_a_secret_name_is_redacted(name: str) -> None:
    assert redact_header(name, "canary") == "***"


@pytest.mark.parametrize("name", ["Accept", "Content-Type", "WWW-Authenticate", "X-Request-Id", "ETag", "Keyboard"])
def test_other_headers_are_not_redacted(name: str) -> None:
    assert redact_header(name, "value") == "value"


def test_the_scheme_of_an_authorization_header_is_shown() -> None:
    assert redact_header("Authorization", "Basic Y2FuYXJ5") == "Basic ***"


@pytest.mark.parametrize(
    ("url", "redacted"),
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
        ("/a?next=https%3A%2F%2Fu%3Acanary%40h%2F&b=1", "/a?next=https%3A%2F%2F***%40h%2F&b=1"),
        ("/a?next=%2Fb%3Faccess_token%3Dcanary", "/a?next=%2Fb%3Faccess_token%3D***"),
        ("/a?next=%252Fb%253Faccess_token%253Dcanary&b=1", "/a?next=%252Fb%253Faccess_token%253D***&b=1"),
        ("/a?next=%2Fb%3Fpage%3D2", "/a?next=%2Fb%3Fpage%3D2"),
    ],
)
def test_user_info_and_secret_parameters_of_a_url_are_redacted(url: str, redacted: str) -> None:
    assert redact_url(url) == redacted
    for name in ("Location", "Content-Location", "X-Next"):
        assert redact_header(name, url) == redacted


@pytest.mark.parametrize(
    ("name", "value", "redacted"),
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
def test_the_urls_in_a_header_are_redacted(name: str, value: str, redacted: str) -> None:
    assert redact_header(name, value) == redacted


SECRET = 'can"ary \\ of 131+' + "-7Zqé" * 23


@pytest.mark.parametrize("mark", ["…", "..."])
@pytest.mark.parametrize("length", [4, 5, 7, 8, 9, 12, 13, 40, 100, 130])
def test_the_beginning_of_a_secret_is_redacted_where_a_text_was_cut(length: int, mark: str) -> None:
    redactor = Redactor()
    redactor.add(SECRET)
    start = SECRET[:length]
    encoded = quote(start, safe="")
    parts = [start, json.dumps(start, ensure_ascii=False)[1:-1], encoded, quote(encoded, safe="")]
    parts += [f"{encoded}%", f"{encoded}%2", f"{start}\\", f"{start}\ufffd"]

    for part in parts:
        assert not redactor.redact(f'string ("q{part}{mark}) and others').replace("***", "").count(SECRET[:4])
        assert redactor.redact(f'string ("q{part}{mark}) and others').startswith('string ("q***')


def test_the_beginning_of_a_secret_is_redacted_however_long_it_is() -> None:
    redactor = Redactor()
    redactor.add(token := "".join(map(str, range(1000))))

    for length in (300, len(token) - 1):
        assert redactor.redact(f"invalid: {token[:length]}…") == "invalid: ***…"


def test_a_beginning_that_is_too_short_or_is_not_cut_is_not_redacted() -> None:
    redactor = Redactor()
    redactor.add("canary-token")

    for text in ("can… can...", "canary-to", "canary-to others…", "canary-to.", "a canary-tower…"):
        assert redactor.redact(text) == text


def test_a_secret_is_redacted_in_json() -> None:
    redactor = Redactor()
    redactor.add('pass"wo\\rd')

    assert redactor.redact(json.dumps({"a": 'pass"wo\\rd'})) == '{"a": "***"}'


@given(st.text('abE9+%/= "\\é漢\udcff', min_size=4, max_size=20), st.randoms(use_true_random=False))
def test_a_secret_is_redacted_however_its_characters_are_encoded(secret: str, random: Random) -> None:
    def encoded(char: str) -> str:
        text = "".join(f"%{octet:02{random.choice('xX')}}" for octet in char.encode("utf-8", "surrogateescape"))
        return text.replace("%", "%" + "25" * random.randrange(3))

    redactor = Redactor()
    redactor.add(secret)
    part = "".join(encoded(char) if random.random() < 0.5 or char in '%"\\' else char for char in secret)
    assert redactor.redact(f"<{part}>") == "<***>"


WORST = [
    *(";a=%41", "?token", "//", ";token=x>", "//a@", "%2525", "%", "+", "...", "canar…", "canary-token" * 19 + "…"),
    *("a…", "aaaa...", "%26a%3D", "%26token%3D", "%2F%2Fa%40", '\\"', "\x1b", "\udcff", "é"),
]


@pytest.mark.parametrize("part", WORST)
def test_the_worst_text_of_a_server_takes_little_time(part: str) -> None:
    """Test 128 KiB, twice the longest text that is shown: a quadratic search would take more than a minute."""
    redactor = Redactor()
    redactor.add("canary-token" * 20, "a" * 30)
    text = (part * 131_072)[:131_072]
    redact_header("Location", text)
    redact_url(text)
    printable(escape_json(redactor.redact(text)))

"""Base URLs, and origins of URLs."""

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http.url_texts import ARGUMENTS, HOSTILE, TEXT, or_none, origin_by_httpx
from xapi_cli.errors import UsageError
from xapi_cli.http import urls

NORMALISED = [
    ("https://api.test", "https://api.test"),
    ("api.test", "https://api.test"),
    ("api.test:8080", "https://api.test:8080"),
    ("localhost:8080/", "http://localhost:8080"),
    ("127.0.0.1", "http://127.0.0.1"),
    ("[::1]:80", "http://[::1]"),
    ("\ufeffapi.test", "https://api.test"),
    ("api.test/x-api/token", "https://api.test"),
    ("https://api.test/v2/x-api/", "https://api.test/v2"),
    ("https://api.test/token", "https://api.test/token"),
    ("HTTPS://API.Test/", "https://api.test"),
    ("http://api.test:80", "http://api.test"),
    ("https://api.test:443", "https://api.test"),
    ("https://api.test:80", "https://api.test:80"),
    ("http://api.test:443", "http://api.test:443"),
    ("https://api.test:", "https://api.test"),
    ("https://api.test:00443", "https://api.test"),
    ("https://api.test:65535", "https://api.test:65535"),
    ("https://api.test:1", "https://api.test:1"),
    ("https://api.test/X-Api", "https://api.test/X-Api"),
    ("https://api.test/x-api///", "https://api.test"),
    ("https://api.test/a/b", "https://api.test/a/b"),
    ("https://api.test/é", "https://api.test/%C3%A9"),
    ("https://api.test/%C3%A9", "https://api.test/%C3%A9"),
    ("https://api.test/100%", "https://api.test/100%25"),
    ("https://api.test/me@work", "https://api.test/me@work"),
    ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
    ("http://[::1]", "http://[::1]"),
    ("http://[0:0:0:0:0:0:0:1]:80", "http://[::1]"),
    ("http://[2001:DB8::0]:8080/a", "http://[2001:db8::]:8080/a"),
    ("http://[::ffff:7f00:1]", "http://[::ffff:127.0.0.1]"),
    ("https://bücher.example", "https://xn--bcher-kva.example"),
    ("https://BÜCHER.example", "https://xn--bcher-kva.example"),
    ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example"),
    ("https://faß.example", "https://xn--fa-hia.example"),
    ("https://例え.テスト", "https://xn--r8jz45g.xn--zckzah"),
    ("http://１２７.0.0.1", "http://127.0.0.1"),
    ("https://api。test", "https://api.test"),
    ("https://my_service:9000", "https://my_service:9000"),
    ("https://api.test.", "https://api.test."),
]

NO_BASE_URL = [
    ("", "is empty"),
    (" ", "is empty"),
    ("https://", "has no host"),
    ("https:///x", "has no host"),
    ("//api.test", "has no host"),
    ("/x-api", "has no host"),
    (":8080", "has no host"),
    ("::1", "has no host"),
    ("a:b:c", "has more than one :"),
    ("https:/api.test", "has no // after its scheme"),
    ("https:api.test", "has no // after its scheme"),
    ("ftp://api.test", "has the scheme 'ftp'"),
    ("file:///etc/passwd", "has the scheme 'file'"),
    ("javascript://api.test", "has the scheme 'javascript'"),
    ("https://me:CAN@api.test", "has user info"),
    ("https://CAN@api.test", "has user info"),
    ("https://@api.test", "has user info"),
    ("CAN@api.test", "looks like an email address"),
    ("me:CAN@api.test", "has user info"),
    ("CAN@api.test/v1", "has user info"),
    ("CAN@api.test:8080", "has user info"),
    ("@api.test", "has user info"),
    ("https://a@b@api.test", "has user info"),
    ("https://api.test?key=CAN", "has a query"),
    ("https://api.test/?", "has a query"),
    ("https://api.test#CAN", "has a fragment"),
    ("https://api.test/#", "has a fragment"),
    ("https://api.test:0", "has a port outside 1-65535"),
    ("https://api.test:65536", "has a port outside 1-65535"),
    ("https://api.test:99999", "has a port outside 1-65535"),
    ("https://api.test:" + "9" * 5000, "has a port outside 1-65535"),
    ("https://api.test:-1", "has a port that is not a number"),
    ("https://api.test:+80", "has a port that is not a number"),
    ("https://api.test:CAN", "has a port that is not a number"),
    ("https://api.test:８０", "has a port that is not a number"),
    ("https://api.test:8_0", "has a port that is not a number"),
    ("https://api.test:80:80", "has more than one :"),
    ("https://me:CAN", "has a port that is not a number"),
    ("https://api .test", "contains whitespace"),
    (" https://api.test", "contains whitespace"),
    ("https://api.test ", "contains whitespace"),
    ("https://api.test/a b", "contains whitespace"),
    ("https://api\u3000.test", "contains whitespace"),
    ("https://api.test\n", "has a control character (U+000A) at position 17"),
    ("https://api.test\r\nX: y", "has a control character (U+000D)"),
    ("https://api\x00.test", "has a control character (U+0000)"),
    ("https://api.test/\x85", "has a control character (U+0085)"),
    ("https://api.test\\@evil.test", "has a backslash"),
    ("https:\\\\api.test", "has no // after its scheme"),
    ("https://api.test/a\\b", "has a backslash"),
    ("https://api%2etest", "has a % in its host"),
    ("https://[fe80::1%25eth0]", "has a % in its host"),
    ("https://[::1", "has a malformed IPv6 address"),
    ("https://[]", "has a malformed IPv6 address"),
    ("https://[::g]", "has a malformed IPv6 address"),
    ("https://[::1]x", "has a malformed IPv6 address"),
    ("https://[::1]80", "has a malformed IPv6 address"),
    ("https://[v1.x]", "has a malformed IPv6 address"),
    ("https://::1]", "has no host"),
    ("https://1.2.3", "is neither a name nor an IPv4 address"),
    ("https://127.1", "is neither a name nor an IPv4 address"),
    ("https://2130706433", "is neither a name nor an IPv4 address"),
    ("https://0x7f000001", "is neither a name nor an IPv4 address"),
    ("https://0177.0.0.1", "is neither a name nor an IPv4 address"),
    ("https://256.0.0.1", "is neither a name nor an IPv4 address"),
    ("https://1.2.3.4.5", "is neither a name nor an IPv4 address"),
    ("https://127.0.0.1.", "is neither a name nor an IPv4 address"),
    ("https://...", "has an invalid host name"),
    ("https://.test", "has an invalid host name"),
    ("https://a..b", "has an invalid host name"),
    ("https://-a.test", "has an invalid host name"),
    ("https://a-.test", "has an invalid host name"),
    ("https://a,b.test", "has an invalid host name"),
    ("https://a'b", "has an invalid host name"),
    ("https://" + "a" * 64 + ".test", "has an invalid host name"),
    ("https://" + "a." * 150 + "test", "has an invalid host name"),
    ("https://xn--", "has an invalid internationalized host name"),
    ("https://xn--a", "has an invalid internationalized host name"),
    ("https://" + "é" * 300, "has an invalid internationalized host name"),
    ("https://a\u202eb.test", "has an invalid internationalized host name"),
    ("https://a\u200bb\u2066.test", "has an invalid internationalized host name"),
    ("https://😀.test", "has an invalid internationalized host name"),
    ("https://a\udcff.test", "has an invalid internationalized host name"),
    ("https://ａ／b.test", "has an invalid internationalized host name"),
    ("https://℀.test", "has an invalid internationalized host name"),
    ("https://api.test/..", "has a . or .. segment"),
    ("https://api.test/a/../b", "has a . or .. segment"),
    ("https://api.test/./a", "has a . or .. segment"),
    ("https://api.test/%2E%2e/a", "has a . or .. segment"),
    ("https://api.test/a%2f..%2fb", "has a . or .. segment"),
    ("https://api.test//evil", "starts with //"),
    ("https://api.test/a%0d%0aX:y", "has an encoded line break or NUL (%0d)"),
    ("https://api.test/a%00", "has an encoded line break or NUL (%00)"),
    ("https://api.test/\ud800", "contains an unpaired surrogate"),
]


@pytest.mark.parametrize(("text", "expected"), NORMALISED)
def test_a_base_url_has_one_normalized_form(text: str, expected: str) -> None:
    assert urls.base_url(text) == expected
    assert urls.base_url(expected) == expected
    assert str(httpx.URL(expected)) == expected


@pytest.mark.parametrize(("text", "flaw"), NO_BASE_URL)
def test_an_invalid_base_url_is_rejected_without_quoting_secrets(text: str, flaw: str) -> None:
    with pytest.raises(UsageError) as caught:
        urls.base_url(text)

    assert caught.value.message.startswith("the base URL ")
    assert flaw in caught.value.message
    assert "CAN" not in str(caught.value)
    assert str(caught.value).isprintable()


@given(st.one_of(TEXT, ARGUMENTS, HOSTILE, HOSTILE.map("https://api.test".__add__)))
def test_any_text_is_a_base_url_that_httpx_parses_identically_or_a_usage_error(text: str) -> None:
    url = or_none(lambda: urls.base_url(text), UsageError)
    if url is None:
        return

    assert urls.base_url(url) == url
    assert url.isascii()
    assert str(httpx.URL(url)) == url
    assert origin_by_httpx(url) == urls.origin(url)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://api.test/a", "https://API.test:443/b?c", True),
        ("http://[::1]/", "http://[0::1]:80", True),
        ("https://api.test", "http://api.test", False),
        ("https://api.test", "https://api.test:8443", False),
        ("https://api.test", "https://api.test.", False),
        ("http://api.test:443", "https://api.test:443", False),
        ("http://localhost", "http://127.0.0.1", False),
    ],
)
def test_an_origin_is_scheme_host_and_port(one: str, other: str, same: bool) -> None:
    assert urls.same_origin(one, other) is same
    assert urls.same_origin(other, one) is same


def test_the_origin_has_the_host_without_brackets() -> None:
    assert urls.origin("http://[::1]/a") == ("http", "::1", 80)
    assert urls.origin("https://api.test:8443") == ("https", "api.test", 8443)
    with pytest.raises(UsageError):
        urls.origin("nonsense")

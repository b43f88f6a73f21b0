"""URLs that a Location refers to."""

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http.url_texts import ARGUMENTS, HOSTILE, TEXT, or_none, origin_by_httpx
from xapi_cli.errors import RedirectError
from xapi_cli.http import urls

FROM = "https://api.test/x-api/a/b?q=1"
JOINED = [
    ("c", "https://api.test/x-api/a/c"),
    ("c?d=e", "https://api.test/x-api/a/c?d=e"),
    ("./c", "https://api.test/x-api/a/c"),
    ("../c", "https://api.test/x-api/c"),
    ("../../../../c", "https://api.test/c"),
    ("..", "https://api.test/x-api/"),
    (".", "https://api.test/x-api/a/"),
    ("/", "https://api.test/"),
    ("/c/./d/../e", "https://api.test/c/e"),
    ("/..", "https://api.test/"),
    ("?q=2", "https://api.test/x-api/a/b?q=2"),
    ("#top", "https://api.test/x-api/a/b?q=1"),
    ("https://other.test/c#top", "https://other.test/c"),
    ("https://other.test#top?x", "https://other.test/"),
    ("//other.test/c?d#top", "https://other.test/c?d"),
    ("c#top", "https://api.test/x-api/a/c"),
    (" c\t", "https://api.test/x-api/a/c"),
    ("/é ü%zz", "https://api.test/%C3%A9%20%C3%BC%25zz"),
    ("//other.test/c", "https://other.test/c"),
    ("//other.test", "https://other.test/"),
    ("http://other.test:80/c", "http://other.test/c"),
    ("HTTPS://Other.Test", "https://other.test/"),
    ("https://other.test?x", "https://other.test/?x"),
    ("https://u:CAN@other.test/c", "https://other.test/c"),
    ("//u:CAN@other.test/c", "https://other.test/c"),
    ("https://api.test@other.test/", "https://other.test/"),
    ("/c?x=\\", "https://api.test/c?x=%5C"),
    ("/a:b", "https://api.test/a:b"),
    ("./a:b", "https://api.test/x-api/a/a:b"),
]

NO_TARGET = [
    ("", "is empty"),
    (" ", "is empty"),
    ("ftp://other.test/", "has the scheme 'ftp'"),
    ("file:///etc/passwd", "has the scheme 'file'"),
    ("javascript:alert(1)", "is not an http or https URL"),
    ("data:text/html,CAN", "is not an http or https URL"),
    ("http:c", "is not an http or https URL"),
    ("https://", "has no host"),
    ("//", "has no host"),
    ("///other.test", "has no host"),
    ("https://[::1", "has a malformed IPv6 address"),
    ("https://other.test:99999/", "has a port outside 1-65535"),
    ("https://other.test:CAN/", "has a port that is not a number"),
    ("https://oth er.test/", "contains whitespace"),
    ("https://127.1/", "is neither a name nor an IPv4 address"),
    ("/\\other.test", "has a backslash"),
    ("https:\\\\other.test", "has a backslash"),
    ("https://other.test\\@api.test/", "has a backslash"),
    ("/a\x1b[31m", "has a control character (U+001B)"),
    ("/a\r\nX: y", "has a control character (U+000D)"),
    ("/a\u0085", "has a control character (U+0085)"),
    ("/\ud800", "contains an unpaired surrogate"),
]


@pytest.mark.parametrize(("location", "expected"), JOINED)
def test_a_redirect_is_resolved_as_in_rfc_3986(location: str, expected: str) -> None:
    assert urls.join(FROM, location) == expected


@pytest.mark.parametrize(("location", "flaw"), NO_TARGET)
def test_a_redirect_to_an_invalid_url_is_an_error_without_secrets(location: str, flaw: str) -> None:
    with pytest.raises(RedirectError) as caught:
        urls.join(FROM, location)

    assert flaw in caught.value.message
    assert "CAN" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_redirect_to_an_endless_url_is_an_error() -> None:
    with pytest.raises(RedirectError, match="more than 65,536 characters"):
        urls.join(FROM, "/" + "a" * 70_000)


@given(st.one_of(TEXT, ARGUMENTS, HOSTILE))
def test_any_location_is_a_url_that_httpx_parses_identically_or_a_redirect_error(location: str) -> None:
    url = or_none(lambda: urls.join(FROM, location), RedirectError)
    if url is None:
        return

    assert str(httpx.URL(url)) == url
    assert origin_by_httpx(url) == urls.origin(url)
    assert httpx.URL(url).userinfo == b""
    assert urls.join(FROM, url) == url


@pytest.mark.parametrize(
    ("location", "expected"),
    [  # RFC 3986, 5.4, with http for g's own scheme
        ("g", "http://a/b/c/g"),
        ("./g", "http://a/b/c/g"),
        ("g/", "http://a/b/c/g/"),
        ("/g", "http://a/g"),
        ("//g", "http://g/"),
        ("?y", "http://a/b/c/d;p?y"),
        ("g?y", "http://a/b/c/g?y"),
        (";x", "http://a/b/c/;x"),
        ("g;x=1/./y", "http://a/b/c/g;x=1/y"),
        ("g;x=1/../y", "http://a/b/c/y"),
        (".", "http://a/b/c/"),
        ("./", "http://a/b/c/"),
        ("..", "http://a/b/"),
        ("../", "http://a/b/"),
        ("../g", "http://a/b/g"),
        ("../..", "http://a/"),
        ("../../g", "http://a/g"),
        ("../../../g", "http://a/g"),
        ("/./g", "http://a/g"),
        ("/../g", "http://a/g"),
        ("g.", "http://a/b/c/g."),
        ("..g", "http://a/b/c/..g"),
        ("./../g", "http://a/b/g"),
        ("./g/.", "http://a/b/c/g/"),
        ("g/./h", "http://a/b/c/g/h"),
        ("g/../h", "http://a/b/c/h"),
        ("g?y/../x", "http://a/b/c/g?y/../x"),
    ],
)
def test_the_examples_of_rfc_3986_are_resolved(location: str, expected: str) -> None:
    assert urls.join("http://a/b/c/d;p?q", location) == expected

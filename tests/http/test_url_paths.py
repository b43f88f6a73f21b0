"""PATH and query parameters of a URL below the base URL."""

import string
from urllib.parse import parse_qsl

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http.url_texts import ARGUMENTS, HOSTILE, TEXT, or_none, origin_by_httpx
from xapi_cli.errors import UsageError
from xapi_cli.http import urls

BASE = "https://api.test/x-api"

LANDS_ON = [
    ("/me", "https://api.test/x-api/me"),
    ("me", "https://api.test/x-api/me"),
    ("/", "https://api.test/x-api/"),
    ("me/", "https://api.test/x-api/me/"),
    ("/a//b", "https://api.test/x-api/a//b"),
    ("?a=1", "https://api.test/x-api?a=1"),
    ("/me?a=1&b=2", "https://api.test/x-api/me?a=1&b=2"),
    ("/me?", "https://api.test/x-api/me?"),
    ("/me?to=https://x.test/?y", "https://api.test/x-api/me?to=https://x.test/?y"),
    ("/me?a=../..&b=%0d%0a&c=\\", "https://api.test/x-api/me?a=../..&b=%0d%0a&c=%5C"),
    ("/é ü", "https://api.test/x-api/%C3%A9%20%C3%BC"),
    ("/me?q=é ü+1", "https://api.test/x-api/me?q=%C3%A9%20%C3%BC+1"),
    ("/%C3%A9/%41", "https://api.test/x-api/%C3%A9/%41"),
    ("/100%/5%x", "https://api.test/x-api/100%25/5%25x"),
    ("/\udcff", "https://api.test/x-api/%FF"),
    ('/a[0]{x}|^`"<>', "https://api.test/x-api/a%5B0%5D%7Bx%7D%7C%5E%60%22%3C%3E"),
    ("/me;v=1,2:3@4!$&'()*+~", "https://api.test/x-api/me;v=1,2:3@4!$&'()*+~"),
    ("/...", "https://api.test/x-api/..."),
    ("/.hidden/..x", "https://api.test/x-api/.hidden/..x"),
    ("/a%5Cb", "https://api.test/x-api/a%5Cb"),
    ("/a%2Fb", "https://api.test/x-api/a%2Fb"),
    ("@evil.test", "https://api.test/x-api/@evil.test"),
    (".evil.test", "https://api.test/x-api/.evil.test"),
    (":8080", "https://api.test/x-api/:8080"),
    ("evil.test", "https://api.test/x-api/evil.test"),
    ("proxy/https://evil.test", "https://api.test/x-api/proxy/https://evil.test"),
    ("mailto:me@evil.test", "https://api.test/x-api/mailto:me@evil.test"),
    ("/C:/x", "https://api.test/x-api/C:/x"),
    ("https://api.test/me", "https://api.test/me"),
    ("https://api.test", "https://api.test/"),
    ("https://api.test?a=1", "https://api.test/?a=1"),
    ("HTTPS://API.TEST:443/me?a=1", "https://api.test/me?a=1"),
    ("https://api.test/x-api/é", "https://api.test/x-api/%C3%A9"),
]

NO_PATH = [
    ("", "is empty"),
    (" ", "is empty"),
    ("//evil.test", "starts with //"),
    ("//api.test/me", "starts with //"),
    ("///evil.test", "starts with //"),
    ("/%2Fevil.test", "starts with //"),
    ("%2f%2fevil.test", "starts with //"),
    ("\\\\evil.test", "has a backslash"),
    ("/\\evil.test", "has a backslash"),
    ("a\\b", "has a backslash"),
    ("C:/Program Files/Git/x-api/me", "looks like a Windows file path"),
    ("c:\\me", "looks like a Windows file path"),
    ("https://evil.test/me", "has the origin https://evil.test"),
    ("http://api.test/me", "has the origin http://api.test"),
    ("https://api.test:8443/me", "has the origin https://api.test:8443"),
    ("https://api.test./me", "has the origin https://api.test."),
    ("https://api.test.evil.test/me", "has the origin https://api.test.evil.test"),
    ("https://sub.api.test/me", "has the origin https://sub.api.test"),
    ("https://[::1]/me", "has the origin https://[::1]"),
    ("https://CAN@api.test/me", "has user info"),
    ("https://me:CAN@api.test/me", "has user info"),
    ("https://api.test@evil.test/me", "has user info"),
    ("https://api.test\\@evil.test/me", "has a backslash"),
    ("https://api.test:x/me", "has a port that is not a number"),
    ("https:///me", "has no host"),
    ("https:/api.test/me", "has no // after its scheme"),
    ("http:me", "has no // after its scheme"),
    ("ftp://api.test/me", "has the scheme 'ftp'"),
    ("file:///etc/passwd", "has the scheme 'file'"),
    ("https://api.test//evil", "starts with //"),
    ("https://api.test/../me", "has a . or .. segment"),
    ("..", "has a . or .. segment"),
    ("/..", "has a . or .. segment"),
    ("../token", "has a . or .. segment"),
    ("/a/./b", "has a . or .. segment"),
    ("/a/%2e%2E/b", "has a . or .. segment"),
    ("/a/.%2e/b", "has a . or .. segment"),
    ("/a%2f..%2Fb", "has a . or .. segment"),
    ("/a/..;x=1/b", "has a . or .. segment"),
    ("/a%5c..%5cb", "has a . or .. segment"),
    ("/me#top", "has a fragment"),
    ("/me?a=1#top", "has a fragment"),
    ("https://api.test/#", "has a fragment"),
    ("/me\n", "has a control character (U+000A) at position 4"),
    ("/me?a=\r\n", "has a control character (U+000D) at position 7"),
    ("/me\x00", "has a control character (U+0000)"),
    ("/me\x1b[31m", "has a control character (U+001B)"),
    ("/me\x9b", "has a control character (U+009B)"),
    ("/me%0d%0aX:%20y", "has an encoded line break or NUL (%0d)"),
    ("/me%0A", "has an encoded line break or NUL (%0A)"),
    ("/me%00", "has an encoded line break or NUL (%00)"),
    ("/\ud800", "contains an unpaired surrogate"),
]


@pytest.mark.parametrize(("path", "expected"), LANDS_ON)
def test_a_path_is_resolved_below_the_base_url(path: str, expected: str) -> None:
    assert urls.resolve(BASE, path) == expected


@pytest.mark.parametrize(("path", "flaw"), NO_PATH)
def test_a_path_to_another_origin_is_rejected(path: str, flaw: str) -> None:
    with pytest.raises(UsageError) as caught:
        urls.resolve(BASE, path)

    assert caught.value.message.startswith(f"PATH {flaw}")
    assert "CAN" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_path_changed_by_a_windows_shell_has_a_hint() -> None:
    with pytest.raises(UsageError, match="MSYS_NO_PATHCONV=1, or omit the leading slash"):
        urls.resolve(BASE, "C:/Program Files/Git/x-api/me")


def test_a_base_url_without_a_path_is_requested_with_a_slash() -> None:
    assert urls.resolve("https://api.test", "/") == "https://api.test/"
    assert urls.resolve("https://api.test", "?a=1") == "https://api.test/?a=1"
    assert urls.resolve("https://api.test", "me") == "https://api.test/me"


@pytest.mark.parametrize(
    ("path", "query", "expected"),
    [
        ("/me", [], "/me"),
        ("/me", [("a", "1"), ("b", "2"), ("a", "3")], "/me?a=1&b=2&a=3"),
        ("/me?z=9", [("a", "1")], "/me?z=9&a=1"),
        ("/me?", [("a", "1")], "/me?a=1"),
        ("/me?z&", [("a", "1")], "/me?z&a=1"),
        ("/me", [("a b", "c+d&e=f#g%41/é?\r\n")], "/me?a%20b=c%2Bd%26e%3Df%23g%2541%2F%C3%A9%3F%0D%0A"),
        ("/me", [("a", "")], "/me?a="),
        ("/me", [("a", "\udcff")], "/me?a=%FF"),
    ],
)
def test_query_parameters_are_appended_in_order(path: str, query: list[tuple[str, str]], expected: str) -> None:
    assert urls.resolve(BASE, path, query) == BASE + expected


def test_a_query_parameter_with_an_unpaired_surrogate_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="a query parameter contains an unpaired surrogate"):
        urls.resolve(BASE, "/me", [("a", "\ud800")])


def test_a_url_that_httpx_rejects_is_a_usage_error() -> None:
    assert len(urls.resolve("https://h", "a" * (65_536 - len("https://h/")))) == 65_536
    with pytest.raises(UsageError, match="the URL has 65,537 characters, the limit is 65,536"):
        urls.resolve("https://h", "a" * (65_537 - len("https://h/")))


@given(st.sampled_from([BASE, "http://[::1]:8080", "https://api.test"]), st.one_of(TEXT, ARGUMENTS, HOSTILE))
def test_any_path_has_the_origin_of_the_base_url_or_is_a_usage_error(base: str, path: str) -> None:
    url = or_none(lambda: urls.resolve(base, path), UsageError)
    if url is None:
        return

    assert str(httpx.URL(url)) == url
    assert origin_by_httpx(url) == urls.origin(base)
    assert url.startswith(base) or "://" in path
    assert url.isascii()
    assert not set(url) & set(string.whitespace)


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1))
def test_a_server_decodes_the_query_parameters_that_were_given(query: list[tuple[str, str]]) -> None:
    url = urls.resolve(BASE, "/me", query)

    assert parse_qsl(httpx.URL(url).query.decode(), keep_blank_values=True, strict_parsing=True) == query
    assert str(httpx.URL(url)) == url


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\?#%"), min_size=1)))
def test_a_server_decodes_the_segments_that_were_given(segments: list[str]) -> None:
    segments = [segment for segment in segments if segment not in (".", "..")] or ["x"]

    assert httpx.URL(urls.resolve(BASE, "/" + "/".join(segments))).path == "/x-api/" + "/".join(segments)

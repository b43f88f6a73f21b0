"""Base URLs, PATH and query parameters, and the targets of redirects: what is sent where, and what is refused."""

import string
from collections.abc import Callable
from urllib.parse import parse_qsl

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.errors import UsageError
from xapi_cli.http import urls

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ARGUMENTS = st.binary().map(lambda data: data.decode("utf-8", "surrogateescape"))  # what argv can contain
HOSTILE = st.text(st.sampled_from("/\\:@?#%.[]ahtps0127 \n\x00é2eEfF=&;,-_~"), max_size=40)


def or_none(build: Callable[[], str], failure: type[Exception]) -> str | None:
    """Return the URL, or None if *build* raises the expected error."""
    try:
        return build()
    except failure as error:
        return None if str(error).isprintable() else pytest.fail(f"an error with odd characters: {error!r}")


def origin_by_httpx(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of *url*, as httpx parses them."""
    parsed = httpx.URL(url)
    return parsed.scheme, parsed.raw_host.decode(), parsed.port or {"http": 80, "https": 443}[parsed.scheme]


def each(flaws: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(text, flaw) for flaw, texts in flaws.items() for text in texts]


# base URLs

NORMALIZED = [
    ("https://api.test", "https://api.test"), ("api.test", "https://api.test"),
    ("api.test:8080", "https://api.test:8080"), ("localhost:8080/", "http://localhost:8080"),
    ("127.0.0.1", "http://127.0.0.1"), ("[::1]:80", "http://[::1]"), ("\ufeffhttp://api.test", "http://api.test"),
    ("api.test/x-api/token", "https://api.test"), ("https://api.test/v2/x-api/", "https://api.test/v2"),
    ("https://api.test/token", "https://api.test/token"), ("HTTPS://API.Test/", "https://api.test"),
    ("http://api.test:80", "http://api.test"), ("https://api.test:443", "https://api.test"),
    ("https://api.test:80", "https://api.test:80"), ("http://api.test:443", "http://api.test:443"),
    ("https://api.test:", "https://api.test"), ("https://api.test:00443", "https://api.test"),
    ("https://api.test:65535", "https://api.test:65535"), ("https://api.test:1", "https://api.test:1"),
    ("https://api.test/X-Api", "https://api.test/X-Api"), ("https://api.test/x-api///", "https://api.test"),
    ("https://api.test/a/b", "https://api.test/a/b"), ("https://api.test/é", "https://api.test/%C3%A9"),
    ("https://api.test/%C3%A9", "https://api.test/%C3%A9"), ("https://api.test/100%", "https://api.test/100%25"),
    ("https://api.test/me@work", "https://api.test/me@work"), ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
    ("http://[::1]", "http://[::1]"), ("http://[0:0:0:0:0:0:0:1]:80", "http://[::1]"),
    ("http://[2001:DB8::0]:8080/a", "http://[2001:db8::]:8080/a"),
    ("https://bücher.example", "https://xn--bcher-kva.example"),
    ("https://BÜCHER.example", "https://xn--bcher-kva.example"),
    ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example"),
    ("https://faß.example", "https://xn--fa-hia.example"), ("https://例え.テスト", "https://xn--r8jz45g.xn--zckzah"),
    ("http://１２７.0.0.1", "http://127.0.0.1"), ("https://api。test", "https://api.test"),
    ("https://my_service:9000", "https://my_service:9000"), ("https://api.test.", "https://api.test."),
]  # fmt: skip

NO_BASE_URL = {
    "is empty": ["", " "],
    "has no host": ["https://", "https:///x", "//api.test", "/x-api", ":8080", "::1", "https://::1]"],
    "has more than one :": ["a:b:c", "https://api.test:80:80"],
    "has no // after its scheme": ["https:/api.test", "https:api.test"],
    "has the scheme 'ftp'": ["ftp://api.test"],
    "has the scheme 'file'": ["file:///etc/passwd"],
    "has the scheme 'javascript'": ["javascript://api.test"],
    "has user info": [
        "https://me:CAN@api.test", "https://CAN@api.test", "https://@api.test", "me:CAN@api.test", "CAN@api.test/v1",
        "CAN@api.test:8080", "@api.test", "https://a@b@api.test",
    ],
    "looks like an email address": ["CAN@api.test"],
    "has a query": ["https://api.test?key=CAN", "https://api.test/?"],
    "has a fragment": ["https://api.test#CAN", "https://api.test/#"],
    "has a port that is not a number from 1 to 65535": [
        "https://api.test:0", "https://api.test:65536", "https://api.test:99999", "https://api.test:" + "9" * 5000,
    ],
    "has a port that is not a number": [
        "https://api.test:-1", "https://api.test:+80", "https://api.test:CAN", "https://api.test:８０",
        "https://api.test:8_0", "https://me:CAN",
    ],
    "contains whitespace": [
        "https://api .test", " https://api.test", "https://api.test ", "https://api.test/a b",
        "https://api\u3000.test",
    ],
    "has a control character (U+000A) at position 17": ["https://api.test\n"],
    "has a control character (U+000D)": ["https://api.test\r\nX: y"],
    "has a control character (U+0000)": ["https://api\x00.test"],
    "has a control character (U+0085)": ["https://api.test/\x85"],
    "has a backslash": ["https://api.test\\@evil.test", "https://api.test/a\\b"],
    "has a % in its host": ["https://api%2etest", "https://[fe80::1%25eth0]"],
    "has a malformed IPv6 address": [
        "https://[::1", "https://[]", "https://[::g]", "https://[::1]x", "https://[::1]80", "https://[v1.x]",
    ],
    "is neither a name nor an IPv4 address": [
        "https://1.2.3", "https://127.1", "https://2130706433", "https://0177.0.0.1",
        "https://256.0.0.1", "https://1.2.3.4.5", "https://127.0.0.1.",
    ],
    "has an invalid host name": [
        "https://...", "https://.test", "https://a..b", "https://-a.test", "https://a-.test", "https://a,b.test",
        "https://a'b", "https://" + "a" * 64 + ".test", "https://" + "a." * 150 + "test",
    ],
    "has an invalid internationalized host name": [
        "https://xn--", "https://xn--a", "https://" + "é" * 300, "https://a\u202eb.test",
        "https://a\u200bb\u2066.test", "https://😀.test", "https://a\udcff.test", "https://ａ／b.test", "https://℀.test",
    ],
    "has a . or .. segment": [
        "https://api.test/..", "https://api.test/a/../b", "https://api.test/./a", "https://api.test/%2E%2e/a",
    ],
    "starts with //": ["https://api.test//evil"],
    "contains an unpaired surrogate": ["https://api.test/\ud800"],
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), NORMALIZED)
def test_a_base_url_has_one_normalized_form(text: str, expected: str) -> None:
    assert urls.base_url(text) == expected
    assert urls.base_url(expected) == expected
    assert str(httpx.URL(expected)) == expected


@pytest.mark.parametrize(("text", "flaw"), each(NO_BASE_URL))
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


@pytest.mark.parametrize(
    ("url", "exposed"),
    [
        ("http://api.test", True),
        ("https://api.test", False),
        ("http://127.0.0.9:8080", False),
        ("http://[::1]", False),
        ("http://localhost", False),
        ("http://api.localhost", False),
        ("http://notlocalhost", True),
        ("http://127.test", True),
        ("http://128.0.0.1", True),
        ("http://localhost.test", True),
    ],
)
def test_plain_http_beyond_this_machine_is_exposed(url: str, exposed: bool) -> None:
    assert urls.is_exposed(url) is exposed


# PATH and query

BASE = "https://api.test/x-api"
LANDS_ON = [
    ("/me", "https://api.test/x-api/me"), ("me", "https://api.test/x-api/me"), ("/", "https://api.test/x-api/"),
    ("me/", "https://api.test/x-api/me/"), ("/a//b", "https://api.test/x-api/a//b"),
    ("?a=1", "https://api.test/x-api/?a=1"), ("/me?a=1&b=2", "https://api.test/x-api/me?a=1&b=2"),
    ("/me?", "https://api.test/x-api/me?"),
    ("/me?to=https://x.test/?y", "https://api.test/x-api/me?to=https://x.test/?y"),
    ("/me?a=../..&b=%0d%0a&c=\\", "https://api.test/x-api/me?a=../..&b=%0d%0a&c=%5C"),
    ("/é ü", "https://api.test/x-api/%C3%A9%20%C3%BC"),
    ("/me?q=é ü+1", "https://api.test/x-api/me?q=%C3%A9%20%C3%BC+1"),
    ("/%C3%A9/%41", "https://api.test/x-api/%C3%A9/%41"), ("/100%/5%x", "https://api.test/x-api/100%25/5%25x"),
    ("/\udcff", "https://api.test/x-api/%FF"),
    ('/a[0]{x}|^`"<>', "https://api.test/x-api/a%5B0%5D%7Bx%7D%7C%5E%60%22%3C%3E"),
    ("/me;v=1,2:3@4!$&'()*+~", "https://api.test/x-api/me;v=1,2:3@4!$&'()*+~"),
    ("/...", "https://api.test/x-api/..."), ("/.hidden/..x", "https://api.test/x-api/.hidden/..x"),
    ("/a%5Cb", "https://api.test/x-api/a%5Cb"), ("/a%2Fb", "https://api.test/x-api/a%2Fb"),
    ("@evil.test", "https://api.test/x-api/@evil.test"), (".evil.test", "https://api.test/x-api/.evil.test"),
    (":8080", "https://api.test/x-api/:8080"), ("evil.test", "https://api.test/x-api/evil.test"),
    ("proxy/https://evil.test", "https://api.test/x-api/proxy/https://evil.test"),
    ("mailto:me@evil.test", "https://api.test/x-api/mailto:me@evil.test"), ("/C:/x", "https://api.test/x-api/C:/x"),
    ("https://api.test/me", "https://api.test/me"), ("https://api.test", "https://api.test/"),
    ("https://api.test?a=1", "https://api.test/?a=1"), ("HTTPS://API.TEST:443/me?a=1", "https://api.test/me?a=1"),
    ("https://api.test/x-api/é", "https://api.test/x-api/%C3%A9"),
]  # fmt: skip

NO_PATH = {
    "is empty": ["", " "],
    "starts with //": [
        "//evil.test", "//api.test/me", "///evil.test", "https://api.test//evil",
    ],
    "has a backslash": ["\\\\evil.test", "/\\evil.test", "a\\b", "https://api.test\\@evil.test/me"],
    "looks like a Windows file path": ["C:/Program Files/Git/x-api/me", "c:\\me"],
    "has the origin https://evil.test": ["https://evil.test/me"],
    "has the origin http://api.test": ["http://api.test/me"],
    "has the origin https://api.test:8443": ["https://api.test:8443/me"],
    "has the origin https://api.test.": ["https://api.test./me"],
    "has the origin https://api.test.evil.test": ["https://api.test.evil.test/me"],
    "has the origin https://sub.api.test": ["https://sub.api.test/me"],
    "has the origin https://[::1]": ["https://[::1]/me"],
    "has user info": ["https://CAN@api.test/me", "https://me:CAN@api.test/me", "https://api.test@evil.test/me"],
    "has a port that is not a number": ["https://api.test:x/me"],
    "has no host": ["https:///me"],
    "has the scheme 'ftp'": ["ftp://api.test/me"],
    "has the scheme 'file'": ["file:///etc/passwd"],
    "has a . or .. segment": [
        "https://api.test/../me", "..", "/..", "../token", "/a/./b", "/a/%2e%2E/b", "/a/.%2e/b",
    ],
    "has a fragment": ["/me#top", "/me?a=1#top", "https://api.test/#"],
    "has a control character (U+000A) at position 4": ["/me\n"],
    "has a control character (U+000D) at position 7": ["/me?a=\r\n"],
    "has a control character (U+0000)": ["/me\x00"],
    "has a control character (U+001B)": ["/me\x1b[31m"],
    "has a control character (U+009B)": ["/me\x9b"],
    "contains an unpaired surrogate": ["/\ud800"],
}  # fmt: skip


@pytest.mark.parametrize(("path", "expected"), LANDS_ON)
def test_a_path_is_resolved_below_the_base_url(path: str, expected: str) -> None:
    assert urls.resolve(BASE, path) == expected


@pytest.mark.parametrize(("path", "flaw"), each(NO_PATH))
def test_a_path_to_another_origin_is_rejected(path: str, flaw: str) -> None:
    with pytest.raises(UsageError) as caught:
        urls.resolve(BASE, path)

    assert caught.value.message.startswith(f"PATH {flaw}")
    assert "CAN" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_path_changed_by_a_windows_shell_has_a_hint() -> None:
    with pytest.raises(UsageError, match="MSYS_NO_PATHCONV=1, or omit the leading slash"):
        urls.resolve(BASE, "C:/Program Files/Git/x-api/me")


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


# redirects

FROM = "https://api.test/x-api/a/b?q=1"
JOINED = [
    ("c", "https://api.test/x-api/a/c"), ("c?d=e", "https://api.test/x-api/a/c?d=e"),
    ("./c", "https://api.test/x-api/a/c"), ("../c", "https://api.test/x-api/c"),
    ("../../../../c", "https://api.test/c"), ("..", "https://api.test/x-api/"), (".", "https://api.test/x-api/a/"),
    ("/", "https://api.test/"), ("/c/./d/../e", "https://api.test/c/e"), ("/..", "https://api.test/"),
    ("?q=2", "https://api.test/x-api/a/b?q=2"), ("#top", "https://api.test/x-api/a/b?q=1"),
    ("https://other.test/c#top", "https://other.test/c"), ("https://other.test#top?x", "https://other.test/"),
    ("//other.test/c?d#top", "https://other.test/c?d"), ("c#top", "https://api.test/x-api/a/c"),
    (" c\t", "https://api.test/x-api/a/c"), ("/é ü%zz", "https://api.test/%C3%A9%20%C3%BC%25zz"),
    ("//other.test/c", "https://other.test/c"), ("//other.test", "https://other.test/"),
    ("http://other.test:80/c", "http://other.test/c"), ("HTTPS://Other.Test", "https://other.test/"),
    ("https://other.test?x", "https://other.test/?x"), ("https://u:CAN@other.test/c", "https://other.test/c"),
    ("//u:CAN@other.test/c", "https://other.test/c"), ("https://api.test@other.test/", "https://other.test/"),
    ("/c?x=\\", "https://api.test/c?x=%5C"), ("/a:b", "https://api.test/a:b"),
    ("./a:b", "https://api.test/x-api/a/a:b"),
]  # fmt: skip

NO_TARGET = {
    "is empty": ["", " "],
    "has the scheme 'ftp'": ["ftp://other.test/"],
    "has the scheme 'file'": ["file:///etc/passwd"],
    "is not an http or https URL": ["javascript:alert(1)", "data:text/html,CAN", "http:c"],
    "is not a valid URL": ["https://[::1"],
    "has a port that is not a number": ["https://other.test:99999/", "https://other.test:CAN/"],
    "contains whitespace": ["https://oth er.test/"],
    "is neither a name nor an IPv4 address": ["https://127.1/"],
    "has a backslash": ["/\\other.test", "https:\\\\other.test", "https://other.test\\@api.test/"],
    "has a control character (U+001B)": ["/a\x1b[31m"],
    "has a control character (U+000D)": ["/a\r\nX: y"],
    "has a control character (U+0085)": ["/a\x85"],
    "contains an unpaired surrogate": ["/\ud800"],
}  # fmt: skip


@pytest.mark.parametrize(("location", "expected"), JOINED)
def test_a_redirect_is_resolved_as_in_rfc_3986(location: str, expected: str) -> None:
    assert urls.join(FROM, location) == expected


@pytest.mark.parametrize(("location", "flaw"), each(NO_TARGET))
def test_a_redirect_to_an_invalid_url_is_an_error_without_secrets(location: str, flaw: str) -> None:
    with pytest.raises(urls.InvalidURL) as caught:
        urls.join(FROM, location)

    assert flaw in str(caught.value)
    assert "CAN" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_redirect_to_an_endless_url_is_an_error() -> None:
    with pytest.raises(urls.InvalidURL, match="more than 65,536 characters"):
        urls.join(FROM, "/" + "a" * 70_000)


@given(st.one_of(TEXT, ARGUMENTS, HOSTILE))
def test_any_location_is_a_url_that_httpx_parses_identically_or_an_error(location: str) -> None:
    url = or_none(lambda: urls.join(FROM, location), urls.InvalidURL)
    if url is None:
        return

    assert str(httpx.URL(url)) == url
    assert origin_by_httpx(url) == urls.origin(url)
    assert httpx.URL(url).userinfo == b""
    assert urls.join(FROM, url) == url

import pytest

from xapi_cli.errors import UsageError
from xapi_cli.http.proxies import Proxy, proxy_for


def chosen(
    environ: dict[str, str], scheme: str = "https", host: str = "api.example.com", port: int = 443
) -> str | None:
    proxy = proxy_for(scheme, host, port, environ)
    return str(proxy) if proxy else None


@pytest.mark.parametrize(
    ("environ", "for_http", "for_https"),
    [
        ({}, None, None),
        ({"HTTP_PROXY": "http://one:1"}, "one:1", None),
        ({"HTTPS_PROXY": "http://two:2"}, None, "two:2"),
        ({"ALL_PROXY": "http://all:3"}, "all:3", "all:3"),
        ({"all_proxy": "http://all:3", "HTTPS_PROXY": "http://two:2"}, "all:3", "two:2"),
        ({"http_proxy": "http://low:1", "HTTP_PROXY": "http://up:1"}, "low:1", None),
        ({"https_proxy": "", "HTTPS_PROXY": "http://up:1", "ALL_PROXY": "http://all:3"}, "all:3", "up:1"),
        ({"HTTPS_PROXY": "", "ALL_PROXY": ""}, None, None),
        ({"HTTPS_PROXY": "  "}, None, None),
        ({"HTTP_PROXY": "http://evil:1", "REQUEST_METHOD": "GET"}, None, None),
        ({"http_proxy": "http://mine:1", "HTTP_PROXY": "http://evil:1", "REQUEST_METHOD": "GET"}, "mine:1", None),
        ({"HTTPS_PROXY": "http://two:2", "REQUEST_METHOD": "GET"}, None, "two:2"),
    ],
)
def test_the_proxy_variable_depends_on_the_scheme(
    environ: dict[str, str], for_http: str | None, for_https: str | None
) -> None:
    assert (chosen(environ, "http"), chosen(environ, "https")) == (for_http, for_https)


@pytest.mark.parametrize(
    ("value", "proxy"),
    [
        ("http://proxy", Proxy("proxy", 80)),
        ("proxy.example.com:3128", Proxy("proxy.example.com", 3128)),
        ("HTTP://PROXY:3128/", Proxy("proxy", 3128)),
        ("http://[::1]:3128", Proxy("::1", 3128)),
        (" http://127.0.0.1:1/ignored?x#y ", Proxy("127.0.0.1", 1)),
        ("http://bücher.example:8080", Proxy("xn--bcher-kva.example", 8080)),
        ("http://user:pass@proxy:1", Proxy("proxy", 1, b"Basic dXNlcjpwYXNz")),
        ("http://user@proxy:1", Proxy("proxy", 1, b"Basic dXNlcjo=")),
        ("user:p%40ss%3A%2f%C3%A9@proxy:1", Proxy("proxy", 1, b"Basic dXNlcjpwQHNzOi/DqQ==")),
        ("http://user:p@ss@proxy:1", Proxy("proxy", 1, b"Basic dXNlcjpwQHNz")),
    ],
)
def test_a_proxy_url_is_parsed(value: str, proxy: Proxy) -> None:
    assert proxy_for("https", "api.example.com", 443, {"HTTPS_PROXY": value}) == proxy


def test_a_proxy_shows_no_password() -> None:
    proxy = proxy_for("https", "api.example.com", 443, {"https_proxy": "http://user:hunter2@proxy:1"})
    assert str(proxy) == "proxy:1"
    assert "hunter2" not in repr(proxy)
    assert "aHVudGVyMg" not in repr(proxy)
    assert "Basic" not in repr(proxy)
    assert proxy is not None
    assert proxy.variable == "https_proxy"


def test_an_ipv6_proxy_is_shown_in_brackets() -> None:
    assert str(Proxy("::1", 3128)) == "[::1]:3128"


@pytest.mark.parametrize(
    ("value", "flaw"),
    [
        ("socks5://u:hunter2@proxy:1080", "is a SOCKS proxy, which xapi does not support"),
        ("https://u:hunter2@proxy:443", "has the scheme https, which xapi does not support"),
        ("ftp://u:hunter2@proxy", "has a scheme other than http"),
        ("http://", "has no host"),
        ("http://u:hunter2@", "has no host"),
        ("http://u:hunter2@proxy:0", "has a port that is not a number"),
        ("http://u:hunter2@proxy:port", "has a port that is not a number"),
        ("http://u:hunter2@[::1", "has a malformed IPv6 address"),
        ("http://u:hunter2@pro xy:1", "contains whitespace"),
        ("http://u:hunter2@pro\x1bxy:1", "has a control character"),
        ("http://u:hunter2@" + "x" * 300, "has an invalid host name"),
        ("::::", "has no host"),
    ],
)
def test_an_invalid_proxy_is_reported_by_its_variable_only(value: str, flaw: str) -> None:
    with pytest.raises(UsageError) as caught:
        proxy_for("https", "api.example.com", 443, {"ALL_PROXY": value})
    assert caught.value.message.startswith(f"the proxy in ALL_PROXY {flaw}")
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(caught.value.__context__)


def test_a_proxy_that_is_not_used_may_be_invalid() -> None:
    environ = {"HTTPS_PROXY": "socks5://x", "NO_PROXY": "example.com"}
    assert chosen(environ) is None


@pytest.mark.parametrize(
    ("no_proxy", "host", "port", "exempt"),
    [
        ("*", "api.example.com", 443, True),
        ("example.com", "api.example.com", 443, True),
        ("example.com", "example.com", 443, True),
        (".example.com", "api.example.com", 443, True),
        (".example.com", "example.com", 443, True),
        ("*.example.com", "api.example.com", 443, True),
        ("example.com", "api.example.com.", 443, True),
        ("example.com", "badexample.com", 443, False),
        ("api.example.com", "example.com", 443, False),
        ("a.test,,  example.com\tb.test", "example.com", 443, True),
        ("example.com:443", "api.example.com", 443, True),
        ("example.com:8443", "api.example.com", 443, False),
        ("", "api.example.com", 443, False),
        (".", "api.example.com", 443, False),
        ("localhost", "localhost", 80, True),
        ("localhost", "127.0.0.1", 80, False),
        ("", "localhost", 80, False),
        ("127.0.0.1", "127.0.0.1", 80, True),
        ("127.0.0.0/8", "127.9.9.9", 80, True),
        ("10.0.0.0/8", "11.0.0.1", 80, False),
        ("::1", "::1", 80, True),
        ("[::1]", "::1", 80, True),
        ("[::1]:80", "::1", 80, True),
        ("fd00::/8", "fd12::34", 80, True),
        ("fd00::/8", "fe12::34", 80, False),
        ("[::1,[,],300.1.1.1/99,example.com/8", "::2", 80, False),
        # a host name that ends in a digit is a name, not an address
        ("node1", "node1", 443, True),
        ("node1", "badnode1", 443, False),
        ("example.com2", "web-2.example.com2", 443, True),
        ("10.0.0.0/33", "10.0.0.0", 443, False),
    ],
)
def test_no_proxy_excludes_hosts(no_proxy: str, host: str, port: int, exempt: bool) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        environ = {"HTTPS_PROXY": "http://proxy:1", name: no_proxy}
        assert chosen(environ, host=host, port=port) == (None if exempt else "proxy:1")

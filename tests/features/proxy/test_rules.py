"""Which requests the proxy forwards, and to which URL."""

import base64

import pytest

from tests.features.proxy.test_incoming import parsed
from xapi_cli.errors import UsageError
from xapi_cli.features.proxy.incoming import Refusal
from xapi_cli.features.proxy.rules import Allowed, Rules

KEY, PORT = "the-key-of-the-proxy", 4000
RULES = Rules("https://api.test/v1", KEY)


def url_of(rules: Rules, line: str, *headers: str, host: str = f"127.0.0.1:{PORT}", port: int | None = PORT) -> str:
    return rules.url_of(parsed(line, f"Host: {host}", *headers), port=port)


def refused(rules: Rules, line: str, *headers: str, host: str = f"127.0.0.1:{PORT}", port: int | None = PORT) -> int:
    with pytest.raises(Refusal) as caught:
        url_of(rules, line, *headers, host=host, port=port)
    return caught.value.status


WITH_KEY = f"Authorization: Bearer {KEY}"


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("/v1/me?a=b", "https://api.test/v1/me?a=b"),
        ("/", "https://api.test/"),
        ("/v1/me?a=b&q=***", "https://api.test/v1/me?a=b&q=***"),
        (f"http://127.0.0.1:{PORT}/v1/me", "https://api.test/v1/me"),
        ("https://api.test/v1/me", "https://api.test/v1/me"),
    ],
)
def test_the_target_is_that_of_the_api(target: str, url: str) -> None:
    assert url_of(RULES, f"GET {target} HTTP/1.1", WITH_KEY) == url


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://evil.test/v1/me", 421),
        ("https://api.test:444/v1/me", 421),
        ("//evil.test/me", 400),
        ("/v1/../admin", 400),
        ("/v1/%2e%2e/admin", 400),
        ("*", 421),
        ("evil.test:443", 421),
    ],
)
def test_a_target_that_leads_elsewhere_is_refused(target: str, status: int) -> None:
    assert refused(RULES, f"GET {target} HTTP/1.1", WITH_KEY) == status


@pytest.mark.parametrize("header", ["X: y", "Authorization: Bearer \xe2\x82\xac", f"Authorization: Basic {KEY}"])
def test_a_request_without_the_key_is_refused(header: str) -> None:
    assert refused(RULES, "GET / HTTP/1.1", header) == 401


@pytest.mark.parametrize("host", ["evil.test", "127.0.0.1", "127.0.0.1:4001", "127.0.0.1.evil.test:4000", "a@b:4000"])
def test_a_foreign_host_is_refused(host: str) -> None:
    assert refused(RULES, "GET / HTTP/1.1", WITH_KEY, host=host) == 421


def test_a_request_of_a_web_page_is_refused() -> None:
    assert refused(RULES, "GET / HTTP/1.1", WITH_KEY, "Origin: http://127.0.0.1:4000") == 403
    assert refused(RULES, "GET / HTTP/1.1", WITH_KEY, "Origin: null", host="localhost", port=None) == 403


@pytest.mark.parametrize("host", ["localhost", "xapi", "api.test", "127.0.0.1:9"])
def test_a_unix_socket_needs_no_key(host: str) -> None:
    assert url_of(RULES, "GET /v1 HTTP/1.1", host=host, port=None) == "https://api.test/v1"


def test_a_unix_socket_refuses_a_foreign_host() -> None:
    assert refused(RULES, "GET /v1 HTTP/1.1", host="evil.test", port=None) == 421


def test_connect_trace_and_upgrade_are_refused_but_not_the_upgrade_that_java_offers() -> None:
    assert refused(RULES, "CONNECT api.test:443 HTTP/1.1", WITH_KEY) == 403
    assert refused(RULES, "TRACE /v1/me HTTP/1.1", WITH_KEY) == 403
    assert refused(RULES, "trace /v1/me HTTP/1.1", WITH_KEY) == 403  # some servers do not distinguish upper case
    assert refused(RULES, "GET / HTTP/1.1", WITH_KEY, "Connection: Upgrade", "Upgrade: websocket") == 403
    assert refused(RULES, "TRACK /v1/me HTTP/1.1", WITH_KEY) == 403
    for offer in ("h2c", "TLS/1.2"):
        assert url_of(RULES, "GET / HTTP/1.1", WITH_KEY, "Connection: Upgrade", f"Upgrade: {offer}")


def test_the_key_is_also_accepted_as_the_password_of_basic_authentication() -> None:
    credentials = base64.b64encode(f"any:{KEY}".encode()).decode()

    assert url_of(RULES, "GET /v1 HTTP/1.1", f"Authorization: Basic {credentials}")
    assert refused(RULES, "GET /v1 HTTP/1.1", f"Authorization: Basic {base64.b64encode(b'any:x').decode()}") == 401


def test_after_its_time_every_request_is_refused() -> None:
    assert refused(RULES._replace(expires=0), "GET /v1 HTTP/1.1", WITH_KEY) == 401


@pytest.mark.parametrize(
    "path",
    [
        "/v1/..%3b/a",
        "/v1/..%253ba/a",
        "/v1/%252e%252e/a",
        "/v1/..%255ca",
        "/v1/%2500",
        "/v1/%c0%ae%c0%ae/a",
        "/v1/%250a",
    ],
)
def test_a_path_that_a_server_may_decode_into_another_one_is_not_allowed(path: str) -> None:
    rules = RULES._replace(allowed=[Allowed.parse("GET /v1/*")])

    assert refused(rules, f"GET {path} HTTP/1.1", WITH_KEY) in (400, 403)


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "x_method_override", "X-Original-URL", "X-Rewrite-URL"])
def test_a_header_that_selects_another_method_or_path_is_refused_with_allow(name: str) -> None:
    rules = RULES._replace(allowed=[Allowed.parse("POST /v1/*")])

    assert refused(rules, "POST /v1/a HTTP/1.1", WITH_KEY, f"{name}: /admin") == 403
    assert url_of(RULES, "POST /v1/a HTTP/1.1", WITH_KEY, f"{name}: /admin")


def test_only_what_is_allowed_is_forwarded() -> None:
    rules = RULES._replace(allowed=[Allowed.parse("get /v1/*"), Allowed.parse("* /health")])

    assert url_of(rules, "GET /v1/a/b?c=d HTTP/1.1", WITH_KEY)
    assert url_of(rules, "DELETE /health HTTP/1.1", WITH_KEY)
    for line in ("POST /v1/a HTTP/1.1", "GET /v2/a HTTP/1.1", "GET /health/x HTTP/1.1", "GET /v1 HTTP/1.1"):
        assert refused(rules, line, WITH_KEY) == 403


def test_read_only_forwards_only_methods_that_change_nothing() -> None:
    rules = RULES._replace(is_read_only=True)

    assert url_of(rules, "GET /v1 HTTP/1.1", WITH_KEY)
    assert refused(rules, "DELETE /v1 HTTP/1.1", WITH_KEY) == 403
    assert refused(rules, "GET /v1 HTTP/1.1", WITH_KEY, "X-HTTP-Method-Override: DELETE") == 403


@pytest.mark.parametrize("text", ["", "GET", "/x", "GET x", "GET /x?y", "G=T /x", "GET /x /y"])
def test_a_rule_that_is_not_valid_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not METHOD PATH"):
        Allowed.parse(text)

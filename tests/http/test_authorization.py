"""The headers that authenticate a request, and the header of the user that replaces them."""

import pytest

from xapi_cli.http import authorization
from xapi_cli.http.connection import Route
from xapi_cli.http.proxies import Proxy
from xapi_cli.tokens import Token

TOKEN = (b"Authorization", b"Bearer abc")
CREDENTIALS = (b"Proxy-Authorization", b"Basic dTpw")


@pytest.mark.parametrize(
    "scheme, secret, token, expected",
    [
        ("http", None, Token("abc"), [TOKEN]),
        ("http", b"Basic dTpw", Token("abc"), [TOKEN, CREDENTIALS]),
        ("http", b"Basic dTpw", None, [CREDENTIALS]),
        ("https", b"Basic dTpw", Token("abc"), [TOKEN]),  # CONNECT has sent the credentials
        ("https", None, None, []),
    ],
)
def test_a_proxy_gets_its_credentials_with_each_request_that_is_not_encrypted(
    scheme: str, secret: bytes | None, token: Token | None, expected: list[tuple[bytes, bytes]]
) -> None:
    proxy = Proxy("http", "proxy.test", 8080, secret, "HTTP_PROXY")

    assert authorization.headers(token, Route(scheme, "api.test", 80, proxy)) == expected


def test_without_a_proxy_only_the_token_is_sent() -> None:
    assert authorization.headers(Token("abc"), Route("http", "api.test", 80)) == [TOKEN]
    assert authorization.headers(Token("abc")) == [TOKEN]


@pytest.mark.parametrize(
    "headers, is_set",
    [
        ([], False),
        ([("Accept", "*/*")], False),
        ([("Proxy-Authorization", "x")], False),
        ([("Accept", "*/*"), ("AUTHORIZATION", "Basic x")], True),
        ([("authorization", None)], True),  # removed
    ],
)
def test_the_user_sets_or_removes_the_header(headers: list[tuple[str, str | None]], is_set: bool) -> None:
    assert authorization.is_set_by_user(headers) == is_set

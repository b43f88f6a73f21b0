"""How a request is authenticated: the headers that send the token to the API and the credentials of a proxy to it."""

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xapi_cli.http.connection import Route
    from xapi_cli.tokens import Token

NAME = "Authorization"  # of the header that has the token


def value(token: "Token") -> str:
    """Return the value of the header that sends *token* (RFC 6750, 2.1)."""
    return f"Bearer {token.access_token}"


def headers(token: "Token | None", route: "Route | None" = None) -> list[tuple[bytes, bytes]]:
    """Return the headers that authenticate a request with *token* over *route*.

    A proxy gets its credentials with each request that is not encrypted, otherwise once per connection (CONNECT).
    """
    found = [] if token is None else [(NAME.encode("ascii"), value(token).encode("ascii"))]
    if route is not None and route.proxy and route.proxy.authorization and route.is_forwarded:
        found.append((b"Proxy-Authorization", route.proxy.authorization))
    return found


def is_set_by_user(headers: Collection[tuple[str, object]]) -> bool:
    """Return whether the user sets or removes the header Authorization in *headers*; then no token is sent."""
    return bool(headers) and NAME.lower() in [name.lower() for name, _ in headers]


def no_login_hint(what: str) -> str:
    """Return the hint for a 401 to *what*, a request or a line in which the user sets or removes the header."""
    return f"the {what} sets or removes the {NAME} header, so xapi did not log in"

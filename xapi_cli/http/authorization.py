"""How a request is authenticated: the header that sends the token to the API."""

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xapi_cli.tokens import Token

NAME = "Authorization"  # of the header that has the token
NO_LOGIN_HINT = f"the request sets or removes the {NAME} header, so xapi did not log in"


def value(token: "Token") -> str:
    """Return the value of the header that sends *token* (RFC 6750, 2.1)."""
    return f"Bearer {token.access_token}"


def headers(token: "Token | None") -> list[tuple[bytes, bytes]]:
    """Return the headers that authenticate a request with *token*."""
    return [] if token is None else [(NAME.encode("ascii"), value(token).encode("ascii"))]


def is_set_by_user(headers: Collection[tuple[str, object]]) -> bool:
    """Return whether the user sets or removes the header Authorization in *headers*; then no token is sent."""
    return bool(headers) and NAME.lower() in [name.lower() for name, _ in headers]

"""The 401 flow (RFC 6750): send the current token; after a 401, renew it once and resend the request."""

from collections.abc import Callable, Generator
from typing import NoReturn

import httpx

from xapi_cli.tokens import Token


class BearerAuth(httpx.Auth):
    """Send the *current* token; after a 401, *renew* it once and resend the request.

    *renew* receives the rejected token. It returns a newer token, raises the error that ends the call, or returns None
    if the 401 is final. A second 401 is final too, even for another request.
    """

    def __init__(self, current: Callable[[], Token], renew: Callable[[Token], Token | None]) -> None:
        self._current, self._renew = current, renew
        self.replays = 0

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """Send *request*, at most twice; its stream must return the same body each time it is read."""
        token = self._current()
        response = yield _bearing(request, token)
        if response.status_code != httpx.codes.UNAUTHORIZED:
            return
        newer = self._renew(token)
        if newer is None:
            return
        self.replays += 1
        _discard(response)
        yield _bearing(request, newer)

    def async_auth_flow(self, request: httpx.Request) -> NoReturn:
        """Raise NotImplementedError: the inherited flow would send no token."""
        raise NotImplementedError("use httpx.Client: an AsyncClient would send no token")


def _bearing(request: httpx.Request, token: Token) -> httpx.Request:
    request.headers["Authorization"] = f"Bearer {token.access_token}"
    return request


def _discard(response: httpx.Response) -> None:
    """Discard the body of the 401, which httpx would read completely before it resends: it may be endless."""
    if (discard := response.extensions.get("discard")) is not None:
        discard()

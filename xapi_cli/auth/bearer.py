"""The 401 flow: send the current token; after a 401 renew it, once, and send the same request again (RFC 6750)."""

from collections.abc import Callable, Generator
from typing import NoReturn

import httpx

from xapi_cli.tokens import Token


class BearerAuth(httpx.Auth):
    """Send the *current* token; after a 401, *renew* it once and send again.

    *renew* takes the rejected token and gives a newer one, or raises what is
    to end the call. It returns None where the 401 is to stand: it is the
    server's last word then, as is a second one, even on another request.
    """

    def __init__(self, current: Callable[[], Token], renew: Callable[[Token], Token | None]) -> None:
        self._current, self._renew = current, renew
        self.replays = 0

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """Drive *request*; its stream must give the same body each time it is read."""
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
        """Refuse: the inherited flow would send no token at all."""
        raise NotImplementedError("use httpx.Client: an AsyncClient would send no token")


def _bearing(request: httpx.Request, token: Token) -> httpx.Request:
    request.headers["Authorization"] = f"Bearer {token.access_token}"
    return request


def _discard(response: httpx.Response) -> None:
    """Drop the body of the 401, which httpx would read whole before it sends again: it may be endless."""
    if (discard := response.extensions.get("discard")) is not None:
        discard()

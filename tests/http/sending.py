"""A sender whose server and tokens are fakes that record what they receive."""

from typing import Any

import httpx
import respx

from tests.support.routed_transport import RoutedTransport
from xapi_cli.errors import XapiError
from xapi_cli.http.send import Sender
from xapi_cli.tokens import Token

BASE = "https://api.test/v1"
USER_HEADERS = (("X-Mine", "canary-header"), ("Content-Type", "text/csv"))


class Tokens:
    """Return `token-1`, and after *logins* logins no newer one; raise *error* after a 401, or with *first*, at once."""

    def __init__(self, error: XapiError | None = None, *, first: bool = False, logins: int = 1) -> None:
        self.calls: list[object] = []
        self.sent_at: list[float] = []  # of the rejected requests
        self._error, self._first, self._logins, self._number = error, first, logins, 1

    def current(self) -> Token:
        if self._error and self._first:
            raise self._error
        return Token(f"token-{self._number}")

    def accepted(self, token: Token, status: int, sent_at: float, repeat: Any) -> None:
        self.calls.append((token.access_token, status, repeat is not None))

    def renew(self, rejected: Token, sent_at: float) -> Token | None:
        self.calls.append("renew")
        self.sent_at.append(sent_at)
        if self._error:
            raise self._error
        if self._number > self._logins:
            return None
        self._number += 1
        return self.current()

    def record_rejection(self) -> None:
        self.calls.append("record_rejection")

    def advice(self) -> str:
        return "check the account"


Sent = tuple[str, str, str | None, str | None, bytes]


class Router(respx.Router):
    """Record method, URL, token, the user's header and the body of each request when it is sent."""

    def __init__(self) -> None:
        super().__init__(assert_all_called=False)
        self.sent: list[Sent] = []

    def handler(self, request: httpx.Request) -> httpx.Response:
        token, mine = (request.headers.get(name) for name in ("Authorization", "X-Mine"))
        self.sent.append((request.method, str(request.url), token, mine, request.read()))
        return super().handler(request)


def sender_for(router: Router, **more: Any) -> Sender:
    """Return a sender to *router*; *more* are its options."""
    options: dict[str, Any] = {"tokens": Tokens(), "wait": lambda seconds: None} | more
    return Sender(RoutedTransport(router.handler), BASE, **options)

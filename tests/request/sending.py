"""A sender whose server and credentials are fakes that record what they receive."""

from typing import Any

import httpx
import respx

from tests.support.routed_transport import RoutedTransport
from xapi_cli.auth.token_source import TokenSource
from xapi_cli.errors import XapiError
from xapi_cli.request.send import Sender
from xapi_cli.tokens import Token

BASE = "https://api.test/v1"
USER_HEADERS = (("X-Mine", "canary-header"), ("Content-Type", "text/csv"))


class Credentials:
    """Return `token-1`, after a 401 `token-2`; raise *error* after a 401, or with *first*, immediately."""

    login_reason = None
    automatic = True

    def __init__(self, error: XapiError | None = None, *, first: bool = False) -> None:
        self.calls: list[str] = []
        self._error, self._first = error, first

    def newer(self, than: Token) -> Token | None:
        return None

    def is_fresh(self, token: Token) -> bool:
        return False

    def check(self) -> None:
        """Do nothing: a token is always available."""

    def current(self) -> Token:
        self.calls.append("current")
        if self._error and self._first:
            raise self._error
        return Token("token-1" if "renew" not in self.calls else "token-2")

    def renew(self, rejected: Token) -> Token | None:
        self.calls.append("renew")
        if self._error:
            raise self._error
        return Token("token-2") if self.calls.count("renew") == 1 else None

    def record_rejection(self, token: Token) -> None:
        self.calls.append("record_rejection")

    def record_success(self, *, after_rejection: bool) -> None:
        """Do nothing: no rejection is recorded."""

    def has_expired(self, token: Token) -> bool:
        return False


def tokens_of(account: Any) -> TokenSource:
    """Return the source of the tokens of *account*, a fake."""
    return TokenSource(account)


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


def _no_wait(seconds: float) -> None:
    pass


def sender_for(router: Router, **more: Any) -> Sender:
    """Return a sender to *router*; *more* are its options."""
    options: dict[str, Any] = {"tokens": tokens_of(Credentials()), "sleep": _no_wait} | more
    return Sender(RoutedTransport(router.handler), BASE, **options)

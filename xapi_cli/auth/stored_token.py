"""The stored token of an account for requests: most calls send it, and need nothing of what a login takes."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from xapi_cli.tokens import Token

if TYPE_CHECKING:
    from xapi_cli.auth.account import Account
    from xapi_cli.auth.credentials import Reason, Source
    from xapi_cli.store.repository import TokenRepository


class StoredToken:
    """The token of an account: the stored one while it lasts, otherwise one from a login.

    *open_account* returns the account, which logs in. Most calls need no login: they do not import what it takes.
    """

    def __init__(
        self, repository: "TokenRepository", open_account: "Callable[[], Account]", *, now: Callable[[], datetime]
    ) -> None:
        self.repository = repository
        self._open_account, self._now = open_account, now
        self._opened: Account | None = None
        repository.check_settings()  # those that are not usable fail before the first line of a batch

    @property
    def login_reason(self) -> "Reason | None":
        """The reason for this process's login, or None if it did not log in."""
        return self._opened.login_reason if self._opened else None

    @property
    def source(self) -> "Source":
        """Where the token comes from."""
        return self._opened.source if self._opened else "store"

    def check(self) -> None:
        """Raise what `current` raises if there is neither a token nor a way to get one; send nothing."""
        if self._lasting(0) is None:
            self._account.check()

    def stored(self) -> Token | None:
        """Return the stored token in any state, without a login."""
        return record.token if (record := self.repository.read()) else None

    def current(self) -> Token:
        """Return the token for a request, even one that was rejected: the response shows whether it still is."""
        return self._lasting(0) or self._account.token()

    def token(self, *, min_ttl: float = 0, fresh: bool = False) -> Token:
        """Return a token for another program, but none that was rejected, unless automatic login is disabled.

        With *fresh*, it is always a new one. It has at least *min_ttl* seconds left, if possible.
        """
        token = None if fresh else self._lasting(min_ttl)
        if token is None or self.repository.is_rejected(token):
            return self._account.token(min_ttl=min_ttl, fresh=fresh)
        return token

    def renew(self, rejected: Token) -> Token | None:
        """Return what `Account.renew` returns; record the rejection unless another token has taken its place."""
        newer = None
        try:
            newer = self._account.renew(rejected)
        finally:
            if newer is None:
                self.repository.record_rejection(rejected)
        return newer

    def newer(self, than: Token) -> Token | None:
        """Return the token that another process has stored in place of *than*, or None; never log in."""
        return self._account.newer(than)

    def is_fresh(self, token: Token) -> bool:
        """Return whether *token* comes from this process's last login."""
        return self._opened is not None and self._opened.is_fresh(token)

    def record_rejection(self, token: Token) -> None:
        """Record a final 401 for *token*, and, if it comes from a login, what `Account.record_rejection` does."""
        self.repository.record_rejection(token)
        if self._opened is not None:
            self._opened.record_rejection()

    def record_success(self) -> None:
        """Record that the API accepted the token; nothing is written unless its rejection was recorded."""
        self.repository.forget_rejection()

    def advice(self) -> str:
        """Return a hint for the user about a final 401."""
        return self._account.advice()

    @property
    def _account(self) -> "Account":
        if self._opened is None:
            self._opened = self._open_account()
        return self._opened

    def _lasting(self, seconds: float) -> Token | None:
        """Return the stored token if it has *seconds* left."""
        record = self.repository.read()
        return record.token if record and record.token.lasts(self._now(), seconds) else None

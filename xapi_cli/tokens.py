"""Value types: the account, its token, and the record that a store holds.

A value type that every command creates, and that has nothing to hide from its repr, is a NamedTuple, here and in other
modules: a dataclass takes 0.4 ms longer to define.
"""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple


def is_access_token(text: str) -> bool:
    """Return whether *text* can be a bearer token: visible ASCII and not empty (RFC 6750, 2.1, allows a part of it)."""
    return text.isascii() and text.isprintable() and " " not in text and bool(text)


class Identity(NamedTuple):
    """An account: a normalized base URL (see `urls.base_url`) and a username, compared exactly."""

    base_url: str
    username: str

    @property
    def key(self) -> str:
        """The name for files of this account: 32 hexadecimal digits that do not reveal the account."""
        return hashlib.sha256(f"{self.base_url}\0{self.username}".encode("utf-8", "surrogateescape")).hexdigest()[:32]


@dataclass(frozen=True)
class Token:
    """A bearer token; times are aware UTC, and *expires_at* is None if unknown."""

    access_token: str = field(repr=False)
    token_type: str = "bearer"
    obtained_at: datetime | None = None
    expires_at: datetime | None = None

    @property
    def authorization(self) -> str:
        """The value of the header that authenticates a request (RFC 6750, 2.1)."""
        return f"Bearer {self.access_token}"

    def seconds_left(self, now: datetime) -> int | None:
        """Return the whole seconds until expiry, negative after it, or None if unknown."""
        return None if self.expires_at is None else (self.expires_at - now) // timedelta(seconds=1)

    def lasts(self, now: datetime, seconds: float = 0) -> bool:
        """Return whether the token has not expired and has at least *seconds* left; True if the expiry is unknown."""
        if self.expires_at is None:
            return True
        left = self.expires_at - now
        return left > timedelta(0) and left >= timedelta(seconds=seconds)


@dataclass(frozen=True)
class Record:
    """The stored data of one account: its token and, with the user's consent, the password."""

    token: Token
    password: str | None = field(default=None, repr=False)

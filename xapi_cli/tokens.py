"""Plain values: whose token it is, the token, and the record a store keeps.

Where every command makes one and nothing has to stay out of its repr, a value
is a NamedTuple, here and elsewhere: a dataclass takes 0.4 ms longer to define.
"""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple


class Identity(NamedTuple):
    """An account: a normalised base URL (see `urls.base_url`) and a username, compared exactly."""

    base_url: str
    username: str

    @property
    def key(self) -> str:
        """A name for files of this account: 32 hexadecimal digits that tell nothing about it."""
        return hashlib.sha256(f"{self.base_url}\0{self.username}".encode("utf-8", "surrogateescape")).hexdigest()[:32]


@dataclass(frozen=True)
class Token:
    """A bearer token; times are aware UTC, *expires_at* is None when unknown."""

    access_token: str = field(repr=False)
    token_type: str = "bearer"
    obtained_at: datetime | None = None
    expires_at: datetime | None = None

    def seconds_left(self, now: datetime) -> int | None:
        """Return the whole seconds until expiry, negative when past it, None when unknown."""
        return None if self.expires_at is None else (self.expires_at - now) // timedelta(seconds=1)

    def lasts(self, now: datetime, seconds: float = 0) -> bool:
        """Tell whether the token is not expired and has at least *seconds* left; an unknown expiry has any."""
        if self.expires_at is None:
            return True
        left = self.expires_at - now
        return left > timedelta(0) and left >= timedelta(seconds=seconds)


@dataclass(frozen=True)
class Record:
    """What a store keeps for one account: its token and, with the person's consent, the password."""

    token: Token
    password: str | None = field(default=None, repr=False)

"""Value types: the account, its token, and the record that a store holds, with its text.

The text of a record is JSON in ASCII, which every backend stores unchanged; any other text is not a record.

A value type that every command creates is a NamedTuple, here and in other modules: a dataclass takes 0.4 ms longer to
define. What its repr must not show is left out there.
"""

import json
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from xapi_cli.errors import StoreError
from xapi_cli.hints import Option

MAX_RECORD = 256 * 1024  # characters; a record is little longer than its token, and 64 KiB are guaranteed for that
_VERSION = 1  # of the text of a record


def is_access_token(text: str) -> bool:
    """Return whether *text* can be a bearer token: visible ASCII and not empty (RFC 6750, 2.1, allows a part of it)."""
    return text.isascii() and text.isprintable() and " " not in text and bool(text)


@cache
def sha256(text: str) -> str:
    """Return the SHA-256 digest of *text*, which is not secret, in hexadecimal."""
    import hashlib  # loads OpenSSL

    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


class Identity(NamedTuple):
    """An account: a normalized base URL (see `urls.base_url`) and a username, compared exactly."""

    base_url: str
    username: str

    @property
    def key(self) -> str:
        """The name for files of this account: 32 hexadecimal digits that do not reveal the account."""
        return sha256(f"{self.base_url}\0{self.username}")[:32]


class Token(NamedTuple):
    """A bearer token; times are aware UTC, and *expires_at* is None if unknown."""

    access_token: str
    token_type: str = "bearer"
    obtained_at: datetime | None = None
    expires_at: datetime | None = None

    def __repr__(self) -> str:
        return f"Token(obtained_at={self.obtained_at!r}, expires_at={self.expires_at!r})"

    def seconds_left(self, now: datetime) -> int | None:
        """Return the whole seconds until expiry, negative after it, or None if unknown."""
        return None if self.expires_at is None else (self.expires_at - now) // timedelta(seconds=1)

    def lasts(self, now: datetime, seconds: float = 0) -> bool:
        """Return whether the token has not expired and has at least *seconds* left; True if the expiry is unknown."""
        if self.expires_at is None:
            return True
        left = self.expires_at - now
        return left > timedelta(0) and left >= timedelta(seconds=seconds)


class Record(NamedTuple):
    """The stored data of one account: its token and, with the user's consent, the password."""

    token: Token
    password: str | None = None

    def __repr__(self) -> str:
        return f"Record({self.token!r})"


def encode_record(identity: Identity, record: Record) -> str:
    """Return *record* of the account *identity* as text; raise StoreError if it is too long."""
    token = record.token
    members = {
        "version": _VERSION,
        "base_url": identity.base_url,
        "username": identity.username,
        "access_token": token.access_token,
        "token_type": token.token_type,
        "obtained_at": _text_of(token.obtained_at),
        "expires_at": _text_of(token.expires_at),
    }
    if record.password is not None:
        members["password"] = record.password
    text = json.dumps(members)
    if len(text) > MAX_RECORD:
        raise StoreError("the token is too long to be stored", hint=("use ", Option("storage"), " none"))
    return text


def decode_record(identity: Identity, text: str | None) -> Record | None:
    """Return the record of the account *identity* in *text*, or None if *text* is not a valid record of it."""
    if text is None or len(text) > MAX_RECORD:
        return None
    try:
        return _record(identity, json.loads(text))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _record(identity: Identity, members: Any) -> Record:
    """Return the record made of *members*; raise what `decode_record` catches if they are not valid."""
    token, password = members["access_token"], members.get("password")
    is_valid = (
        (members["version"], members["base_url"], members["username"]) == (_VERSION, *identity)
        and members["token_type"] == "bearer"
        and isinstance(token, str)
        and is_access_token(token)
        and (password is None or (isinstance(password, str) and password))
    )
    if not is_valid:
        raise ValueError
    if password is not None:
        password.encode("utf-8", "surrogateescape")  # surrogates stand for bytes (PEP 383); raises for any other
    times = _time_of(members["obtained_at"]), _time_of(members["expires_at"])
    return Record(Token(token, "bearer", *times), password)


def _text_of(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _time_of(value: Any) -> datetime | None:
    if value is None:
        return None
    time = datetime.fromisoformat(value)
    if time.tzinfo is None:
        raise ValueError
    return time.astimezone(UTC)

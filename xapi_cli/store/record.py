"""A record as text: JSON in ASCII, which every backend stores unchanged; any other text is not a record."""

import json
from datetime import UTC, datetime
from typing import Any

from xapi_cli.errors import StoreError
from xapi_cli.tokens import Identity, Record, Token, is_access_token

LIMIT = 256 * 1024  # characters; a record is little longer than its token, and 64 KiB are guaranteed for that
_VERSION = 1


def encode(identity: Identity, record: Record) -> str:
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
    if len(text) > LIMIT:
        raise StoreError("the token is too long to be stored", hint="use --storage none")
    return text


def decode(identity: Identity, text: str | None) -> Record | None:
    """Return the record of the account *identity* in *text*, or None if *text* is not a valid record of it."""
    if text is None or len(text) > LIMIT:
        return None
    try:
        return _record(identity, json.loads(text))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _record(identity: Identity, members: Any) -> Record:
    """Return the record made of *members*; raise one of the errors that `decode` catches if they are not valid."""
    version, base_url, username = members["version"], members["base_url"], members["username"]
    if type(version) is not int or (version, base_url, username) != (_VERSION, identity.base_url, identity.username):
        raise ValueError
    token = Token(
        access_token=_visible(members["access_token"]),
        token_type=_bearer(members["token_type"]),
        obtained_at=_time_of(members["obtained_at"]),
        expires_at=_time_of(members["expires_at"]),
    )
    password = members.get("password")
    return Record(token, None if password is None else _non_empty(password))


def _visible(value: Any) -> str:
    """Return *value* if it is valid in a header field, that is, visible ASCII; raise ValueError otherwise."""
    if not is_access_token(_non_empty(value)):
        raise ValueError
    return str(value)


def _bearer(value: Any) -> str:
    """Return *value* if it is the token type that xapi stores; raise ValueError otherwise."""
    if value != "bearer":
        raise ValueError
    return "bearer"


def _non_empty(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _text_of(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _time_of(value: Any) -> datetime | None:
    if value is None:
        return None
    time = datetime.fromisoformat(value)
    if time.tzinfo is None:
        raise ValueError
    return time.astimezone(UTC)

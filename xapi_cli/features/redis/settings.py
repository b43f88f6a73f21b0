"""The settings of storage `redis`: which values are valid."""

import re

from xapi_cli.errors import UsageError
from xapi_cli.system.render import printable

_PREFIX = r"[A-Za-z0-9._+@:/-]{1,100}"


def address(text: str) -> str:
    """Return *text* if it is the URL of a Redis server; raise UsageError, which does not contain it, otherwise."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        place = parts.path if parts.scheme == "unix" else parts.hostname and parts.port != 0
        if place and parts.scheme in ("redis", "rediss", "unix") and text.isprintable():
            return text
    except ValueError:
        pass  # raised below, so that no exception with the password is attached
    hint = "write it as redis://HOST:PORT/DATABASE, rediss://HOST for TLS, or unix:///PATH?db=DATABASE"
    raise UsageError("the Redis URL is not valid", hint=hint)


def address_without_password(text: str) -> str:
    """Return *text* as `address` does; raise UsageError if it contains a password."""
    if ":" in text.partition("://")[2].rpartition("@")[0]:
        raise UsageError(
            "the Redis URL contains a password, which must not be in the config file",
            hint="give the URL with the password in XAPI_REDIS_URL, or set redis_password_command",
        )
    return address(text)


def prefix(text: str) -> str:
    """Return *text* if it can be the start of the names of keys; raise UsageError otherwise."""
    if not re.fullmatch(_PREFIX, text):
        raise UsageError(
            f"{printable(text)!r} is not a valid prefix of Redis keys",
            hint="use at most 100 letters, digits and the characters . _ - + @ : /",
        )
    return text

"""The errors that a Redis server replies with, as errors of the store.

The text of a reply is never shown: a server may echo the command, which contains the password or a token.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from xapi_cli.errors import StoreError
from xapi_cli.http.urls import InvalidURL, host_and_port

T = TypeVar("T")


class ServerError(Exception):
    """An error reply; its text is not fit for messages."""

    @property
    def code(self) -> str:
        """The known code in the text, or an empty text; inside a script, older servers put other text before it."""
        text = str(self)
        for words, code in _WORDS.items():
            if words in text:
                return code
        found = _CODE.search(text)
        return found[0] if found else ""

    @property
    def is_transient(self) -> bool:
        """Whether the command may succeed a moment later."""
        if self.redirect:  # nodes disagree until each one knows that a slot was moved
            return True
        return self.code in {"LOADING", "BUSY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "max number of clients"}

    @property
    def redirect(self) -> "Redirect | None":
        """The node of a cluster that has the key, if the reply names one and it is valid."""
        found = re.fullmatch(r"(MOVED|ASK) \d+ (.*):(\d{1,5})", str(self))
        if not found:
            return None
        kind, name, port = found.groups()
        try:
            host, number = host_and_port(f"[{name}]:{port}" if ":" in name else f"{name or 'same'}:{port}")
        except InvalidURL:
            return None
        return Redirect(host if name else "", number, kind == "ASK") if number else None


class Redirect(NamedTuple):
    """The host and port of another node; the host is empty if it is the same.

    With *asking*, the key is being moved there: the node accepts a command for it only after the command ASKING.
    """

    host: str
    port: int
    asking: bool


_PROBLEMS = {
    "WRONGTYPE": (
        "has a value of another type at the key {key}",
        "delete it if nothing else uses it, or set another redis_prefix",
    ),
    "unknown command": (
        "does not know a command that xapi needs",
        "use Redis 6 or later, or Valkey, in which no command is renamed",
    ),
    "killed": ("stopped the script of xapi (SCRIPT KILL)", "try again"),
    "NOAUTH": ("requires a password", "add it to XAPI_REDIS_URL, or set redis_password_command"),
    "WRONGPASS": ("rejected the username or password", "correct XAPI_REDIS_URL or redis_password_command"),
    "NOPASSWORD": ("has no password for this user", "omit it in XAPI_REDIS_URL, or give the username too"),
    "NOPERM": (
        "does not allow this user to run the commands that xapi needs",
        'grant them with ACL SETUSER (see "Many machines" in the documentation)',
    ),
    "key pattern": (
        "does not allow this user to access keys with the prefix that redis_prefix sets",
        "correct redis_prefix, or grant the key pattern ~PREFIX* with ACL SETUSER, with your prefix",
    ),
    "OOM": ("has no memory left (maxmemory)", "raise maxmemory, or delete other keys"),
    "READONLY": ("is a replica, which cannot be written", "set the URL of the primary"),
    "MISCONF": ("cannot save its data to disk and therefore accepts no writes", "see the log of the Redis server"),
    "NOREPLICAS": ("has too few replicas to accept writes", "see the log of the Redis server"),
    "LOADING": ("is still loading its data", "try again later"),
    "BUSY": ("is running a long script", "try again later"),
    "MASTERDOWN": ("is a replica without a connection to its primary", "try again later"),
    "CLUSTERDOWN": ("is a node of a cluster that is down", "try again later"),
    "TRYAGAIN": ("is a node of a cluster that is being resharded", "try again later"),
    "MOVED": ("redirected too often, or to an invalid address (MOVED)", "check the cluster configuration"),
    "ASK": ("redirected too often, or to an invalid address (ASK)", "check the cluster configuration"),
    "NODB": ("does not have this database", "correct the database number in redis_url"),
    "CLUSTERDB": ("is a cluster node, which has only database 0", "remove the database number from redis_url"),
    "DENIED": ("runs in protected mode", "set a password for it"),
    "max number of clients": ("has reached its maximum number of clients", "raise maxclients"),
}
_OTHER = ("replied with an unknown error", "see the log of the Redis server; xapi needs Redis 6 or later, or Valkey")
_CODE = re.compile("|".join(rf"\b{code}\b" for code in _PROBLEMS))
_WORDS = {  # the first one applies
    "permissions to access a key": "key pattern",
    "permissions to access one of the keys": "key pattern",
    "access at least one of the keys": "key pattern",
    "executing the script can't": "NOPERM",
    "without any password configured": "NOPASSWORD",
    "SELECT is not allowed": "CLUSTERDB",
    "DB index is out of range": "NODB",
    "unknown command": "unknown command",
    "Unknown Redis command": "unknown command",  # in a script
    "wrong number of arguments": "unknown command",  # such as AUTH with a username
    "after non deterministic commands": "unknown command",  # scripts of old servers
    "Script killed by user": "killed",
}


def store_error(server: object, error: ServerError, key: str) -> StoreError:
    """Return *error*, from the Redis server *server* for a command with *key*, as an error of the store."""
    problem, hint = _PROBLEMS.get(error.code, _OTHER)
    return StoreError(f"Redis at {server} {problem.replace('{key}', key)}", hint=hint)


def checked(server: object, form: Callable[[Any], T], reply: Any) -> T:
    """Return form(*reply*); raise StoreError if the reply of the Redis server *server* does not have that form."""
    try:
        return form(reply)
    except (TypeError, ValueError, OverflowError):
        raise StoreError(f"Redis at {server} sent a reply that is not usable", hint="check redis_url") from None


def as_is(reply: Any) -> Any:
    """Return any reply."""
    return reply


def optional_bytes(reply: Any) -> bytes | None:
    """Return a value, or None if there is none."""
    return None if reply is None else _bytes(reply)


def count(reply: Any) -> int:
    """Return a number that is not negative."""
    if type(reply) is not int or reply < 0:
        raise TypeError
    return reply


def unix_time(reply: Any) -> float:
    """Return seconds since the epoch from seconds and microseconds."""
    seconds, microseconds = map(_bytes, reply)
    return int(seconds) + int(microseconds) / 1e6


def _bytes(reply: Any) -> bytes:
    if not isinstance(reply, bytes):
        raise TypeError
    return reply

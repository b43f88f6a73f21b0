"""The errors that a Redis server replies with, as errors of the store.

The text of a reply is never shown: a server may echo the command, which contains the password or a token.
"""

import re

from xapi_cli.errors import StoreError


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
        return self.code in {"LOADING", "BUSY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "max number of clients"}

    @property
    def moved_to(self) -> tuple[str, int] | None:
        """Host and port of the node of a cluster that has the key; the host is empty if it is the same."""
        found = re.match(r"MOVED \d+ (.*):(\d{1,5})$", str(self))
        return (found[1], int(found[2])) if found else None


class RedisError(StoreError):
    """The server replied with the error *code*."""

    def __init__(self, message: str, *, hint: str | None = None, code: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


_PROBLEMS = {
    "NOAUTH": ("requires a password", "add it to XAPI_REDIS_URL, or set redis_password_command"),
    "WRONGPASS": ("rejected the username or password", "correct XAPI_REDIS_URL or redis_password_command"),
    "NOPASSWORD": ("has no password for this user", "omit it in XAPI_REDIS_URL, or give the username too"),
    "NOPERM": (
        "does not allow this user to run the commands that xapi needs",
        'grant them with ACL SETUSER (see "Many machines" in the documentation)',
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
    "MOVED": ("redirected too often (MOVED)", "check the cluster configuration"),
    "ASK": ("is a node of a cluster that is being resharded", "try again later"),
    "DENIED": ("runs in protected mode", "set a password for it"),
    "max number of clients": ("has reached its maximum number of clients", "raise maxclients"),
}
_OTHER = ("replied with an unknown error", "is it Redis 6 or later, or Valkey?")
_CODE = re.compile("|".join(rf"\b{code}\b" for code in _PROBLEMS))
_WORDS = {
    "executing the script can't": "NOPERM",
    "without any password configured": "NOPASSWORD",
}


def store_error(server: object, error: ServerError) -> RedisError:
    """Return *error*, from the Redis server *server*, as an error of the store."""
    problem, hint = _PROBLEMS.get(error.code, _OTHER)
    return RedisError(f"Redis at {server} {problem}", hint=hint, code=error.code)

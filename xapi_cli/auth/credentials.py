"""The interface through which requests get tokens, and its implementations for a token supplied by the user."""

import os
import stat
from collections.abc import Callable
from typing import Literal, Protocol

from xapi_cli.errors import UsageError
from xapi_cli.system.render import printable
from xapi_cli.tokens import Token, is_access_token

Reason = Literal["missing", "expired", "rejected", "short", "fresh"]  # for an automatic login
Source = Literal["store", "login", "env"]
_MAX_TOKEN_FILE = 64 * 1024  # bytes


class Credentials(Protocol):
    """What `TokenSource` uses: the token to send, a newer one after a 401, and the report of a final 401."""

    @property
    def login_reason(self) -> Reason | None:
        """The reason for this process's login, or None if it did not log in."""

    def check(self) -> None:
        """Raise an error, without sending a request, if there is neither a token nor a way to get one."""

    def current(self) -> Token:
        """Return the token to send."""

    def renew(self, rejected: Token) -> Token | None:
        """Return a newer token than *rejected*, or None if there is none; the caller MUST limit the renewals."""

    def newer(self, than: Token) -> Token | None:
        """Return the token that another process has stored in place of *than*, or None; never log in."""

    def is_fresh(self, token: Token) -> bool:
        """Return whether *token* comes from this process's last login."""

    def record_rejection(self, token: Token) -> None:
        """Record that the last response, to a request with *token*, was 401."""

    def record_success(self) -> None:
        """Record that the API accepted the token."""

    def advice(self) -> str:
        """Return a hint for the user about a final 401."""


class SuppliedToken:
    """The token from XAPI_TOKEN: sent as is, never stored, never renewed."""

    login_reason: Reason | None = None

    def __init__(self, access_token: str) -> None:
        self.token = Token(access_token)

    def check(self) -> None:
        """Do nothing: there is a token."""

    def current(self) -> Token:
        """Return the token from the environment."""
        return self.token

    def renew(self, rejected: Token) -> Token | None:
        """Return None: a token from the environment cannot be renewed."""
        return None

    newer = renew

    def is_fresh(self, token: Token) -> bool:
        """Return False: the token does not come from a login."""
        return False

    def record_rejection(self, token: Token) -> None:
        """Do nothing."""

    def record_success(self) -> None:
        """Do nothing."""

    def advice(self) -> str:
        """Return a hint that names the variable."""
        return "XAPI_TOKEN was rejected: replace it, or unset it so that xapi logs in automatically"


class TokenFromFile(SuppliedToken):
    """The token from XAPI_TOKEN_FILE: *read* returns it, or raises UsageError; after a 401, it is read again."""

    def __init__(self, read: Callable[[], str]) -> None:
        super().__init__(read())
        self._read = read

    def renew(self, rejected: Token) -> Token | None:
        """Return the token that the file contains now, or None if that is *rejected* or the file cannot be used."""
        try:
            self.token = Token(self._read())
        except UsageError:
            return None  # the 401 is then the error
        return self.token if self.token.access_token != rejected.access_token else None

    newer = renew

    def advice(self) -> str:
        """Return a hint that names the variable."""
        problem = "the token in XAPI_TOKEN_FILE was rejected"
        return f"{problem}: replace it, or unset the variable so that xapi logs in automatically"


def read_token_file(path: str) -> str:
    """Return the token in the file *path*, without the whitespace around it; raise UsageError if there is none.

    The file may belong to any user, because a container gets it from another one.
    """
    name = printable(path)
    try:
        # without O_NONBLOCK, opening a FIFO waits until another process writes to it
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _file_error(f"{name} is not a regular file")
            data = file.read(_MAX_TOKEN_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "invalid path"
        raise _file_error(f"{name} cannot be read: {reason}") from error
    if len(data) > _MAX_TOKEN_FILE:
        raise _file_error(f"{name} is larger than 64 KiB")
    token = data.strip().decode("ascii", "replace")
    if not token:
        raise _file_error(f"{name} is empty")
    if any(character.isspace() for character in token):
        raise _file_error(f"{name} contains more than a token: there is whitespace in the middle")
    if not is_access_token(token):
        raise _file_error(f"{name} contains characters that are not allowed in a token")
    return token


def _file_error(problem: str) -> UsageError:
    return UsageError(f"XAPI_TOKEN_FILE: {problem}", hint="name a file that contains only the token")

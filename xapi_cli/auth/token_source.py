"""The token of all requests of a process, in any number of threads: an invalid token causes a single login.

A 401 has two meanings: the token has become invalid, or the account has no right to what was requested. Services that
respond with 401 for the latter exist, and a login for each such request would be a storm of them. So:

- What another thread or process has obtained in place of the rejected token is used first.
- The 401 is about rights if a request that was sent after it arrived succeeded with the same token.
- A process logs in once without further ado. Before it does so again, or if a request that was sent after the rejected
  one has succeeded, it repeats the last GET that succeeded; if that succeeds again, the 401 is about rights. Requests
  may overtake each other on their way, so a success alone proves nothing unless it was sent much later.
- Without such a GET, it logs in again at most once a minute.
- A new token that is rejected before a request has succeeded with it is not replaced: another login would not help.

The renewals of a process happen one after another, under a lock. A thread that waited for it finds the new token, or
fails with the error of the login.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from xapi_cli.errors import UNAUTHORIZED, AuthenticationError, LoginRefused, UsageError, XapiError
from xapi_cli.hints import Hint, Run
from xapi_cli.system.render import printable
from xapi_cli.tokens import Token, is_access_token

if TYPE_CHECKING:
    from xapi_cli.auth.account import Account, Reason

MAX_REPLAYS = 5  # per request: tokens may become invalid while many requests are in flight
_FIRST_FAILURE, _FIRST_SERVER_ERROR = 300, 500  # statuses; a server error does not show whether the token is valid
_FAILURE_LIFETIME = 2.0  # seconds without another login after a failed one, to limit the load on a failing server
_LOGIN_INTERVAL = 60.0  # seconds between two logins of which nothing proves that they are necessary
_OVERTAKING = 1.0  # seconds by which a request may arrive at the server after one that was sent later
_MAX_TOKEN_FILE = 64 * 1024  # bytes

Repeat = Callable[[Token], int]
"""Sends a request again with a token and returns the status of the response; may raise XapiError."""
Perform = Callable[[Callable[[], Any]], Any]
"""Calls a function, perhaps in another thread, and returns its value or raises its exception."""


class SuppliedToken(NamedTuple):
    """The token that the user supplies in *variable*; *read* returns it, or raises UsageError."""

    variable: str
    read: Callable[[], str]


class TokenSource:
    """The token of an account, or the one that the user has supplied, which is never stored and never renewed.

    If it *serves* other programs, for as long as they run, no failed login is final: the user may correct the password
    meanwhile. A rejected password then does not delay another one: the account refuses to send the same one again.
    *redact* gets each token, which is then removed from messages and logs. *perform* calls what may log in.
    """

    def __init__(
        self,
        origin: "Account | SuppliedToken",
        *,
        serves: bool = False,
        redact: Callable[[str], None] = lambda token: None,
        perform: Perform = lambda action: action(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._supplied: SuppliedToken | None = None
        self._account: Account | None = None
        if isinstance(origin, SuppliedToken):
            self._supplied = origin
        else:
            self._account = origin
        self._serves, self._redact, self._perform, self._clock = serves, redact, perform, clock
        self._lock = Lock()
        self._used: _Used | None = None
        self._repeat: Repeat | None = None  # repeats the last GET that succeeded, even with an earlier token
        self._has_logged_in = False
        self._renewed_at = float("-inf")  # when it last logged in after a 401
        self._failure: XapiError | None = None
        self._failure_expires = 0.0

    @property
    def login_reason(self) -> "Reason | None":
        """The reason for this process's login, or None if it did not log in."""
        return self._account.login_reason if self._account else None

    def check(self) -> None:
        """Raise an error, without sending a request, if there is neither a token nor a way to get one."""
        if self._account:
            self._account.check()

    def current(self) -> Token:
        """Return the token to send; log in if there is none."""
        used = self._used
        if used is None:
            with self._lock:
                used = self._used or self._use(self._first())
        return used.token

    def accepted(self, token: Token, status: int, sent_at: float, repeat: Repeat | None = None) -> None:
        """Record that the response to a request with *token* has *status*, which is not 401.

        The request was sent at *sent_at*, a time of `time.monotonic`. If it was a GET, *repeat* sends it again.
        """
        used = self._used
        if used is None or used.token is not token or status >= _FIRST_SERVER_ERROR:
            return
        if status < _FIRST_FAILURE:
            used.succeeded_at = max(used.succeeded_at, sent_at)
            self._repeat = repeat or self._repeat
        self._accept(used)

    def renew(self, rejected: Token, sent_at: float) -> Token | None:
        """Return a token to replace *rejected*, None if the 401 is final; raise what a login raises.

        The rejected request was sent at *sent_at*, a time of `time.monotonic`.
        """
        received_at = self._clock()
        with self._lock:
            used = self._used
            if used is None or used.token.access_token != rejected.access_token:
                return used.token if used else None
            newer = self._newer(used, sent_at, received_at)
            return newer and self._use(newer).token

    def record_rejection(self) -> None:
        """Record a final 401, unless the token is accepted for other requests."""
        used = self._used
        if self._account and used and not used.is_accepted and not used.is_rejection_recorded:
            used.is_rejection_recorded = True
            self._account.record_rejection(used.token)

    def advice(self) -> Hint:
        """Return a hint for the user about a final 401."""
        if self._used and self._used.is_too_soon:
            return "xapi has logged in less than a minute ago: send it again later, or check the rights of the account"
        if self._supplied:
            variable = self._supplied.variable
            return f"{variable} was rejected: replace the token, or unset {variable} so that xapi logs in automatically"
        if self._used and self._used.succeeded_at > float("-inf"):
            return "the API accepts the token for other requests: check whether the account has the rights for this one"
        if self._account and not self._account.automatic:
            return "omit --no-login, or run ", Run("login")
        return "the token was fresh: check the base URL and the rights of the account"

    def _first(self) -> Token:
        if self._account is None:
            assert self._supplied is not None  # noqa: S101 - one of the two
            return Token(self._supplied.read())
        with self._shared_failure():
            first: Token = self._perform(self._account.current)
            return first

    def _use(self, token: Token) -> "_Used":
        self._redact(token.access_token)
        self._has_logged_in |= self._account is not None and self._account.is_fresh(token)
        self._used = _Used(token)
        return self._used

    def _newer(self, used: "_Used", sent_at: float, received_at: float) -> Token | None:
        """Return what replaces the rejected token, None if the 401 is final."""
        if self._account is None:
            return self._supplied_again(used.token)
        is_fresh = self._account.is_fresh(used.token) and not used.is_accepted
        if self._is_about_rights(used, sent_at, received_at, is_fresh=is_fresh):
            return None
        is_too_soon = self._clock() - self._renewed_at < _LOGIN_INTERVAL and not used.is_refuted
        if is_fresh or is_too_soon:
            used.is_too_soon = is_too_soon and not is_fresh
            return self._account.newer(used.token)
        account = self._account
        with self._shared_failure():
            newer: Token | None = self._perform(lambda: account.renew(used.token))
        if newer and account.is_fresh(newer):
            self._renewed_at = self._clock()
        return newer

    def _is_about_rights(self, used: "_Used", sent_at: float, received_at: float, *, is_fresh: bool) -> bool:
        """Return whether the token is known to be valid, after repeating a request if that is necessary."""
        assert self._account is not None  # noqa: S101 - see the caller
        used.is_refuted = self._account.has_expired(used.token)
        if used.succeeded_at >= received_at or used.is_refuted:
            return not used.is_refuted
        is_overtaken = used.succeeded_at > sent_at
        if not (is_overtaken or is_fresh or self._has_logged_in):
            return False
        repeated_at, status = self._clock(), self._repeated(used.token)
        if status is not None and status < _FIRST_FAILURE:
            used.succeeded_at = repeated_at
            self._accept(used)
            return True
        used.is_refuted = status == UNAUTHORIZED
        return used.succeeded_at > sent_at + _OVERTAKING and not used.is_refuted

    def _accept(self, used: "_Used") -> None:
        if self._account and not used.is_accepted:
            self._account.record_success()
        used.is_accepted = True

    def _repeated(self, token: Token) -> int | None:
        """Return the status of the last GET that succeeded, sent again with *token*; None if that proves nothing."""
        try:
            return self._repeat(token) if self._repeat else None
        except XapiError:
            return None

    def _supplied_again(self, rejected: Token) -> Token | None:
        """Return the token that the file contains now, None if that is *rejected* or the file cannot be used."""
        try:
            newer = self._first()
        except UsageError:
            return None  # the 401 is then the error
        return newer if newer.access_token != rejected.access_token else None

    @contextmanager
    def _shared_failure(self) -> Iterator[None]:
        """Raise a recent failure again; record a new one, permanently if the next login would fail in the same way."""
        if self._failure is not None and self._clock() < self._failure_expires:
            raise copy(self._failure)  # raising the same object repeatedly would extend its traceback
        try:
            yield
        except XapiError as error:
            error.is_of_login = True
            if self._serves and isinstance(error, LoginRefused):
                raise
            is_final = isinstance(error, AuthenticationError) and not self._serves
            self._failure = copy(error)
            self._failure_expires = float("inf") if is_final else self._clock() + _FAILURE_LIFETIME
            raise


class _Used:
    """What is known of a token that requests were sent with."""

    def __init__(self, token: Token) -> None:
        self.token = token
        self.is_accepted = False  # a response was neither 401 nor a server error
        self.succeeded_at = float("-inf")  # when the last request that succeeded was sent
        self.is_refuted = False  # it has expired, or a request that had succeeded was rejected
        self.is_too_soon = False  # it was rejected soon after the last login, and not repeated
        self.is_rejection_recorded = False  # in the account


def read_token_file(path: str) -> str:
    """Return the token in the file *path*, without the whitespace around it; raise UsageError if there is none.

    The file may belong to any user, because a container gets it from another one.
    """
    data, token, problem = b"", "", "is not a regular file"  # a FIFO could block
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "rb") as file:
                data, problem = file.read(_MAX_TOKEN_FILE + 1), ""
            token = data.strip().decode("ascii", "replace")
    except (OSError, ValueError) as error:
        problem = f"cannot be read: {getattr(error, 'strerror', None) or 'invalid path'}"
    if len(data) > _MAX_TOKEN_FILE:
        problem = "is larger than 64 KiB"
    elif any(character.isspace() for character in token):
        problem = "contains more than a token: there is whitespace in the middle"
    elif not is_access_token(token):
        problem = problem or ("contains characters that are not allowed in a token" if token else "is empty")
    if problem:
        raise UsageError(
            f"XAPI_TOKEN_FILE: {printable(path)} {problem}", hint="name a file that contains only the token"
        )
    return token

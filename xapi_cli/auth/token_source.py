"""The token of all requests of a command, even of many in flight: an invalid token causes a single login."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING, Protocol, TypeVar

from xapi_cli.errors import AuthenticationError, LoginRefused, XapiError
from xapi_cli.system import forks
from xapi_cli.tokens import Token

if TYPE_CHECKING:
    from xapi_cli.auth.credentials import Credentials, Reason

MAX_REPLAYS = 5  # per request: tokens may become invalid while many requests are in flight
_FIRST_SERVER_ERROR = 500  # such a response does not show whether the token is valid
_FAILURE_LIFETIME = 2.0  # seconds without another login after a failed one, to limit the load on a failing server

_T = TypeVar("_T")


class Perform(Protocol):
    """Call *action*, perhaps in another thread, and return its value or raise its exception."""

    def __call__(self, action: Callable[[], _T], /) -> _T:
        """Call *action*."""


class TokenSource:
    """The token of *credentials*, shared by any number of threads and requests.

    With *once*, for a single call, a 401 is final if the token is fresh or has been renewed. If it *serves* other
    programs, for as long as they run, no failed login is final: the user may correct the password meanwhile. A rejected
    password then does not delay another one: the account refuses to send the same one again.
    *redact* gets each token, which is then removed from messages and logs. *perform* calls what may log in.
    """

    def __init__(
        self,
        credentials: "Credentials",
        *,
        once: bool = False,
        serves: bool = False,
        redact: Callable[[str], None] = lambda token: None,
        perform: Perform = lambda action: action(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._credentials, self._once, self._serves, self._clock = credentials, once, serves, clock
        self._redact, self._perform = redact, perform
        self._lock = Lock()
        self.cached: Token | None = None  # the token to send, or None if there is none yet
        self._is_accepted = False
        self._has_renewed = False
        self._is_rejection_recorded = False
        self._is_success_recorded = False
        self._failure: XapiError | None = None
        self._failure_expires = 0.0
        forks.register(self)

    def after_fork(self) -> None:
        """Replace the lock: a thread of the parent process may have held it for a login."""
        self._lock = Lock()

    @property
    def login_reason(self) -> "Reason | None":
        """The reason for this process's login, or None if it did not log in."""
        return self._credentials.login_reason

    def check(self) -> None:
        """Raise an error, without sending a request, if there is neither a token nor a way to get one."""
        self._credentials.check()

    @property
    def failure(self) -> XapiError | None:
        """The error of the last login if another login would now fail with it too, else None."""
        if self._failure is None or self._clock() >= self._failure_expires:
            return None
        return copy(self._failure)  # raising the same object repeatedly would extend its traceback

    def current(self) -> Token:
        """Return the token to send; log in if there is none."""
        if self.cached is None:
            with self._lock:
                if self.cached is None:
                    with self._shared_failure():
                        token = self._perform(self._credentials.current)
                    self._redact(token.access_token)
                    self.cached = token
        return self.cached

    def accepted(self, token: Token, status: int) -> None:
        """Record that the response to a request with *token* has *status*, which is not 401."""
        if token is self.cached:
            self._is_accepted = True
            if not self._is_success_recorded and status < _FIRST_SERVER_ERROR:
                self._is_success_recorded = True
                self._credentials.record_success()

    def is_unproven(self, token: Token) -> bool:
        """Return whether *token* is fresh and no request with it is known to have succeeded."""
        return self._credentials.is_fresh(token) and not (token is self.cached and self._is_accepted)

    def renew(self, rejected: Token) -> Token | None:
        """Return a newer token than *rejected*: the one that another request has already obtained, else a new one.

        Returns None if the 401 is final: *rejected* is fresh, no request with it has succeeded and no other process
        has replaced it; or it cannot be renewed. Raises what a login raises.
        """
        with self._lock:
            if self.cached is not None and self.cached.access_token != rejected.access_token:
                return self.cached
            if self._once and (self._has_renewed or self._credentials.is_fresh(rejected)):
                return None
            self._has_renewed, self._is_success_recorded = True, False
            if self.is_unproven(rejected):
                newer = self._credentials.newer(rejected)
            else:
                with self._shared_failure():
                    newer = self._perform(lambda: self._credentials.renew(rejected))
            if newer is not None:
                self._redact(newer.access_token)
                self.cached, self._is_accepted, self._is_rejection_recorded = newer, False, False
            return newer

    def record_rejection(self) -> None:
        """Record a final 401."""
        if self.cached is not None and not self._is_accepted and not self._is_rejection_recorded:
            self._is_rejection_recorded = True
            self._credentials.record_rejection(self.cached)

    def advice(self) -> str:
        """Return a hint for the user about a final 401."""
        return self._credentials.advice()

    @contextmanager
    def _shared_failure(self) -> Iterator[None]:
        """Raise a recent failure again; record a new one, permanently if the next login would fail in the same way."""
        if (failure := self.failure) is not None:
            raise failure
        try:
            yield
        except XapiError as error:
            if self._serves and isinstance(error, LoginRefused):
                raise
            is_final = isinstance(error, AuthenticationError) and not self._serves
            self._failure = copy(error)
            self._failure_expires = float("inf") if is_final else self._clock() + _FAILURE_LIFETIME
            raise

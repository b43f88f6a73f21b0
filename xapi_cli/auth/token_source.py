"""Share one token among many requests that are under way at once: one login a death, however many notice it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from threading import Lock

from xapi_cli.auth.account import Credentials, Reason
from xapi_cli.errors import AuthenticationError, XapiError
from xapi_cli.system import forks
from xapi_cli.tokens import Token

MOST_REPLAYS = 5  # of one request: a token may die while many of them are in flight
_PATIENCE = 2.0  # seconds for which the failure of a login is everybody's: a server in trouble is not hammered


class TokenSource:
    """The token of *credentials*, for any number of threads and requests."""

    def __init__(self, credentials: Credentials, clock: Callable[[], float] = time.monotonic) -> None:
        self._credentials, self._clock = credentials, clock
        self._lock = Lock()
        self._token: Token | None = None
        self._has_worked = False
        self._is_refused = False
        self._failure: XapiError | None = None
        self._failure_ends = 0.0
        forks.watch(self)

    def after_fork(self) -> None:
        """Give up a lock that a thread of the parent process, which is logging in, may have held."""
        self._lock = Lock()

    @property
    def login_reason(self) -> Reason | None:
        """Why this process logged in, None when it did not."""
        return self._credentials.login_reason

    @property
    def known(self) -> Token | None:
        """The token to send, None as long as there is none; never waits."""
        return self._token

    @property
    def failure(self) -> XapiError | None:
        """What the last login failed with, where another one now would fail with it as well."""
        if self._failure is None or self._clock() >= self._failure_ends:
            return None
        return copy(self._failure)  # raising one and the same again and again lets its traceback grow

    def current(self) -> Token:
        """Return the token to send, logging in where there is none."""
        if self._token is None:
            with self._lock:
                if self._token is None:
                    with self._sharing_failure():
                        self._token = self._credentials.current()
        return self._token

    def worked(self, token: Token) -> None:
        """Hear that a request with *token* was not answered with 401."""
        if token is self._token:
            self._has_worked = True

    def is_doubtful(self, token: Token) -> bool:
        """Tell whether *token* is fresh and no request with it is known to have succeeded."""
        return self._credentials.is_fresh(token) and not (token is self._token and self._has_worked)

    def renew(self, rejected: Token) -> Token | None:
        """Return a newer token than *rejected*: the one that another request has got already, else a new one.

        Returns None where the 401 stands: a fresh token of which no request has
        succeeded, and which nobody else has found dead, or one that cannot be
        renewed. Raises what a login raises.
        """
        with self._lock:
            if self._token is not None and self._token.access_token != rejected.access_token:
                return self._token
            if self.is_doubtful(rejected):
                newer = self._credentials.newer(rejected)
            else:
                with self._sharing_failure():
                    newer = self._credentials.replace(rejected)
            if newer is not None:
                self._token, self._has_worked, self._is_refused = newer, False, False
            return newer

    def refused(self) -> None:
        """Hear that a 401 stands."""
        if self._token is not None and not self._has_worked and not self._is_refused:
            self._is_refused = True
            self._credentials.refused()

    def advice(self) -> str:
        """Return what a person can do about a 401 that stands."""
        return self._credentials.advice()

    @contextmanager
    def _sharing_failure(self) -> Iterator[None]:
        """Raise a failure that is not over yet; keep a new one, for good where the next login would meet it too."""
        if (failure := self.failure) is not None:
            raise failure
        try:
            yield
        except XapiError as error:
            is_final = isinstance(error, AuthenticationError)
            self._failure, self._failure_ends = copy(error), float("inf") if is_final else self._clock() + _PATIENCE
            raise

"""One login at a time, while the requests that need its token wait.

A 401 has two meanings. If the token was valid before, it has become invalid, and one login replaces it for all
requests. If it is fresh, either it was rejected, and another login would not help, or only this request may not be
sent with it. Which of the two applies is shown by the other requests in flight with the same token, so the request
waits for them: it is undecided until one of them succeeds or none is left. No new line begins meanwhile, because it
could be the next one to wait.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, Generic, Protocol, TypeVar

from xapi_cli.auth.token_source import TokenSource
from xapi_cli.http.event_loop import EventLoop, result_of
from xapi_cli.http.flow import Login
from xapi_cli.tokens import Token


class NumberedRequest(Protocol):
    """A request; those with lower numbers are resumed first."""

    @property
    def number(self) -> int:
        """The number of the request."""


R = TypeVar("R", bound=NumberedRequest)


class LoginGate(Generic[R]):
    """Get tokens from *tokens*; *resume* receives each request with its token, None for a final 401, or an error.

    *is_in_use* returns whether a request with a token is in flight. *on_login* is called
    with True before a login and with False after it. With *is_interactive*, a login may
    prompt the user, and it blocks the event loop.
    """

    def __init__(
        self,
        tokens: TokenSource,
        loop: EventLoop,
        *,
        resume: Callable[[R, Any], None],
        is_in_use: Callable[[Token], bool],
        on_login: Callable[[bool], None],
        is_interactive: bool,
    ) -> None:
        self._tokens, self._loop, self._resume = tokens, loop, resume
        self._is_in_use, self._on_login, self._is_interactive = is_in_use, on_login, is_interactive
        self._waiting: list[R] = []
        self.undecided: list[tuple[R, Login]] = []  # rejected, but the token may still be valid
        self.is_logging_in = False

    @property
    def is_prompting(self) -> bool:
        """Return whether an interactive login, which may prompt the user, is in progress."""
        return self.is_logging_in and self._is_interactive

    @property
    def is_closed(self) -> bool:
        """Return whether no new requests may start, because the token is about to change."""
        return self.is_logging_in or bool(self.undecided)

    def enter(self, request: R, step: Login) -> None:
        """Resume *request* with the token for *step*: one that is known already, else one from a login."""
        rejected, cached = step.rejected, self._tokens.cached
        if cached is not None and (rejected is None or cached.access_token != rejected.access_token):
            self._resume(request, cached)
        elif rejected is not None and self._is_in_use(rejected) and self._tokens.is_unproven(rejected):
            self.undecided.append((request, step))  # until another request shows whether the token is valid
        elif (failure := self._tokens.failure) is not None:
            self._resume(request, failure)
        else:
            self._waiting.append(request)
            if not self.is_logging_in:
                self._log_in(step)

    def decide(self) -> None:
        """Decide again about requests that were rejected with a token of which nothing was known."""
        undecided, self.undecided = self.undecided, []
        for request, step in undecided:
            self.enter(request, step)

    def record_rejection(self) -> None:
        """Record a final 401, unless a request in flight with the token will show whether it is valid.

        After its last replay, a request fails with its 401 even if it is not yet known whether the token is valid.
        """
        cached = self._tokens.cached
        if cached is None or not self._is_in_use(cached):
            self._tokens.record_rejection()

    def clear(self) -> None:
        """Remove all requests."""
        self._waiting.clear()
        self.undecided.clear()

    def _log_in(self, step: Login) -> None:
        self.is_logging_in = True
        self._on_login(True)

        def get_token() -> Token | None:
            return step.token_from(self._tokens)

        if self._is_interactive:
            self._logged_in(result_of(get_token))
        else:
            self._loop.run_in_thread(get_token, self._logged_in)

    def _logged_in(self, result: Token | Exception | None) -> None:
        self.is_logging_in = False
        self._on_login(False)
        requests, self._waiting = self._waiting, []
        for request in sorted(requests, key=lambda each: each.number):
            self._resume(request, copy(result) if isinstance(result, Exception) else result)

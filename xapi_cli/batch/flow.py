"""The flow of one call: replays after a 401, retries and redirects, up to the final response.

The flow is a generator that tests can drive directly: it yields each step to perform and
receives its result. It neither waits nor uses the network.
"""

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from xapi_cli.auth.token_source import MOST_REPLAYS, TokenSource
from xapi_cli.batch.responses import BodyTooLarge, Head, Reply
from xapi_cli.errors import NetworkError, RedirectError
from xapi_cli.http import retry, urls
from xapi_cli.request import calls
from xapi_cli.request.calls import Call, shown
from xapi_cli.tokens import Token


@dataclass(frozen=True, slots=True)
class Send:
    """Request that *call* is sent with *token*.

    The result is a Reply; NetworkError or TimeoutExpired is raised in the flow if there is none.
    The body may be omitted if *needs_body* returns False; it is called at most once, after the headers have arrived.
    """

    call: Call
    token: Token | None
    inside: bool
    needs_body: Callable[[Head], bool] = field(default=lambda head: True, compare=False)


@dataclass(frozen=True, slots=True)
class Renew:
    """Request a token to replace *rejected*, or the first token if that is None.

    The result is None if the 401 is final; an error of the login is raised in the flow.
    """

    rejected: Token | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Request to continue after *seconds*."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The final response.

    *from_api* is whether it came from the origin of the API, *refusal* why a redirect was not followed.
    """

    reply: Reply
    from_api: bool = True
    refusal: RedirectError | None = None


Step = Send | Renew | Pause
Course = Generator[Step, Any, Answer]


@dataclass(frozen=True)
class Policy:
    """The settings that all calls share; *deadline* is on the monotonic clock, *note* reports each retry."""

    base_url: str
    shared: TokenSource
    retries: int = 0
    deadline: float | None = None
    note: Callable[[str], None] = lambda text: None

    def course(self, call: Call, *, authorized: bool) -> Course:
        """Return the flow of *call*; *authorized* is whether the call sets or removes Authorization itself."""
        tries = _Tries(self)
        inside, hops = True, 0
        while True:
            hops += 1
            reply: Reply = yield from tries.reply(call, hops, inside=inside, bears_token=inside and not authorized)
            try:
                onward = self.onward(call, reply.head, hops)
            except RedirectError as refusal:
                return Answer(reply, inside, refusal)
            if onward is None:
                return Answer(reply, inside)
            inside = inside and urls.same_origin(onward.url, self.base_url)
            call = onward

    def onward(self, call: Call, head: Head, hops: int) -> Call | None:
        """Return the call for a redirect, or None; see `calls.onward`."""
        return calls.onward(call, head.status, head.raw, hops, base_url=self.base_url)


class _Tries:
    """The attempts of one call; *rules* limits the number of retries."""

    def __init__(self, rules: Policy) -> None:
        self._rules = rules
        self._count = 0  # retries so far

    def reply(self, call: Call, hops: int, *, inside: bool, bears_token: bool) -> Generator[Step, Any, Reply]:
        """Get a response to *call*, hop number *hops* of a redirect chain; retry if that is safe and may succeed."""
        while True:
            attempt = _Try(self._rules, self._count, call, hops, inside=inside)
            try:
                reply: Reply = yield from self._authenticated(attempt) if bears_token else _plain(attempt)
            except _LoginFailed as failure:
                raise failure.error from failure.error.__cause__
            except NetworkError as error:
                wait = attempt.wait(None)
                if error.answered or isinstance(error, BodyTooLarge) or wait is None:
                    raise
                what = error.message
            else:
                if reply.head.status not in retry.STATUSES:
                    return reply
                wait = attempt.wait(reply.head.get(b"retry-after"))
                if wait is None:
                    return reply
                what = f"{shown(call.url)} answered {reply.head.status}"
            self._count += 1
            self._rules.note(f"{what}; trying again in {wait:.1f} s ({self._count} of {self._rules.retries})")
            yield Pause(wait)

    def _authenticated(self, attempt: "_Try") -> Generator[Step, Any, Reply]:
        """Get a response; after a 401, replay the request with newer tokens, up to a limit.

        There is no newer token if the rejected one is fresh and no other request has succeeded with it.
        """
        shared = self._rules.shared
        token = shared.known
        if token is None:
            token = yield from _renewed(None)
        replays = 0
        while True:
            reply: Reply = yield Send(attempt.call, token, True, attempt.needs_body)
            if reply.head.status != 401:
                shared.worked(token)
                return reply
            newer = (yield from _renewed(token)) if replays < MOST_REPLAYS else None
            if newer is None:
                return reply
            token, replays = newer, replays + 1


class _Try:
    """One attempt of *call*, hop number *hops* of a redirect chain, after *count* retries.

    It decides only once whether to retry, because the body may have been omitted on the basis of that decision.
    """

    __slots__ = ("_count", "_hops", "_rules", "_waits", "call", "inside")

    def __init__(self, rules: Policy, count: int, call: Call, hops: int, *, inside: bool) -> None:
        self._rules, self._count, self._hops = rules, count, hops
        self.call, self.inside = call, inside
        self._waits: dict[str | None, float | None] | None = None  # by Retry-After

    def needs_body(self, head: Head) -> bool:
        """Return whether the body of the response with *head* will be printed."""
        if self.inside and head.status == 401:  # the request is replayed, or the result is an error
            return False
        if head.status in retry.STATUSES and self.wait(head.get(b"retry-after")) is not None:
            return False
        try:
            return self._rules.onward(self.call, head, self._hops) is None
        except RedirectError:
            return True

    def wait(self, retry_after: str | None) -> float | None:
        """Return the delay before a retry in seconds, or None if a retry is not allowed or would miss the deadline."""
        self._waits = self._waits or {}
        if retry_after not in self._waits:
            self._waits[retry_after] = self._planned(retry_after)
        return self._waits[retry_after]

    def _planned(self, retry_after: str | None) -> float | None:
        if self._count >= self._rules.retries or self.call.method not in retry.METHODS:
            return None
        wait = retry.delay(self._count, retry_after)
        deadline = self._rules.deadline
        late = wait is not None and deadline is not None and time.monotonic() + wait >= deadline
        return None if late else wait


class _LoginFailed(Exception):
    """Carry the *error* of a login past the retry handling: the call is not retried because of it."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def _plain(attempt: "_Try") -> Generator[Step, Any, Reply]:
    reply: Reply = yield Send(attempt.call, None, attempt.inside, attempt.needs_body)
    return reply


def _renewed(rejected: Token | None) -> Generator[Step, Any, Any]:
    try:
        return (yield Renew(rejected))
    except Exception as error:
        raise _LoginFailed(error) from error

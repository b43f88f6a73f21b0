"""The course of one call: its replays after a 401, its retries, its redirects, until the final answer.

A generator that can be driven by hand: it yields what has to be done, and is sent
what came of it. It neither waits nor touches the network.
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
    """Wants the Reply to *call*, sent with *token*; NetworkError or TimeoutExpired where there is none.

    Its body may be left out where *needs_body* says so, which is called once at most, when the head has come.
    """

    call: Call
    token: Token | None
    inside: bool
    needs_body: Callable[[Head], bool] = field(default=lambda head: True, compare=False)


@dataclass(frozen=True, slots=True)
class Renew:
    """Wants a token in place of *rejected*, or the first one: None where the 401 stands, or the login's error."""

    rejected: Token | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Wants to go on after *seconds*."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The final reply, and whether it came from the API's own origin."""

    reply: Reply
    from_api: bool = True
    refusal: RedirectError | None = None


Step = Send | Renew | Pause
Course = Generator[Step, Any, Answer]


@dataclass(frozen=True)
class Policy:
    """What all calls have in common."""

    base_url: str
    shared: TokenSource
    retries: int = 0
    deadline: float | None = None
    note: Callable[[str], None] = lambda text: None

    def course(self, call: Call, *, authorized: bool) -> Course:
        """Return the course of *call*; *authorized*, it has or has removed an Authorization of its own."""
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
        """Return the call that a redirect asks for, see `outgoing.onward`."""
        return calls.onward(call, head.status, head.raw, hops, base_url=self.base_url)


class _Tries:
    """The tries of one call, as many as *rules* allow in all."""

    def __init__(self, rules: Policy) -> None:
        self._rules = rules
        self._count = 0  # beyond the first

    def reply(self, call: Call, hops: int, *, inside: bool, bears_token: bool) -> Generator[Step, Any, Reply]:
        """Get a reply to *call*, the *hops*th in a row, tried again where that is safe and promising."""
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
        """Get a reply, replayed with newer tokens as long as it is 401 and they have worked for others."""
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
    """One try of *call*, the *hops*th in a row, after *count* others; it decides once, as the body may be left out."""

    __slots__ = ("_count", "_hops", "_rules", "_waits", "call", "inside")

    def __init__(self, rules: Policy, count: int, call: Call, hops: int, *, inside: bool) -> None:
        self._rules, self._count, self._hops = rules, count, hops
        self.call, self.inside = call, inside
        self._waits: dict[str | None, float | None] | None = None  # by Retry-After

    def needs_body(self, head: Head) -> bool:
        """Tell whether the body of the response with *head* will be shown."""
        if self.inside and head.status == 401:  # it is replayed, or becomes an error
            return False
        if head.status in retry.STATUSES and self.wait(head.get(b"retry-after")) is not None:
            return False
        try:
            return self._rules.onward(self.call, head, self._hops) is None
        except RedirectError:
            return True

    def wait(self, retry_after: str | None) -> float | None:
        """Return the seconds until the call may be tried again; None where it may not, or not in time."""
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
    """Carry a login's *error* past the retries: it is no reason to try the call again."""

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

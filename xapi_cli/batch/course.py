"""The course of one call: its replays after a 401, its retries, its redirects, until the final answer.

A generator that can be driven by hand: it yields what has to be done, and is sent
what came of it. It neither waits nor touches the network.
"""

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from xapi_cli import urls
from xapi_cli.auth.shared import MOST_REPLAYS, SharedToken
from xapi_cli.batch.replies import BodyTooLarge, Reply
from xapi_cli.call import outgoing, retries
from xapi_cli.call.outgoing import Call, shown
from xapi_cli.errors import NetworkError, RedirectError
from xapi_cli.tokens import Token


@dataclass(frozen=True, slots=True)
class Send:
    """Wants the Reply to *call*, sent with *token*; NetworkError or TimeoutExpired where there is none."""

    call: Call
    token: Token | None
    inside: bool


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
class Rules:
    """What all calls have in common."""

    base_url: str
    shared: SharedToken
    retries: int = 0
    deadline: float | None = None
    note: Callable[[str], None] = lambda text: None

    def course(self, call: Call, *, authorized: bool) -> Course:
        """Return the course of *call*; *authorized*, it has or has removed an Authorization of its own."""
        tries = _Tries(self)
        inside, hops = True, 0
        while True:
            reply: Reply = yield from tries.reply(call, inside=inside, bears_token=inside and not authorized)
            location = reply.head.get(b"location")
            if location is None or not outgoing.is_redirect(reply.head.status, location):
                return Answer(reply, inside)
            hops += 1
            try:
                onward = outgoing.onward(call, reply.head.status, location, hops, base_url=self.base_url, follow=True)
            except RedirectError as refusal:
                return Answer(reply, inside, refusal)
            inside = inside and urls.same_origin(onward.url, self.base_url)
            call = onward


class _Tries:
    """The tries of one call, as many as *rules* allow in all."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._count = 0  # beyond the first

    def reply(self, call: Call, *, inside: bool, bears_token: bool) -> Generator[Step, Any, Reply]:
        """Get a reply to *call*, tried again where that is safe and promising."""
        while True:
            try:
                reply: Reply = yield from self._authenticated(call) if bears_token else self._plain(call, inside=inside)
            except _LoginFailed as failure:
                raise failure.error from failure.error.__cause__
            except NetworkError as error:
                wait = self._wait(call, None)
                if error.answered or isinstance(error, BodyTooLarge) or wait is None:
                    raise
                what = error.message
            else:
                if reply.head.status not in retries.STATUSES:
                    return reply
                wait = self._wait(call, reply.head.get(b"retry-after"))
                if wait is None:
                    return reply
                what = f"{shown(call.url)} answered {reply.head.status}"
            self._count += 1
            self._rules.note(f"{what}; trying again in {wait:.1f} s ({self._count} of {self._rules.retries})")
            yield Pause(wait)

    def _plain(self, call: Call, *, inside: bool) -> Generator[Step, Any, Reply]:
        reply: Reply = yield Send(call, None, inside)
        return reply

    def _authenticated(self, call: Call) -> Generator[Step, Any, Reply]:
        """Get a reply to *call*, replayed with newer tokens as long as it is 401 and they have worked for others."""
        shared = self._rules.shared
        token = shared.known
        if token is None:
            token = yield from _renewed(None)
        replays = 0
        while True:
            reply: Reply = yield Send(call, token, inside=True)
            if reply.head.status != 401:
                shared.worked(token)
                return reply
            newer = (yield from _renewed(token)) if replays < MOST_REPLAYS else None
            if newer is None:
                return reply
            token, replays = newer, replays + 1

    def _wait(self, call: Call, retry_after: str | None) -> float | None:
        """Return the seconds until *call* may be tried again; None where it may not, or not in time."""
        if self._count >= self._rules.retries or call.method not in retries.METHODS:
            return None
        wait = retries.delay(self._count, retry_after)
        deadline = self._rules.deadline
        late = wait is not None and deadline is not None and time.monotonic() + wait >= deadline
        return None if late else wait


class _LoginFailed(Exception):
    """Carry a login's *error* past the retries: it is no reason to try the call again."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def _renewed(rejected: Token | None) -> Generator[Step, Any, Any]:
    try:
        return (yield Renew(rejected))
    except Exception as error:
        raise _LoginFailed(error) from error

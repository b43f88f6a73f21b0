"""Queues of the engine: requests that wait to be sent, and long responses that wait for their turn or for memory."""

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from xapi_cli.batch.in_flight import InFlight
from xapi_cli.batch.memory_budget import MemoryBudget
from xapi_cli.batch.rate_limiter import RateLimiter
from xapi_cli.http.flow import Send
from xapi_cli.request.calls import Call

_TURN = 0.01  # seconds spent on one response before other work continues

Step = Send[Call]


class SendQueue:
    """Pass requests and their steps to *send* in order, when *limiter* permits it.

    A request in `waiting` has no step, so its token does not count as being in use.
    """

    def __init__(self, limiter: RateLimiter, send: Callable[[InFlight, Step], None]) -> None:
        self._limiter, self._send = limiter, send
        self.waiting: deque[tuple[InFlight, Step]] = deque()

    def add(self, request: InFlight, step: Step) -> None:
        """Send *step* of *request* in a later `run`, after those that wait already."""
        request.step = None
        self.waiting.append((request, step))

    def run(self) -> None:
        """Send the requests that the rate limiter permits now."""
        while self.waiting and self._limiter.try_acquire():
            self._send(*self.waiting.popleft())

    @property
    def droppable(self) -> list[InFlight]:
        """Return the waiting requests, except those that follow a redirect."""
        return [request for request, step in self.waiting if not request.follows_redirect(step)]

    def drop(self) -> None:
        """Remove the requests that are `droppable`."""
        self.waiting = deque(each for each in self.waiting if each[0].follows_redirect(each[1]))

    def clear(self) -> None:
        """Remove all requests."""
        self.waiting.clear()


class FairQueue:
    """Process long responses in turn, so that no response waits for a longer one.

    Steps of the request whose response has used the least time are next. A request whose step yields something
    other than None waits for it: it is removed, and passed to *on_wait* with the remaining steps and what was yielded.
    """

    def __init__(self, on_wait: Callable[[InFlight, Iterator[Any], Any], None]) -> None:
        self.waiting: list[tuple[float, int, InFlight, Iterator[Any]]] = []  # a heap, by the seconds used
        self._on_wait = on_wait
        self._order = count()

    def add(self, request: InFlight, steps: Iterator[Any]) -> None:
        """Add *request*, whose response is processed when *steps* ends."""
        heapq.heappush(self.waiting, (0.0, next(self._order), request, steps))

    def run(self) -> InFlight | None:
        """Run steps of one request for a limited time; return the request if its response is processed then."""
        used, order, request, steps = heapq.heappop(self.waiting)
        start = now = time.monotonic()
        while now - start < _TURN:
            try:
                awaited = next(steps)
            except StopIteration:
                return request
            if awaited is not None:
                self._on_wait(request, steps, awaited)
                return None
            now = time.monotonic()
        heapq.heappush(self.waiting, (used + now - start, order, request, steps))
        return None

    def clear(self) -> None:
        """Remove all requests."""
        self.waiting.clear()


class MemoryQueue:
    """Pass each request, with its remaining steps, to *resume* when *budget* has room.

    If it has no room, one request goes on nevertheless, so that there is always progress. If *oldest* is given, it is
    the one with the number that *oldest* returns: results are ordered, and keep their memory until all earlier ones are
    written.
    """

    def __init__(
        self,
        budget: MemoryBudget,
        resume: Callable[[InFlight, Iterator[Any]], None],
        oldest: Callable[[], int] | None,
    ) -> None:
        self._budget, self._resume, self._oldest = budget, resume, oldest
        # heap: first those that were given memory before, then by number
        self.waiting: list[tuple[bool, int, InFlight, Iterator[Any], int]] = []
        self._admitted = set[InFlight]()  # they were given memory, and go on

    def add(self, request: InFlight, steps: Iterator[Any], size: int) -> None:
        """Let *request* wait for *size* bytes. A negative *size* returns memory to the budget, without waiting."""
        if size < 0:
            self._admit(request, steps, size)
            return
        is_new = self._oldest is not None or request not in self._admitted
        self._admitted.discard(request)
        heapq.heappush(self.waiting, (is_new, request.number, request, steps, size))
        self.run()

    def run(self) -> None:
        """Let requests go on for which there is room now."""
        while self.waiting and (self._budget.has_room or self._is_exempt(self.waiting[0][1])):
            self._admit(*heapq.heappop(self.waiting)[2:])

    def remove(self, request: InFlight) -> None:
        """Remove *request*, which has ended."""
        self._admitted.discard(request)

    def clear(self) -> None:
        """Remove all requests."""
        self.waiting.clear()
        self._admitted.clear()

    def _is_exempt(self, number: int) -> bool:
        return not self._admitted if self._oldest is None else number == self._oldest()

    def _admit(self, request: InFlight, steps: Iterator[Any], size: int) -> None:
        request.memory += size
        self._budget.add(size)
        self._admitted.add(request)
        self._resume(request, steps)

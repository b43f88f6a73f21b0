"""Requests that wait until the rate limiter of the batch permits them."""

from collections import deque
from collections.abc import Callable

from xapi_cli.batch.in_flight import InFlight
from xapi_cli.batch.rate_limiter import RateLimiter
from xapi_cli.http.flow import Send
from xapi_cli.request.calls import Call

Step = Send[Call]


class SendQueue:
    """Pass requests and their steps to *send* in order, when *limiter* permits it.

    A request in `waiting` has no step, so its token does not count as being in use.
    """

    def __init__(self, limiter: RateLimiter, send: Callable[[InFlight, Step], None]) -> None:
        self._limiter, self._send = limiter, send
        self.waiting: deque[tuple[InFlight, Step]] = deque()

    def add(self, request: InFlight, step: Step) -> None:
        """Send *step* of *request* now, or as soon as the rate limiter permits it."""
        if not self.waiting and self._limiter.try_acquire():
            self._send(request, step)
            return
        request.step = None
        self.waiting.append((request, step))

    def run(self) -> None:
        """Send the requests that the rate limiter permits now."""
        while self.waiting and self._limiter.try_acquire():
            self._send(*self.waiting.popleft())

    def pause(self, seconds: float) -> bool:
        """Send nothing for *seconds*; return whether this begins a pause, rather than continuing one."""
        return self._limiter.pause(seconds)

    @property
    def droppable(self) -> list[InFlight]:
        """Return the waiting requests, except those that follow a redirect: their calls were processed."""
        return [request for request, step in self.waiting if step.call is request.entry.call]

    def drop(self) -> None:
        """Remove the requests that are `droppable`."""
        self.waiting = deque(each for each in self.waiting if each[1].call is not each[0].entry.call)

    def clear(self) -> None:
        """Remove all requests."""
        self.waiting.clear()

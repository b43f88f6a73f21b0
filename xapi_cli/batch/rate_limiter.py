"""Decide when the next request may be sent: at most at a given rate, and not while the server asks to wait."""

import math
import re
import time
from collections import deque
from collections.abc import Callable

from xapi_cli.errors import UsageError
from xapi_cli.system.render import printable

_BACKLOG = 0.1  # seconds by which the event loop can delay requests without delaying those after them
_UNITS = {"s": 1, "m": 60}  # seconds


def parse_rate(text: str) -> float:
    """Return the requests per second for *text*: `N`, `N/s` or `N/m`; raise UsageError if it is not valid."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(?:/([sm]))?", text, re.ASCII)
    if match is None or not float(match[1]):
        raise UsageError(
            f"--rate: {printable(text)!r} is not a valid rate",
            hint="write N, N/s or N/m, with N above 0 and below a billion, such as 100/s",
        )
    return float(match[1]) / _UNITS[match[2] or "s"]


class RateLimiter:
    """A limit of *rate* requests per second, or none if that is None.

    Requests are due at a steady rate. A request that is late does not delay those after it, but at most *rate* requests
    are sent in any second. So each is counted when it is due, and again when it is sent: that is later if a connection
    has to be opened for it. Without *pauses*, `pause` does nothing. *clock* returns seconds, like `time.monotonic`.
    """

    def __init__(
        self, rate: float | None = None, *, pauses: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval = 1 / rate if rate else 0.0
        self._limit = math.ceil(rate) if rate else 0  # requests in each window
        self._window = self._limit * self._interval  # seconds: one, or more if the rate is not a whole number
        self._times: deque[float] = deque()  # when the requests of the last window were permitted
        self._sent: deque[float] = deque()  # when those of the last window were sent
        self._pauses, self.clock = pauses, clock
        self._due = float("-inf")  # when the next request is due at a steady rate
        self._resumes = float("-inf")  # when the last pause ends
        self.next_time = float("-inf")  # when the next request is permitted
        self.next_send = float("-inf")  # when to try again, after `try_send` returned False

    @property
    def has_rate(self) -> bool:
        """Return whether there is a limit."""
        return bool(self._limit)

    def try_acquire(self) -> bool:
        """Return whether a request is permitted now, and count it if so."""
        now = self.clock()
        if now < self.next_time:
            return False
        if self._limit:
            is_first = not self._times
            while self._times and self._times[0] + self._window <= now:
                self._times.popleft()
            self._times.append(now)
            self._due = (now if is_first else max(self._due, now - _BACKLOG)) + self._interval
            is_full = len(self._times) == self._limit
            self.next_time = max(self._due, self._times[0] + self._window) if is_full else self._due
        return True

    def try_send(self) -> bool:
        """Return whether a permitted request may be sent now, and count it if so."""
        now = self.clock()
        if now < self._resumes:
            self.next_send = self._resumes
            return False
        if not self._limit:
            return True
        while self._sent and self._sent[0] + self._window <= now:
            self._sent.popleft()
        if len(self._sent) >= self._limit:
            self.next_send = self._sent[0] + self._window
            return False
        self._sent.append(now)
        return True

    def is_blocked(self) -> bool:
        """Return whether `try_send` has returned False, and nothing may be sent yet."""
        return self.clock() < self.next_send

    def pause(self, seconds: float) -> bool:
        """Allow no request for *seconds*; return whether this begins a pause, rather than continuing one."""
        if not self._pauses or seconds <= 0:
            return False
        now = self.clock()
        begins = now >= self._resumes
        self._resumes = max(self._resumes, now + seconds)
        self.next_time = max(self.next_time, self._resumes)
        return begins

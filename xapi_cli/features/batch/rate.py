"""Limit the rate at which threads send requests, and send nothing while the API asks for a pause."""

import math
import re
import time
from collections import deque
from collections.abc import Callable
from threading import Lock

from xapi_cli.errors import UsageError
from xapi_cli.system.render import printable

_BACKLOG = 0.1  # seconds by which requests can be late without delaying those after them
_UNITS = {"s": 1, "m": 60}  # seconds


def parse_rate(text: str) -> float:
    """Return the requests per second for *text*: `N`, `N/s` or `N/m`; raise UsageError if it is not valid."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(?:/([sm]))?", text, re.ASCII)
    if match is None or not float(match[1]):
        hint = "write N, N/s or N/m, with N above 0 and below a billion, such as 100/s"
        raise UsageError(f"--rate: {printable(text)!r} is not a valid rate", hint=hint)
    return float(match[1]) / _UNITS[match[2] or "s"]


class RateLimiter:
    """A limit of *rate* requests per second, or none if that is None.

    The requests are spread evenly. One that is a little late does not delay those after it, but at most *rate* requests
    are sent in any second. One thread at a time waits for its time, in the lock `_turn`; the others wait for the lock,
    so each request waits only once, however many threads there are. *clock* is like `time.monotonic`.
    """

    def __init__(self, rate: float | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1 / rate if rate else 0.0
        self._sent: deque[float] = deque(maxlen=math.ceil(rate) if rate else 0)  # the times of the last requests
        self._window = (self._sent.maxlen or 0) * self._interval  # one second, or more if the rate is not whole
        self._clock = clock
        self._due = self._resumes = -math.inf  # when the next request is due, and when the last pause ends
        self._turn = Lock()

    def acquire(self, wait: Callable[[float], None]) -> None:
        """Return when a request may be sent now; *wait* waits for that many seconds, and may raise an exception."""
        if not self._interval and self._resumes < self._clock():
            return
        with self._turn:
            while (seconds := self._next_time() - (now := self._clock())) > 0:
                wait(seconds)
            self._due = (max(self._due, now - _BACKLOG) if self._sent else now) + self._interval
            self._sent.append(now)

    def pause(self, seconds: float) -> bool:
        """Let no request be sent for *seconds*; return whether this begins a pause, rather than continuing one."""
        now = self._clock()
        begins = now >= self._resumes
        self._resumes = max(self._resumes, now + seconds)
        return begins

    def _next_time(self) -> float:
        is_full = self._sent and len(self._sent) == self._sent.maxlen
        return max(self._due, self._resumes, self._sent[0] + self._window if is_full else -math.inf)

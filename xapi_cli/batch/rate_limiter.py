"""Decide when the next request may be sent: at most at a given rate, and not while the server asks to wait."""

import re
import time
from collections.abc import Callable

from xapi_cli.errors import UsageError
from xapi_cli.system.render import printable

_BURST = 0.1  # seconds of the rate that may be sent at once, which also makes up for delays of the event loop
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
    """A token bucket for requests, *rate* of them per second, or without a limit if that is None.

    Without *pauses*, `pause` does nothing. *clock* returns seconds, like `time.monotonic`.
    """

    def __init__(
        self, rate: float | None = None, *, pauses: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval = 1 / rate if rate else 0.0
        self._tolerance = max(0.0, _BURST - self._interval)
        self._pauses, self._clock = pauses, clock
        self._due = float("-inf")  # when the next request is due at a steady rate
        self._resumes = float("-inf")  # when the last pause ends

    @property
    def next_time(self) -> float:
        """Return the time from which the next request may be sent."""
        return max(self._due - self._tolerance, self._resumes)

    @property
    def is_ready(self) -> bool:
        """Return whether a request may be sent now."""
        return self._clock() >= max(self._due - self._tolerance, self._resumes)

    def try_acquire(self) -> bool:
        """Return whether a request may be sent now, and count it if so."""
        now = self._clock()
        if now < max(self._due - self._tolerance, self._resumes):
            return False
        self._due = max(self._due, now) + self._interval
        return True

    def pause(self, seconds: float) -> bool:
        """Allow no request for *seconds*; return whether this begins a pause, rather than continuing one."""
        if not self._pauses or seconds <= 0:
            return False
        now = self._clock()
        begins = now >= self._resumes
        self._resumes = max(self._resumes, now + seconds)
        return begins

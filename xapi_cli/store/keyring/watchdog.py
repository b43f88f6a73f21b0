"""Waiting for somebody else's code, which may never return: in a thread that cannot keep the process from ending."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_SLICE = 0.05
_LONGEST_SLICE = 0.12  # of a slice that took longer, the process was stopped or starved: nobody else's fault
_WINDOW, _WORK = 0.2, 0.004  # a process that uses so many CPU seconds within so many is at work, on an import say
_LONGEST_WORK = 10.0  # seconds for which such work counts, call by call
_NOTICE = 1.5


class WatchdogTimeout(Exception):
    """Report that nothing has stirred for too long."""


class Watchdog:
    """Wait *seconds* from the last sign of life, at most *longest* in all; call *notice* when it takes a while."""

    def __init__(self, seconds: float, *, longest: float, notice: Callable[[], None] | None = None) -> None:
        self._seconds = seconds
        self._longest = longest
        self._notice = notice
        self._start = self._looked = time.monotonic()
        self._window = self._worked = 0.0  # when the process was looked at last, and its CPU seconds then
        self._quiet = 0.0
        self._renewed = False

    def renew(self) -> None:
        """Take note of a sign of life; any thread may."""
        self._renewed = True

    def grant(self, seconds: float) -> None:
        """See to it that *seconds* are left."""
        self._quiet = min(self._quiet, self._seconds - seconds)
        self._start = max(self._start, time.monotonic() + seconds - self._longest)

    def left(self) -> float:
        """Return the seconds left, negative when there are none."""
        now = time.monotonic()
        if self._renewed:
            self._renewed, self._quiet = False, 0.0
        else:
            self._quiet += min(now - self._looked, _LONGEST_SLICE)
        self._looked = now
        if self._quiet > _NOTICE and self._notice is not None:
            self._notice()
            self._notice = None
        return min(self._seconds - self._quiet, self._start + self._longest - now)

    def call(self, function: Callable[[], T], *, at_work: Callable[[], None] | None = None) -> T:
        """Return what *function* returns, or raise what it raises, or WatchdogTimeout; then it is left to itself.

        *at_work* is given where *function* imports, which is our own work and not somebody's silence; it is called
        while the process is seen to work, and may well be `renew`.
        """
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(function())
            except BaseException as error:  # noqa: BLE001  # passed on by whoever waits
                errors.append(error)

        thread = threading.Thread(target=run, name="xapi-keyring", daemon=True)
        thread.start()
        self._window, self._worked = time.monotonic(), time.process_time()
        end = self._window + _LONGEST_WORK
        while thread.is_alive():
            if at_work is not None and self._is_at_work() and time.monotonic() < end:
                at_work()
            if self.left() <= 0:
                raise WatchdogTimeout
            thread.join(_SLICE)
        if errors:
            raise errors[0]
        return results[0]

    def _is_at_work(self) -> bool:
        now, worked = time.monotonic(), time.process_time()
        if now - self._window < _WINDOW:
            return False
        busy = worked - self._worked > _WORK
        self._window, self._worked = now, worked
        return busy

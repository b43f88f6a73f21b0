"""A timeout for third-party code that may hang: it runs in a daemon thread, which cannot keep the process alive."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_SLICE = 0.05
_MAX_SLICE = 0.12  # of a longer slice, only this counts: the process was stopped or starved
_WINDOW, _WORK = 0.2, 0.004  # more CPU seconds than _WORK per _WINDOW: the process is busy, importing for example
_MAX_WORK = 10.0  # seconds per call for which such work counts
_NOTICE = 1.5


class WatchdogTimeout(Exception):
    """The time limit has expired."""


class Watchdog:
    """A timeout of *seconds* since the last activity, *max_total* in total; *notice* is called during a long wait."""

    def __init__(self, seconds: float, *, max_total: float, notice: Callable[[], None] | None = None) -> None:
        self._seconds = seconds
        self._max_total = max_total
        self._notice = notice
        self._start = self._checked_at = time.monotonic()
        self._window = self._cpu = 0.0  # time of the last check, and the CPU seconds of the process then
        self._idle = 0.0
        self._renewed = False

    def renew(self) -> None:
        """Record activity, which restarts the timeout; any thread may call this."""
        self._renewed = True

    def ensure(self, seconds: float) -> None:
        """Ensure that at least *seconds* are left."""
        self._idle = min(self._idle, self._seconds - seconds)
        self._start = max(self._start, time.monotonic() + seconds - self._max_total)

    def limit(self, seconds: float) -> None:
        """Limit the total time from now on to *seconds*, whatever the activity."""
        self._start, self._max_total = time.monotonic(), seconds

    def extend(self, seconds: float) -> None:
        """Raise the limit of the total time by *seconds*."""
        self._max_total += seconds

    def left(self) -> float:
        """Return the seconds left; zero or less if the time has expired."""
        now = time.monotonic()
        if self._renewed:
            self._renewed, self._idle = False, 0.0
        else:
            self._idle += min(now - self._checked_at, _MAX_SLICE)
        self._checked_at = now
        if self._idle > _NOTICE and self._notice is not None:
            self._notice()
            self._notice = None
        return min(self._seconds - self._idle, self._start + self._max_total - now)

    def reason(self) -> str:
        """Return why there was a timeout, as the predicate of a sentence about the service."""
        if self._idle < self._seconds:
            return f"did not finish within {self._max_total:.0f} s"
        return f"did not respond within {self._seconds:g} s"

    def call(self, function: Callable[[], T], *, on_work: Callable[[], None] | None = None) -> T:
        """Return what *function* returns, or raise what it raises; on timeout, raise WatchdogTimeout and abandon it.

        *on_work* is given if *function* imports modules, which is work of this process and not an unresponsive
        service. It is called while the process is busy, and may be `renew`.
        """
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(function())
            except BaseException as error:  # noqa: BLE001  # raised again by the waiting thread
                errors.append(error)

        thread = threading.Thread(target=run, name="xapi-service", daemon=True)
        thread.start()
        self._window, self._cpu = time.monotonic(), time.process_time()
        end = self._window + _MAX_WORK
        while thread.is_alive():
            if on_work is not None and self._is_busy() and time.monotonic() < end:
                on_work()
            if self.left() <= 0:
                raise WatchdogTimeout
            thread.join(_SLICE)
        if errors:
            raise errors[0]
        return results[0]

    def _is_busy(self) -> bool:
        now, cpu = time.monotonic(), time.process_time()
        if now - self._window < _WINDOW:
            return False
        busy = cpu - self._cpu > _WORK
        self._window, self._cpu = now, cpu
        return busy

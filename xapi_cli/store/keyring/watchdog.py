"""A timeout for third-party code that may hang: it runs in a daemon thread, which cannot keep the process alive."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_SLICE = 0.05
_LONGEST_SLICE = 0.12  # of a longer slice, only this counts: the process was stopped or starved
_WINDOW, _WORK = 0.2, 0.004  # more CPU seconds than _WORK per _WINDOW: the process is busy, importing for example
_LONGEST_WORK = 10.0  # seconds per call for which such work counts
_NOTICE = 1.5


class WatchdogTimeout(Exception):
    """The time limit has expired."""


class Watchdog:
    """A timeout of *seconds* since the last activity, *longest* in total; *notice* is called during a long wait."""

    def __init__(self, seconds: float, *, longest: float, notice: Callable[[], None] | None = None) -> None:
        self._seconds = seconds
        self._longest = longest
        self._notice = notice
        self._start = self._looked = time.monotonic()
        self._window = self._worked = 0.0  # time of the last check, and the CPU seconds of the process then
        self._quiet = 0.0
        self._renewed = False

    def renew(self) -> None:
        """Record activity, which restarts the timeout; any thread may call this."""
        self._renewed = True

    def grant(self, seconds: float) -> None:
        """Ensure that at least *seconds* are left."""
        self._quiet = min(self._quiet, self._seconds - seconds)
        self._start = max(self._start, time.monotonic() + seconds - self._longest)

    def left(self) -> float:
        """Return the seconds left; zero or less if the time has expired."""
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
        """Return what *function* returns, or raise what it raises; on timeout, raise WatchdogTimeout and abandon it.

        *at_work* is given if *function* imports modules, which is work of this process and not an unresponsive
        service. It is called while the process is busy, and may be `renew`.
        """
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(function())
            except BaseException as error:  # noqa: BLE001  # raised again by the waiting thread
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

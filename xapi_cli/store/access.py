"""Access to a service that may hang or crash: for one xapi process at a time, and each time within a time limit.

Keyrings have no time limits, and some crash with many concurrent clients (GNOME/gnome-keyring#190). On a busy machine,
a healthy one takes as long as one that hangs may take, so only time without progress counts: an access makes progress
if its thread uses the processor, which a thread that waits for a response does not, or hardly, if it polls. The holder
of the lock touches its file with each progress. A process waits for the lock as long as it sees that, and no longer
than its own timeout for a service that does not respond to another one. If that one gives up, so do all that wait for
it: each in turn would wait for nothing.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TypeVar

from xapi_cli.store.protocol import StoreOptions
from xapi_cli.system.lock import LockTimeout, LockUnavailable, locked

T = TypeVar("T")

_MAX_TIME = 100.0  # seconds for one access, whatever its progress
_WORK = 0.01  # of the time; a thread that uses less of the processor only polls
_NOTICE_AFTER = 1.5  # seconds
_SLICE, _MAX_SLICE = 0.05, 0.1  # of a longer slice, only this counts: this process was stopped, or had no processor


class Unresponsive(Exception):
    """The service did not respond in time; the text is the predicate of a sentence about it."""


class TimeLimit:
    """A timeout of *seconds* without progress; *on_progress* is called after each."""

    def __init__(self, seconds: float, on_progress: Callable[[], None] = lambda: None) -> None:
        self._seconds = self._left = seconds
        self._on_progress = on_progress
        self._checked = time.monotonic()

    def left(self) -> float:
        """Return the seconds left; the caller MUST call this every few hundredths of a second."""
        now = time.monotonic()
        self._left -= min(now - self._checked, _MAX_SLICE)
        self._checked = now
        return self._left

    def renew(self) -> None:
        """Have the whole timeout left again."""
        self._left = self._seconds

    def progress(self) -> None:
        """Have the whole timeout left again, because the service has responded."""
        self.renew()
        self._on_progress()


def in_time(function: Callable[[], T], limit: TimeLimit, *, notice: Callable[[], None] | None = None) -> T:
    """Return what *function* returns, or raise what it raises; after the timeout, abandon it and raise Unresponsive.

    It runs in a daemon thread, which cannot keep the process alive. *notice* is called during a long wait.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    clocks: list[int] = []  # of the processor time of the thread, where the system has one

    def run() -> None:
        try:
            if sys.platform == "linux":
                clocks.append(time.pthread_getcpuclockid(threading.get_ident()))
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
            errors.append(error)

    thread = threading.Thread(target=run, name="xapi-service", daemon=True)
    thread.start()
    begin, since, used = limit.left(), time.monotonic(), 0.0
    end = since + _MAX_TIME
    while (left := limit.left()) > 0 and time.monotonic() < end:
        thread.join(min(left, _SLICE))
        if not thread.is_alive():
            if errors:
                raise errors[0]
            return results[0]
        with suppress(OSError):  # it has just ended
            if sys.platform == "linux" and clocks:
                now, work = time.monotonic(), time.clock_gettime(clocks[0])
                if work - used > _WORK * (now - since):
                    since, used = now, work
                    limit.progress()
        if notice and begin - left > _NOTICE_AFTER:
            notice()
            notice = None
    raise Unresponsive(f"did not respond within {begin:.0f} s")


class ExclusiveAccess:
    """The access of this process to a service; processes that use the lock *name* exclude each other.

    An access may take the timeout of *options*. After a timeout, the service is not accessed again.
    """

    def __init__(self, name: str, options: StoreOptions) -> None:
        self._timeout = max(options.timeout, options.unlock_wait or 0)  # seconds
        self._lock, self._timed_out = options.state.lock_file(name), options.state.lock_file(f"{name}.timeout")
        self._on_lock_failure = options.on_lock_failure
        self._failure: Unresponsive | None = None

    @contextmanager
    def granted(self) -> Iterator[TimeLimit]:
        """Exclude other processes; yield the time that the access may take. Raises Unresponsive."""
        if self._failure is not None:
            raise self._failure
        limit = TimeLimit(self._timeout, self._touch)
        touched, timed_out = self._lock.modified_at(), self._timed_out.modified_at()

        def left() -> float:
            nonlocal touched
            if self._timed_out.modified_at() != timed_out:
                return 0
            if (latest := self._lock.modified_at()) != touched:
                touched = latest
                limit.renew()
            return limit.left()

        with ExitStack() as stack:
            is_too_late = False
            try:
                stack.enter_context(locked(self._lock, timeout=left))
                is_too_late = left() <= 0  # the process that has just released the lock may have given up
            except LockTimeout:
                is_too_late = True
            except LockUnavailable as error:
                self._on_lock_failure(error)
            if is_too_late:
                self._failure = Unresponsive("does not respond to another xapi process, which uses it")
                raise self._failure
            limit.renew()
            try:
                yield limit
            except Unresponsive as error:
                self._failure = error
                with suppress(OSError):
                    self._timed_out.mark()
                raise
            self._touch()

    def _touch(self) -> None:
        with suppress(OSError):  # without a state directory, no process waits
            self._lock.touch()

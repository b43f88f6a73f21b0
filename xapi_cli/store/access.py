"""Access to a service that may hang or crash: for one xapi process at a time, and each time within a time limit.

Keyrings have no time limits, and some crash with many concurrent clients (GNOME/gnome-keyring#190). A process waits
behind others as long as their accesses succeed, which the modification time of the lock file shows; no process waits
for a service that does not respond to another one.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TypeVar

from xapi_cli.store.protocol import StoreOptions
from xapi_cli.system.lock import LockTimeout, LockUnavailable, locked

T = TypeVar("T")

_MAX_QUEUE_TIME = 60.0  # seconds to wait behind healthy processes
_MIN_TIME = 0.5  # seconds for an access that had to wait
_NOTICE_AFTER = 1.5  # seconds


class Unresponsive(Exception):
    """The service did not respond in time; the text is the predicate of a sentence about it."""


def in_time(function: Callable[[], T], seconds: float, *, notice: Callable[[], None] | None = None) -> T:
    """Return what *function* returns, or raise what it raises; after *seconds*, abandon it and raise Unresponsive.

    It runs in a daemon thread, which cannot keep the process alive. *notice* is called during a long wait.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
            errors.append(error)

    thread = threading.Thread(target=run, name="xapi-service", daemon=True)
    thread.start()
    early = min(seconds, _NOTICE_AFTER) if notice else 0.0
    thread.join(early)
    if notice and thread.is_alive():
        notice()
    thread.join(max(0.0, seconds - early))
    if thread.is_alive():
        raise Unresponsive(f"did not respond within {seconds:.0f} s")
    if errors:
        raise errors[0]
    return results[0]


class ExclusiveAccess:
    """The access of this process to a service; processes that use the lock *name* exclude each other.

    An access may take the timeout of *options*. After a timeout, the service is not accessed again.
    """

    def __init__(self, name: str, options: StoreOptions) -> None:
        self._limit = max(options.timeout, options.unlock_wait or 0)  # seconds
        self._lock = options.state.lock_file(name)
        self._on_lock_failure = options.on_lock_failure
        self._failure: Unresponsive | None = None

    @contextmanager
    def granted(self) -> Iterator[float]:
        """Exclude other processes; yield the seconds that the access may take. Raises Unresponsive."""
        if self._failure is not None:
            raise self._failure
        start = active = time.monotonic()
        touched = self._lock.modified_at()

        def left() -> float:
            nonlocal active, touched
            now = time.monotonic()
            if (latest := self._lock.modified_at()) != touched:
                active, touched = now, latest
            return min(active + self._limit, start + _MAX_QUEUE_TIME) - now

        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self._lock, timeout=left))
            except LockTimeout:
                self._failure = Unresponsive("does not respond to another xapi process, which uses it")
                raise self._failure from None
            except LockUnavailable as error:
                self._on_lock_failure(error)
            try:
                yield max(_MIN_TIME, left())
            except Unresponsive as error:
                self._failure = error
                raise
            with suppress(OSError):  # without a state directory, no process waits
                self._lock.touch()

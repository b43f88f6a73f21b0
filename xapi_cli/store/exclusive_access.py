"""Access to an external service that may not respond: for one process at a time, and each time within a time limit.

Such services hang, and some crash with many concurrent clients (GNOME/gnome-keyring#190). Therefore, only one xapi
process at a time uses the service. The others wait as long as the lock file shows activity; no process waits for an
unresponsive service.
"""

import contextlib
from collections.abc import Callable, Iterator

from xapi_cli.store.protocol import StoreOptions
from xapi_cli.store.watchdog import Watchdog, WatchdogTimeout
from xapi_cli.system.lock import LockTimeout, LockUnavailable, locked

_MAX_QUEUE_TIME = 60.0  # seconds to wait in a queue behind healthy processes
_MIN_OPERATION_TIME = 0.5  # seconds left for the operation after waiting in the queue


class AccessTimeout(Exception):
    """The service was not accessible in time; the text is the predicate of a sentence about it."""

    def __init__(self, predicate: str, *, is_in_use: bool = False) -> None:
        super().__init__(predicate)
        self.is_in_use = is_in_use  # by another xapi process


class ExclusiveAccess:
    """The access of this process to a service; processes that use the lock *name* exclude each other.

    Each access may take the timeout of *options* since the last activity. During a long wait in which the user is
    present, *notice* is called, once. After a timeout, the service is not accessed again.
    """

    def __init__(self, name: str, options: StoreOptions, *, notice: Callable[[], None]) -> None:
        self.timeout = max(options.timeout, options.unlock_wait or 0)  # seconds
        self._failure: AccessTimeout | None = None
        self._lock = options.state.lock_file(name)
        self._on_lock_failure = options.on_lock_failure
        self._notice: Callable[[], None] | None = None if options.unlock_wait is None else notice
        self._watchdog: Watchdog | None = None  # the one of the latest access

    @property
    def has_timed_out(self) -> bool:
        """Whether the service was not accessible in time."""
        return self._failure is not None

    @contextlib.contextmanager
    def limited(self) -> Iterator[Watchdog]:
        """Limit the time of a `with` block; return the watchdog. Raises AccessTimeout."""
        if self._failure is not None:
            raise self._failure
        self._watchdog = Watchdog(self.timeout, max_total=self.timeout + _MAX_QUEUE_TIME, notice=self._notify)
        try:
            yield self._watchdog
        except WatchdogTimeout:
            self._failure = AccessTimeout(self._watchdog.reason())
            raise self._failure from None
        except AccessTimeout as error:
            self._failure = error
            raise

    def record_activity(self) -> None:
        """Record activity, and show it to waiting processes."""
        if self._watchdog is not None and not self.has_timed_out:
            self._watchdog.renew()
            self._touch()

    @contextlib.contextmanager
    def locked(self, watchdog: Watchdog) -> Iterator[int | None]:
        """Hold the lock of the service; it is touched at every activity, which waiting processes check for.

        Returns the descriptor of the lock file, or None if it cannot be locked. Raises AccessTimeout if another process
        holds the lock without activity.
        """
        descriptor = None
        activity = self._lock.modified_at()

        def left() -> float:
            nonlocal activity
            if (now := self._lock.modified_at()) != activity:
                activity = now
                watchdog.renew()
            return watchdog.left() - _MIN_OPERATION_TIME

        with contextlib.ExitStack() as lock:
            try:
                descriptor = lock.enter_context(locked(self._lock, timeout=left))
            except LockTimeout:
                raise AccessTimeout("does not respond to another xapi process, which uses it", is_in_use=True) from None
            except LockUnavailable as error:
                self._on_lock_failure(error)
            watchdog.ensure(_MIN_OPERATION_TIME)
            self._touch()
            yield descriptor

    def _notify(self) -> None:
        notice, self._notice = self._notice, None
        if notice is not None:
            notice()

    def _touch(self) -> None:
        with contextlib.suppress(OSError):  # without a state directory no queue exists either
            self._lock.touch()

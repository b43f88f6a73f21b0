"""One process at a time: a file that is locked, never deleted, and free again the moment its holder is gone.

The lock itself is filelock's; the file is opened here, so that no symbolic link is followed, no other user's file
used, and no child process inherits it. Two threads of one process exclude each other as two processes do.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from xapi_cli import folders

_OFTEN = 0.004  # seconds between two tries


class LockTimeout(Exception):
    """Report that the lock was not free in time."""


class LockUnavailable(Exception):
    """Report that there can be no lock here, for a *reason* such as a folder that cannot be written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"no lock can be taken at {path}: {reason}")
        self.path = path
        self.reason = reason


@contextlib.contextmanager
def locked(
    path: Path, *, limit: float | Callable[[], float], waiting: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold the lock on the file *path*; wait for it *limit* seconds, or as long as *limit*() says that some are left.

    The folder of *path* is made where it is missing. *waiting* is called once, before the first wait.
    """
    descriptor = _acquire(path, _seconds_left(limit), waiting)
    try:
        yield
    finally:
        os.close(descriptor)  # which unlocks it


def _seconds_left(limit: float | Callable[[], float]) -> Callable[[], float]:
    if callable(limit):
        return limit
    end = time.monotonic() + limit
    return lambda: end - time.monotonic()


def _acquire(path: Path, seconds_left: Callable[[], float], waiting: Callable[[], None] | None) -> int:
    """Return the descriptor of the file *path*, locked."""
    line = _Line(path)
    try:
        folders.private(path.parent)
        while (descriptor := _try(path)) is None:
            if waiting is not None:
                waiting()
                waiting = None
            if (left := seconds_left()) <= 0:
                raise LockTimeout(str(path))
            time.sleep(min(left, line.pause()))
    except OSError as error:
        raise LockUnavailable(path, error.strerror or type(error).__name__) from error
    finally:
        line.leave()
    return descriptor


class _Line:
    """A place in the line for *path*: who is first, by a lock of its own, tries often, and the rest now and then.

    A hundred who all try often keep each other from working. One who is stopped while being first stops nobody.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.with_name(f"{path.name}.next")
        self._start = time.monotonic()
        self._first: int | None = None

    def pause(self) -> float:
        """Return the seconds until the next try; they get fewer with the time, so that nobody is always too late."""
        if self._first is None:
            self._first = _try(self._file)
        return _OFTEN if self._first is not None else max(_OFTEN, 0.1 / (1 + time.monotonic() - self._start) ** 2)

    def leave(self) -> None:
        """Let another be the first."""
        if self._first is not None:
            os.close(self._first)


def _try(path: Path) -> int | None:
    """Return the descriptor of the file *path*, locked, or None when someone else has it."""
    import filelock  # costs 10 to 35 ms, and most commands take no lock

    descriptor = _open(path)
    try:
        if filelock.lock_descriptor(descriptor, blocking=False) and _is_still(path, descriptor):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOINHERIT"):
        flags |= getattr(os, name, 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        folders.close_to_others(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_still(path: Path, descriptor: int) -> bool:
    """Tell whether *path* still names the open file: a lock on one that was removed or replaced excludes nobody."""
    if os.name == "nt":
        return True  # an open file can be neither removed nor replaced there
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False

"""Mutual exclusion of processes by a lock file, which the system unlocks when its holder ends, however it ends.

It is flock() on POSIX and msvcrt.locking() on Windows. The file is never deleted: two processes could then hold the
lock, each on a file of its own. No program that the holder starts inherits the lock. Two threads of one process exclude
each other as two processes do.

A waiting process polls: unlike flock(), it can then wait for something else too, such as another process's login.
"""

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from xapi_cli.errors import StoreError
from xapi_cli.system.files import StateFile
from xapi_cli.system.render import printable

_FIRST_POLL, _LAST_POLL = 0.005, 0.05  # seconds between two attempts, which grow


class LockTimeout(Exception):
    """The lock was not acquired before the timeout."""


class LockUnavailable(Exception):
    """The file at *path* cannot be locked because of *error*, as in a directory that is not writable."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"cannot lock {path}: {error.strerror or type(error).__name__}")
        self.path, self.error = path, error


@contextlib.contextmanager
def locked(file: StateFile, *, timeout: float | Callable[[], float]) -> Iterator[int]:
    """Hold the lock on *file* during a `with` block, and yield its descriptor; create a missing parent directory.

    *timeout* is in seconds, or a function that returns the remaining seconds, which is called at every poll and may
    raise. Raises LockTimeout, or LockUnavailable if the file cannot be locked.
    """
    try:
        descriptor = file.open(os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise LockUnavailable(file.path, error) from error
    try:
        _wait_for(descriptor, file.path, timeout if callable(timeout) else _countdown(timeout))
        yield descriptor
    finally:
        # a program that another thread is just starting may have a copy of the descriptor
        with contextlib.suppress(OSError):  # it is not locked
            _request(descriptor, release=True)
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Lock the open file without waiting; return False if it is locked already. Raises OSError."""
    try:
        _request(descriptor)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK, 0):  # 0: Wine
            return False
        raise
    return True


def state_error(state: Path, error: OSError | LockUnavailable) -> StoreError:
    """Return the failure of a command that cannot use the state directory *state* because of *error*."""
    cause = error.error if isinstance(error, LockUnavailable) else error
    return StoreError(
        f"the state directory {printable(str(state))} cannot be written: {cause.strerror or type(cause).__name__}",
        hint="check its permissions and free space",
        alternative="set XAPI_STATE_DIR to another local directory",
    )


def _wait_for(descriptor: int, path: Path, left: Callable[[], float]) -> None:
    pause = _FIRST_POLL
    while True:
        try:
            if try_lock(descriptor):
                return
        except OSError as error:
            raise LockUnavailable(path, error) from error
        if (seconds := left()) <= 0:
            raise LockTimeout(str(path))
        time.sleep(min(pause, seconds))
        pause = min(2 * pause, _LAST_POLL)


def _countdown(seconds: float) -> Callable[[], float]:
    end = time.monotonic() + seconds
    return lambda: end - time.monotonic()


if sys.platform == "win32":
    import msvcrt

    def _request(descriptor: int, *, release: bool = False) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK if release else msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _request(descriptor: int, *, release: bool = False) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN if release else fcntl.LOCK_EX | fcntl.LOCK_NB)

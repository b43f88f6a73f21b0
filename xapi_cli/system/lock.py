"""One process at a time: a file that is locked, never deleted, and free again the moment its holder is gone.

The lock itself is filelock's; the file is opened here, so that no symbolic link is followed, no other user's file
used, and no child process inherits it. Two threads of one process exclude each other as two processes do.

Who has to wait stands in the line that the operating system keeps, in a thread of its own, since it has no time limit
there: Linux serves it in order of arrival, it costs no processor time however many stand in it, and who is killed or
stopped while waiting holds up nobody.
"""

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from xapi_cli.system import forks, private_files
from xapi_cli.system.render import printable

_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
_SLICE = 0.1  # seconds between two looks at the time that is left, or, on Windows, at the lock


class _Descriptors:
    """The open lock files of this process: a child of os.fork() that kept one would prolong its parent's lock."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        forks.watch(self)

    def add(self, descriptor: int) -> None:
        self._open.add(descriptor)

    def close(self, descriptor: int) -> None:
        if descriptor in self._open:  # not one that a child process has closed already
            self._open.remove(descriptor)
            os.close(descriptor)

    def after_fork(self) -> None:
        for descriptor in list(self._open):
            self.close(descriptor)


_descriptors = _Descriptors()


class LockTimeout(Exception):
    """Report that the lock was not free in time."""


class LockUnavailable(Exception):
    """Report that there can be no lock here, for a *reason* such as a directory that cannot be written."""

    def __init__(self, path: Path, error: OSError) -> None:
        self.path = path
        self.reason = error.strerror or type(error).__name__
        self.is_unsupported = error.errno in _UNSUPPORTED
        super().__init__(f"no lock can be taken at {path}: {self.reason}")


def about_state(state: Path, error: OSError | LockUnavailable) -> tuple[str, str]:
    """Return what *error* says about the directory *state*, and the remedy."""
    if isinstance(error, LockUnavailable) and error.is_unsupported:
        problem = f"the file system of the state directory {printable(str(state))} does not support locks"
        return f"{problem} ({error.reason})", "set XAPI_STATE_DIR to a directory on a local file system"
    reason = error.reason if isinstance(error, LockUnavailable) else error.strerror
    remedy = "make it writable, or set XAPI_STATE_DIR to a directory that is"
    return f"the state directory {printable(str(state))} cannot be written: {reason}", remedy


@contextlib.contextmanager
def locked(
    path: Path, *, limit: float | Callable[[], float], waiting: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold the lock on the file *path*; wait for it *limit* seconds, or as long as *limit*() says that some are left.

    The directory of *path* is made where it is missing. *waiting* is called once, before the first wait.
    """
    descriptor = _acquire(path, _seconds_left(limit), waiting)
    try:
        yield
    finally:
        _descriptors.close(descriptor)  # which unlocks it


def _seconds_left(limit: float | Callable[[], float]) -> Callable[[], float]:
    if callable(limit):
        return limit
    end = time.monotonic() + limit
    return lambda: end - time.monotonic()


def _acquire(path: Path, seconds_left: Callable[[], float], waiting: Callable[[], None] | None) -> int:
    """Return the descriptor of the file *path*, locked."""
    try:
        descriptor = _try(path)
        if descriptor is None and waiting is not None:
            waiting()
        while descriptor is None:
            if seconds_left() <= 0:
                raise LockTimeout(str(path))
            descriptor = _after_waiting(path, seconds_left)
    except OSError as error:
        raise LockUnavailable(path, error) from error
    return descriptor


def _try(path: Path) -> int | None:
    """Return the descriptor of the file *path*, locked, or None when someone else has it."""
    import filelock  # costs 10 to 35 ms, and most commands take no lock

    descriptor = _open(path)
    try:
        if filelock.lock_descriptor(descriptor, blocking=False) and _is_still(path, descriptor):
            return descriptor
    except BaseException:
        _descriptors.close(descriptor)
        raise
    _descriptors.close(descriptor)
    return None


def _after_waiting(path: Path, seconds_left: Callable[[], float]) -> int | None:
    """Return the descriptor of the file *path*, locked, or None when there is something to be looked at anew."""
    if os.name == "nt":
        time.sleep(_SLICE)
        return _try(path)
    return _Turn(path).come(seconds_left)


class _Turn:
    """A place in the line for the lock on the file *path*."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = _open(path)
        self._error: OSError | None = None
        self._given_up = False
        self._come = threading.Event()
        self._deciding = threading.Lock()
        threading.Thread(target=self._stand_in_line, name="xapi-lock", daemon=True).start()

    def come(self, seconds_left: Callable[[], float]) -> int | None:
        """Return the descriptor once it is locked, or None when no seconds are left, or the file is another one."""
        try:
            while (left := seconds_left()) > 0 and _is_still(self._path, self._descriptor):
                if self._come.wait(min(left, _SLICE)):
                    break
        except BaseException:
            self._give_up()
            raise
        if self._error is not None or not _is_still(self._path, self._descriptor) or not self._come.is_set():
            self._give_up()
        if self._error is not None:
            raise self._error
        return None if self._given_up else self._descriptor

    def _give_up(self) -> None:
        with self._deciding:
            self._given_up = True
            if self._come.is_set():
                _descriptors.close(self._descriptor)

    def _stand_in_line(self) -> None:
        import fcntl  # not on Windows

        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)  # the lock that filelock takes, which would only poll for it
        except OSError as error:
            self._error = error
        with self._deciding:
            if self._given_up:
                _descriptors.close(self._descriptor)  # whoever is next shall not wait for it
            self._come.set()


def _open(path: Path) -> int:
    descriptor = private_files.open_private(path, os.O_RDWR | os.O_CREAT)
    _descriptors.add(descriptor)
    return descriptor


def _is_still(path: Path, descriptor: int) -> bool:
    """Tell whether *path* still names the open file: a lock on one that was removed or replaced excludes nobody."""
    if os.name == "nt":
        return True  # an open file can be neither removed nor replaced there
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False

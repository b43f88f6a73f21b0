"""Mutual exclusion of processes by a lock file, which is never deleted and is unlocked when its holder exits.

The lock itself is filelock's. This module opens the file so that no symbolic link is followed, no file of another user
is used, and no child process inherits it. Two threads of one process exclude each other as two processes do.

A waiting process blocks in flock(), in a separate thread, because flock() has no timeout. Linux serves the waiting
processes in order of arrival. Waiting uses no processor time, however many processes wait, and a process that is
killed or stopped while it waits does not block the others.
"""

import contextlib
import errno
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from xapi_cli.errors import StoreError
from xapi_cli.system import forks
from xapi_cli.system.private_files import StateFile
from xapi_cli.system.render import printable
from xapi_cli.system.safe_paths import is_trusted

_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
_KINDS = {stat.S_IFDIR: "directory", stat.S_IFLNK: "symbolic link", stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket"}
_POLL_INTERVAL = 0.1  # seconds between two checks of the remaining time or, on Windows, of the lock


class _Descriptors:
    """The open lock files of this process; a child of os.fork() closes them, or it would prolong its parent's lock."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        forks.register(self)

    def add(self, descriptor: int) -> None:
        self._open.add(descriptor)

    def close(self, descriptor: int) -> None:
        if descriptor in self._open:  # in a child process, after_fork() has closed it already
            self._open.remove(descriptor)
            os.close(descriptor)

    def unlock(self, descriptor: int) -> None:
        """Unlock the file and close it; a child process that another thread just starts may have a copy."""
        if descriptor in self._open and sys.platform != "win32":
            import fcntl  # not on Windows

            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        self.close(descriptor)

    def after_fork(self) -> None:
        for descriptor in list(self._open):
            self.close(descriptor)


_descriptors = _Descriptors()


def is_unsupported(error: OSError) -> bool:
    """Return whether *error* shows that the file system does not support locks."""
    return error.errno in _UNSUPPORTED


class LockTimeout(Exception):
    """The lock was not acquired before the timeout."""


class LockUnavailable(Exception):
    """The file cannot be locked; `reason` is the cause, such as a directory that is not writable."""

    def __init__(self, path: Path, error: OSError) -> None:
        self.path = path
        self.reason = error.strerror or type(error).__name__
        self.is_unsupported = is_unsupported(error)
        self.obstacle = _obstacle(path)  # what is in place of the lock file
        super().__init__(f"cannot lock {path}: {self.reason}")


def state_error(state: Path, error: OSError | LockUnavailable) -> StoreError:
    """Return the failure of a command that cannot use the state directory *state* because of *error*."""
    if isinstance(error, LockUnavailable) and error.is_unsupported:
        problem = f"the file system of the state directory {printable(str(state))} does not support locks"
        alternative = "set XAPI_STATE_DIR to a directory on a local file system"
        return StoreError(f"{problem} ({error.reason})", alternative=alternative)
    if isinstance(error, LockUnavailable) and error.obstacle:
        return StoreError(f"the lock file {printable(str(error.path))} {error.obstacle}", hint="remove it")
    reason = error.reason if isinstance(error, LockUnavailable) else error.strerror
    is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return StoreError(
        f"the state directory {printable(str(state))} cannot be written: {reason}",
        hint="free some space" if is_full else "make it writable",
        alternative="set XAPI_STATE_DIR to a writable directory",
    )


def _obstacle(path: Path) -> str:
    """Return the predicate of a sentence about what is at *path*, an empty text if it may be a lock file."""
    try:
        status = os.lstat(path)
    except OSError:
        return ""
    if not stat.S_ISREG(status.st_mode):
        return f"is a {_KINDS.get(stat.S_IFMT(status.st_mode), 'special file')}"
    return "" if is_trusted(status) else "belongs to another user"


@contextlib.contextmanager
def locked(
    file: StateFile, *, timeout: float | Callable[[], float], on_wait: Callable[[], None] | None = None
) -> Iterator[int]:
    """Acquire the lock on *file* for a `with` block; creates a missing parent directory.

    Returns its descriptor. The file is empty unless the caller writes to it.

    *timeout* is the timeout in seconds, or a function that returns the remaining seconds. *on_wait* is called once,
    before the first wait. Raises LockTimeout, or LockUnavailable if the file cannot be locked.
    """
    descriptor = _acquire(file, timeout, on_wait)
    try:
        yield descriptor
    finally:
        _descriptors.unlock(descriptor)


def _acquire(file: StateFile, timeout: float | Callable[[], float], on_wait: Callable[[], None] | None) -> int:
    """Return the descriptor of *file*, locked; raises LockTimeout or LockUnavailable."""
    try:
        descriptor = _try_acquire(file)
        if descriptor is not None:
            return descriptor
        remaining = timeout if callable(timeout) else _countdown(timeout)
        if on_wait is not None:
            on_wait()
        while descriptor is None:
            if remaining() <= 0:
                raise LockTimeout(str(file.path))
            descriptor = _wait(file, remaining)
    except OSError as error:
        raise LockUnavailable(file.path, error) from error
    return descriptor


def _countdown(timeout: float) -> Callable[[], float]:
    end = time.monotonic() + timeout
    return lambda: end - time.monotonic()


def _try_acquire(file: StateFile) -> int | None:
    """Return the descriptor of *file*, locked, or None if another holder has the lock."""
    import filelock  # takes 10 to 35 ms to import, and most commands use no lock

    descriptor = _open(file)
    try:
        if filelock.lock_descriptor(descriptor, blocking=False) and _is_current(file, descriptor):
            return descriptor
    except BaseException:
        _descriptors.close(descriptor)
        raise
    _descriptors.close(descriptor)
    return None


def _wait(file: StateFile, remaining: Callable[[], float]) -> int | None:
    """Wait; return the descriptor of *file*, locked, or None if the caller must check again."""
    if sys.platform == "win32":
        time.sleep(_POLL_INTERVAL)
        return _try_acquire(file)
    return _Waiter(file).wait(remaining)


class _Waiter:
    """A wait for the lock on *file*, in a separate thread."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._descriptor = _open(file)
        self._error: OSError | None = None
        self._given_up = False
        self._acquired = threading.Event()
        self._state_lock = threading.Lock()
        threading.Thread(target=self._acquire_in_thread, name="xapi-lock", daemon=True).start()

    def wait(self, remaining: Callable[[], float]) -> int | None:
        """Return the descriptor once it is locked, or None after a timeout or if the file was replaced."""
        try:
            while (seconds := remaining()) > 0 and _is_current(self._file, self._descriptor):
                if self._acquired.wait(min(seconds, _POLL_INTERVAL)):
                    break
        except BaseException:
            self._give_up()
            raise
        if self._error is not None or not _is_current(self._file, self._descriptor) or not self._acquired.is_set():
            self._give_up()
        if self._error is not None:
            raise self._error
        return None if self._given_up else self._descriptor

    def _give_up(self) -> None:
        with self._state_lock:
            self._given_up = True
            if self._acquired.is_set():
                _descriptors.close(self._descriptor)

    def _acquire_in_thread(self) -> None:
        if sys.platform == "win32":
            return
        import fcntl

        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)  # the same lock as filelock's, which can only poll for it
        except OSError as error:
            self._error = error
        with self._state_lock:
            if self._given_up:
                _descriptors.close(self._descriptor)  # unlocks it for the next process
            self._acquired.set()


def _open(file: StateFile) -> int:
    descriptor = file.open(os.O_RDWR | os.O_CREAT)
    _descriptors.add(descriptor)
    return descriptor


def _is_current(file: StateFile, descriptor: int) -> bool:
    """Return whether *file* still names the open file; a lock on a removed or replaced file has no effect."""
    if sys.platform == "win32":
        return True  # an open file cannot be removed or replaced on Windows
    try:
        return os.path.samestat(os.lstat(file.path), os.fstat(descriptor))
    except FileNotFoundError:
        return False

"""Private directories and files: only the owner can access what xapi stores, and files are replaced atomically.

Each function checks the directory that it uses and raises Unsafe if another user owns it or if it is world-writable.
The mode of an existing directory is never changed. Every OSError propagates, because the caller knows the purpose of
the file.
"""

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from xapi_cli.errors import UsageError
from xapi_cli.system.render import printable
from xapi_cli.system.safe_paths import POSIX, AnchoredPath, UnsafePath, anchored_path, is_trusted

_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{16}\.new")  # the name of a file that is still being written
_MAX_RETRIES = 4
_VARIABLE = "XAPI_STATE_DIR"
_PLACEHOLDER = "any"  # a placeholder name, where only the directory matters

Notify = Callable[[str], None]


class Unsafe(UsageError):
    """Another user may have written to the file or directory."""

    @classmethod
    def because(cls, problem: str, *, variable: str, remedy: str = "") -> Self:
        """Return the error for *problem*; its hint has the *remedy*, and names the *variable* to set instead."""
        return cls(problem, hint=f"{remedy}set {variable} to a directory that you own")


def check_directory(path: Path) -> None:
    """Raise Unsafe if the directory *path* or its parent is not safe to use; an OSError is ignored.

    The parent may be sticky, such as `/tmp`. *path* itself may not: other users could occupy the names of its files.
    """
    with suppress(OSError), _checked_path(path.parent / _PLACEHOLDER):
        pass
    with suppress(OSError), _checked_path(path / _PLACEHOLDER, allow_sticky=False):
        pass


def make_directory(path: Path, *, notify: Notify | None = None) -> Path:
    """Create the directory *path* if it does not exist, and return it.

    Calls *notify* with a message if other users can access an existing directory.
    """
    with _checked_path(path / _PLACEHOLDER, make=True) as entry:
        _notify_of_directory(entry, notify)
    return path


def read(path: Path, *, limit: int, notify: Notify | None = None) -> bytes | None:
    """Return at most *limit* + 1 bytes of the private file *path*, or None if it does not exist.

    Raises OSError for a symbolic link, a file of another user, and anything other than a regular file. The mode of a
    file that other users can access is changed to 0600. *notify* is called with a message about such a file, and about
    a directory that other users can access.
    """
    descriptor = open_existing(path, notify=notify)
    if descriptor is None:
        return None
    with open(descriptor, "rb") as stream:
        return stream.read(limit + 1)


def open_existing(path: Path, *, notify: Notify | None = None) -> int | None:
    """Return the descriptor of the private file *path*, opened for reading, or None if it does not exist.

    Raises the exceptions of `read`, and calls *notify* as it does.
    """
    try:
        with _checked_path(path) as file:
            _notify_of_directory(file, notify)
            return _restricted(file.open(os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), path, notify)
    except (FileNotFoundError, NotADirectoryError):
        return None


def open_private(path: Path, flags: int) -> int:
    """Return the descriptor of the private file *path*, opened with *flags*; creates missing parent directories."""
    with _checked_path(path, make=True) as file:
        return _restricted(file.open(flags | getattr(os, "O_NONBLOCK", 0)), path, None)


def replace(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace the content of the private file *path* with *data*, atomically; with *sync*, flush it to disk."""
    with _checked_path(path) as file:
        remove_abandoned(file, _UNFINISHED)
        _replace(file, data, sync=sync)


def rename(old: Path, new: Path) -> None:
    """Rename the private file *old* to *new*, a path in the same directory; replaces an existing file."""
    with _checked_path(old) as file:
        file.rename(file.sibling(new.name))


def remove(path: Path) -> bool:
    """Remove the private file *path* and the unfinished files of killed writers; return whether *path* existed."""
    try:
        with _checked_path(path) as file:
            remove_abandoned(file, _UNFINISHED)
            file.unlink()
            file.sync()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def remove_old(directory: Path, pattern: re.Pattern[str], is_old: Callable[[Path, float], bool]) -> None:
    """Remove private files in *directory* whose names match *pattern* and for which *is_old* (path, mtime) is true."""
    for path in files(directory, pattern):
        with suppress(OSError), _checked_path(path) as file:
            status = file.status()
            if stat.S_ISREG(status.st_mode) and is_trusted(status) and is_old(path, status.st_mtime):
                file.unlink()


def files(directory: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Return the paths in the private directory *directory* whose names match *pattern*, sorted."""
    try:
        with _checked_path(directory / _PLACEHOLDER) as entry:
            return [directory / name for name in sorted(entry.names()) if pattern.fullmatch(name)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def touch(path: Path) -> None:
    """Set the access and modification times of the private file *path* to now."""
    with _checked_path(path) as file:
        file.touch()


def modified_at(path: Path) -> int | None:
    """Return the modification time of the private file *path* in nanoseconds, None if it is unknown."""
    with suppress(OSError), _checked_path(path) as file:
        return file.status().st_mtime_ns
    return None


def probe(directory: Path, size: int = 0) -> None:
    """Raise OSError unless a file of *size* bytes can be written and renamed in the private directory *directory*."""
    with _checked_path(make_directory(directory) / "probe") as file:
        new = temporary_sibling(file)
        _replace(new, bytes(size), sync=True)
        with suppress(FileNotFoundError):  # another process removed it, because it looks abandoned
            new.unlink()


def write(file: AnchoredPath, data: bytes, *, sync: bool = True, clean: bool = True) -> None:
    """Replace the content of *file*, in any directory, with *data*, atomically and with mode 0600.

    With *sync*, the data is on disk when this returns. With *clean*, `remove_unfinished` comes first.
    """
    if clean:
        remove_unfinished(file)
    _replace(file, data, sync=sync)


def remove_unfinished(file: AnchoredPath) -> None:
    """Remove what killed writers of *file* have left; raises OSError if the directory cannot be listed."""
    remove_abandoned(file, re.compile(re.escape(f".{file.path.name}.") + r"[0-9a-f]{16}\.new"))


def remove_abandoned(file: AnchoredPath, pattern: re.Pattern[str]) -> None:
    """Remove the unfinished files of killed writers in the directory of *file* whose names match *pattern*."""
    for name in file.names():
        if pattern.fullmatch(name):
            with suppress(OSError):
                _remove_if_abandoned(file.sibling(name))


def temporary_sibling(file: AnchoredPath) -> AnchoredPath:
    """Return a new path next to *file* for its replacement, with a name that `remove_abandoned` recognizes."""
    return file.sibling(f".{file.path.name}.{os.urandom(8).hex()}.new")


def lock_against_removal(descriptor: int) -> bool:
    """Lock the open file against removal by `remove_abandoned`; return whether it still exists."""
    with suppress(OSError, ImportError):  # without locks, `remove_abandoned` does not remove it either
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return os.fstat(descriptor).st_nlink > 0


def restrict_mode(descriptor: int, path: Path, *, notify: Notify | None = None) -> None:
    """Set the mode of the open file *path* to 0600.

    Raises OSError if it is not a regular file or belongs to another user. *notify* is called with a message if other
    users could access the file.
    """
    status = os.fstat(descriptor)
    _check_is_private_file(status, path)
    if POSIX and stat.S_IMODE(status.st_mode) != 0o600:
        with suppress(OSError):  # a read-only file system, or one without permissions
            os.fchmod(descriptor, 0o600)
        if notify and _is_accessible_to_others(status):
            _notify_of_file(path, notify, is_still_accessible=_is_accessible_to_others(os.fstat(descriptor)))


def _restricted(descriptor: int, path: Path, notify: Notify | None) -> int:
    """Return *descriptor* after `restrict_mode`; close it if that fails."""
    try:
        restrict_mode(descriptor, path, notify=notify)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_status(status: os.stat_result, what: str, path: Path, *, variable: str, allow_sticky: bool = True) -> None:
    """Raise Unsafe if *status*, the status of *path*, shows that another user owns it or that it is world-writable.

    Sticky directories are accepted if *allow_sticky*. *what* is what the message calls *path*; *variable* is the
    variable in the hint.
    """
    shown = printable(str(path))
    if not is_trusted(status):
        raise Unsafe.because(f"the {what} {shown} belongs to another user", variable=variable)
    is_sticky = (
        stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    )  # users cannot replace the files of other users there
    if POSIX and status.st_mode & stat.S_IWOTH and not (allow_sticky and is_sticky):
        remedy = f"run `chmod o-w {shown}`, or "
        raise Unsafe.because(f"everyone can write to the {what} {shown}", variable=variable, remedy=remedy)


@contextmanager
def _checked_path(path: Path, *, make: bool = False, allow_sticky: bool = True) -> Iterator[AnchoredPath]:
    """Keep the directory of the private file *path*; raises Unsafe if its directory is not safe to use."""
    try:
        status = anchored_path(path, make=make)
    except UnsafePath as error:
        raise Unsafe.because(error.problem, variable=_VARIABLE, remedy=error.remedy) from error
    with status:
        found = status.directory_status()
        check_status(found, "state directory", path.parent, variable=_VARIABLE, allow_sticky=allow_sticky)
        yield status


def check_is_private(descriptor: int, path: Path) -> None:
    """Raise OSError if the open file *path* is not a regular file or belongs to another user."""
    _check_is_private_file(os.fstat(descriptor), path)


def _check_is_private_file(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    if not is_trusted(status):
        raise PermissionError(errno.EPERM, "belongs to another user", str(path))


def _is_accessible_to_others(status: os.stat_result) -> bool:
    return POSIX and bool(status.st_mode & 0o077)


def _notify_of_directory(file: AnchoredPath, notify: Notify | None) -> None:
    if notify and _is_accessible_to_others(file.directory_status()):
        shown = printable(str(file.path.parent))
        notify(f"the directory {shown} is accessible to other users; run `chmod 700 {shown}`")


def _notify_of_file(path: Path, notify: Notify, *, is_still_accessible: bool) -> None:
    if is_still_accessible:
        notify(f"{path} is accessible to other users, and its file system does not support changing that")
    else:
        notify(f"{path} was accessible to other users; set its mode to 0600")


def _replace(file: AnchoredPath, data: bytes, *, sync: bool) -> None:
    for _ in range(_MAX_RETRIES):
        with suppress(FileNotFoundError):  # another process removed the new file before it was locked
            _replace_once(file, data, sync=sync)
            return
    _replace_once(file, data, sync=sync)


def _replace_once(file: AnchoredPath, data: bytes, *, sync: bool) -> None:
    new = temporary_sibling(file)
    try:
        descriptor = _write_new(new, data, sync=sync)
        try:
            if POSIX:
                new.rename(file)  # while it is locked, so that `remove_abandoned` does not remove it
        finally:
            os.close(descriptor)
        if not POSIX:
            _rename_on_windows(new, file)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
    if sync:
        file.sync()


def _write_new(new: AnchoredPath, data: bytes, *, sync: bool) -> int:
    """Write *data* to the *new* file and return its descriptor, locked against `remove_abandoned`."""
    descriptor = new.open(os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        _try_lock(descriptor)
        if POSIX:
            with suppress(PermissionError):  # file systems without permissions; `read` reports them
                os.fchmod(descriptor, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if sync:
            os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _rename_on_windows(new: AnchoredPath, file: AnchoredPath) -> None:
    """Rename *new* to *file*; retry for one second, because Windows refuses it while a process reads *file*."""
    for _ in range(50):
        with suppress(PermissionError):
            new.rename(file)
            return
        time.sleep(0.02)
    new.rename(file)


def _remove_if_abandoned(file: AnchoredPath) -> None:
    """Remove the unfinished *file* unless its writer is still running."""
    if not POSIX:
        file.unlink()  # Windows refuses this while the writer has it open
        return
    descriptor = file.open(os.O_RDWR | os.O_NONBLOCK)
    try:
        _check_is_private_file(os.fstat(descriptor), file.path)
        if _try_lock(descriptor):
            file.unlink()
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Lock the open file without waiting; return whether it is locked."""
    try:
        import fcntl  # not on Windows, where an open file cannot be removed
    except ImportError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

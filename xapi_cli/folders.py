"""Private folders and files: what xapi keeps is the owner's alone, and a file is the old one or the new one.

Every OSError passes through; whoever calls knows what the file is for and says so.
"""

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path

_POSIX = os.name == "posix"
_NEW = re.compile(r"\..+\.[0-9a-f]{16}\.new")  # what `replace` calls a file that is still being written


def private(path: Path, *, notify: Callable[[str], None] | None = None) -> Path:
    """Make the folder *path* exist, its owner's alone, and return it; tell *notify* when it was open to others."""
    create(path)
    found = os.stat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    _refuse_foreign(found, path)
    _refuse_foreign(os.lstat(path), path)  # a link of one's own, as dotfile managers make them, is as good as a folder
    if _is_open(found):
        with contextlib.suppress(OSError):  # a read-only disk; the folder can be used all the same
            os.chmod(path, 0o700)
        _report(path, notify, still_open=_is_open(os.stat(path)))
    return path


def create(path: Path) -> None:
    """Make the folder *path*, and each missing one above it, for the owner alone; one that is there stays as it is."""
    if path.is_dir():
        return
    if path.parent != path:
        create(path.parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return  # another process was quicker, or it is no folder, which the caller finds out
    if _POSIX:
        os.chmod(path, 0o700)  # whatever the umask
    _sync(path.parent)


def refuse_foreign(path: Path) -> None:
    """Raise PermissionError where the file *path* exists and belongs to another user."""
    with contextlib.suppress(FileNotFoundError):
        _refuse_foreign(os.stat(path), path)


def read(path: Path, *, limit: int, notify: Callable[[str], None] | None = None) -> bytes | None:
    """Return what the private file *path* holds, at most *limit* + 1 bytes of it, or None when there is no such file.

    Symbolic links, other users' files and what is no regular file are refused; a file that others can read is closed.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | _flags("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY", "O_NOINHERIT"))
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        close_to_others(descriptor, path, notify=notify)
        return file.read(limit + 1)


def replace(path: Path, data: bytes, *, sync: bool = True, follow: bool = False) -> None:
    """Make the file *path* hold *data*, mode 0600; at every moment it is the old file or the new one, whole.

    With *sync* it is on disk when this returns. A symbolic link is replaced itself, unless *follow* is given.
    """
    if follow:
        path = path.resolve()
    sweep(path.parent)
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):  # a sweeper met the new file in the instant before it was locked
            _replace(path, data, sync=sync)
            return
    _replace(path, data, sync=sync)


def remove(path: Path) -> bool:
    """Remove the file *path* and what dead writers left beside it; tell whether there was such a file."""
    found = True
    try:
        os.unlink(path)
    except FileNotFoundError:
        found = False
    if path.parent.is_dir():
        sweep(path.parent)
        if found:
            _sync(path.parent)
    return found


def sweep(folder: Path, name: str = "") -> None:
    """Remove the unfinished files that writers who were killed left in *folder*: those for *name*, or all."""
    with os.scandir(folder) as entries:
        start = f".{name}." if name else "."
        left = [Path(entry.path) for entry in entries if entry.name.startswith(start) and _NEW.fullmatch(entry.name)]
    for path in left:
        with contextlib.suppress(OSError):
            _remove_if_abandoned(path)


def unfinished(path: Path) -> Path:
    """Return a new name beside *path* for what is to take its place; `sweep` knows it."""
    return path.with_name(f".{path.name}.{os.urandom(8).hex()}.new")


def claim(descriptor: int) -> bool:
    """Tell sweepers that the writer of the open file lives; tell whether none of them has removed it before."""
    with contextlib.suppress(OSError, ImportError):  # no locks: nobody sweeps there either
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return os.fstat(descriptor).st_nlink > 0


def close_to_others(descriptor: int, path: Path, *, notify: Callable[[str], None] | None = None) -> None:
    """Make the open file *path* mode 0600; raise OSError when it is no regular file, or another user's."""
    found = os.fstat(descriptor)
    _refuse_irregular(found, path)
    if _POSIX and stat.S_IMODE(found.st_mode) != 0o600:
        with contextlib.suppress(OSError):  # a read-only disk, or a file system without permissions
            os.fchmod(descriptor, 0o600)
        if _is_open(found):
            _report(path, notify, still_open=_is_open(os.fstat(descriptor)))


_ATTEMPTS = 4


def _refuse_irregular(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    _refuse_foreign(found, path)


def _refuse_foreign(found: os.stat_result, path: Path) -> None:
    if _POSIX and found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "belongs to another user", str(path))


def _is_open(found: os.stat_result) -> bool:
    return _POSIX and bool(found.st_mode & 0o077)


def _report(path: Path, notify: Callable[[str], None] | None, *, still_open: bool) -> None:
    if notify is None:
        return
    if still_open:
        notify(f"{path} is open to other users, and its file system does not let xapi close it")
    else:
        notify(f"{path} was open to other users; closed it")


def _flags(*names: str) -> int:
    """Combine those of the open flags *names* that this platform knows."""
    flags = 0
    for name in names:
        flags |= getattr(os, name, 0)
    return flags


def _replace(path: Path, data: bytes, *, sync: bool) -> None:
    new = unfinished(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _flags("O_NOFOLLOW", "O_BINARY", "O_NOINHERIT")
    descriptor = os.open(new, flags, 0o600)
    try:
        _try_lock(descriptor)  # tells sweepers that this writer lives
        try:
            _write(descriptor, data, sync=sync)
            if _POSIX:
                os.rename(new, path)
        finally:
            os.close(descriptor)
        if not _POSIX:
            _rename_on_windows(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
    if sync:
        _sync(path.parent)


def _write(descriptor: int, data: bytes, *, sync: bool) -> None:
    if _POSIX:
        with contextlib.suppress(PermissionError):  # file systems without permissions; `read` complains of them
            os.fchmod(descriptor, 0o600)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    if sync:
        os.fsync(descriptor)


def _rename_on_windows(new: Path, path: Path) -> None:
    """Rename *new* to *path*, trying for a second: whoever reads *path* at the moment is in the way."""
    for _ in range(50):
        with contextlib.suppress(PermissionError):
            os.replace(new, path)
            return
        time.sleep(0.02)
    os.replace(new, path)


def _sync(folder: Path) -> None:
    """Put the names in *folder* on disk, where the platform can."""
    if not _POSIX:
        return
    with contextlib.suppress(OSError):  # some network and FUSE file systems cannot
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove_if_abandoned(path: Path) -> None:
    """Remove the unfinished file *path* unless its writer is still at it."""
    if not _POSIX:
        os.unlink(path)  # refused by Windows while a writer has it open
        return
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        _refuse_irregular(os.fstat(descriptor), path)
        if _try_lock(descriptor):
            os.unlink(path)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Lock the open file, unless someone else has; tell whether that went well."""
    try:
        import fcntl  # not on Windows, where an open file cannot be removed anyway
    except ImportError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

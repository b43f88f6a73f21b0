"""Private directories and files: only the owner can access what xapi stores, and files are replaced atomically.

Each access to a state directory checks it and raises Unsafe if another user owns it or if it is world-writable. The
mode of an existing directory is never changed. An OSError propagates unless a docstring says otherwise, because the
caller knows the purpose of the file.
"""

import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self
from weakref import WeakValueDictionary

from xapi_cli.errors import UsageError
from xapi_cli.system import safe_paths
from xapi_cli.system.render import printable
from xapi_cli.system.safe_paths import POSIX, OpenDirectory, UnsafePath, fsync, is_trusted, open_parent

if sys.platform == "win32":
    from xapi_cli.system import windows

_UNFINISHED = r"\..+\.[0-9a-f]{16}\.new"  # the name of a file that is still being written
_MAX_RETRIES = 4
_VARIABLE = "XAPI_STATE_DIR"

Notify = Callable[[str], None]
_AnyPath = os.PathLike[str]


class Unsafe(UsageError):
    """Another user may have written to the file or directory."""

    @classmethod
    def because(cls, problem: str, *, variable: str, remedy: str = "") -> Self:
        """Return the error for *problem*; its hint has the *remedy*, and names the *variable* to set instead."""
        return cls(problem, hint=f"{remedy}set {variable} to a directory that you own")


def state_directory(environ: Mapping[str, str]) -> Path:
    """Return the path of xapi's state directory, for locks, the file store and the index of accounts.

    Raises UsageError if XAPI_STATE_DIR is relative and the current directory was deleted.
    """
    if chosen := safe_paths.chosen_directory(environ, _VARIABLE):
        return chosen / "xapi"
    if sys.platform not in ("win32", "darwin"):
        return safe_paths.base_directory(environ, "XDG_STATE_HOME", ".local/state") / "xapi"
    from platformdirs import user_state_path

    return user_state_path("xapi", appauthor=False).absolute()


class StateDirectory:
    """The directory *path*, in which only xapi has files: it is opened at the first access, and kept open.

    Each access checks the directory. If the path now leads to another directory, that one is opened instead.
    *parent*, if it is given, is the directory that contains it.
    """

    def __init__(self, path: Path, *, parent: "StateDirectory | None" = None) -> None:
        self.path = path
        self._parent = parent
        self._opened: OpenDirectory | None = None
        # an owner and a mode that were found to be safe, at first by the parent, which usually has the same
        self._safe: tuple[int, int] | None = parent._safe if parent else None  # noqa: SLF001 - of the same class
        self._directories: WeakValueDictionary[str, StateDirectory] = WeakValueDictionary()

    def directory(self, name: str) -> "StateDirectory":
        """Return the directory *name* in this one."""
        found = self._directories.get(name)
        if found is None:
            found = self._directories[name] = StateDirectory(self.path / name, parent=self)
        return found

    def file(self, name: str) -> "StateFile":
        """Return the file *name* in this directory."""
        return StateFile(self, name)

    def lock_file(self, name: str) -> "StateFile":
        """Return the file of the lock *name*, which is in the directory of all locks."""
        return self.directory("locks").file(f"{name}.lock")

    def close(self) -> None:
        """Close the directory and those in it; the next access opens them again."""
        for each in (self, *self._directories.values()):
            opened, each._opened = each._opened, None  # noqa: SLF001 - an instance of the same class
            if opened is not None:
                opened.close()

    def check(self) -> None:
        """Raise Unsafe if the directory or its parent is not safe to use; an OSError is ignored.

        The parent may be sticky, such as `/tmp`. The directory itself may not: other users could occupy the names of
        its files.
        """
        try:
            parent, name = open_parent(self.path)
            with parent:
                _check_directory(parent.status(), path=self.path.parent)
                self._opened = parent.directory(name) or self._resolved()
                status = self._opened.close_when_unused()
            _check_directory(status, path=self.path, allow_sticky=False)
            self._safe = status.st_uid, status.st_mode
        except UnsafePath as error:
            raise _unsafe(error) from error
        except OSError:
            pass

    def open(self, *, make: bool = False, notify: Notify | None = None) -> OpenDirectory:
        """Open the directory, or return it if it is open, after checking that it is safe to use.

        With *make*, it is created if it does not exist. Raises Unsafe if another user owns it or everyone can write to
        it, and OSError. *notify* is called with a message if other users can access it.
        """
        opened = self._opened
        status = None if opened is None else opened.status_if_at(self.path)
        if opened is None or status is None:
            try:
                self._opened = opened = self._newly_opened(make=make)
            except UnsafePath as error:
                raise _unsafe(error) from error
            status = opened.close_when_unused()
        if (status.st_uid, status.st_mode) != self._safe:
            _check_directory(status, path=self.path)
            self._safe = status.st_uid, status.st_mode
        if notify and _is_accessible_to_others(status):
            shown = printable(str(opened.path))
            notify(f"the directory {shown} is accessible to other users; run `chmod 700 {shown}`")
        return opened

    def files(self, pattern: str) -> "list[StateFile]":
        """Return the files whose names match *pattern*, sorted; none if the directory does not exist."""
        try:
            return [self.file(name) for name in sorted(self.open().names()) if re.fullmatch(pattern, name)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def remove_old(self, pattern: str, is_old: "Callable[[StateFile, float], bool]") -> None:
        """Remove the files whose names match *pattern* and for which *is_old* (file, mtime) is true.

        *mtime* is in seconds since the epoch. Files that cannot be examined or removed are skipped.
        """
        for file in self.files(pattern):
            with suppress(OSError):
                directory = self.open()
                status = directory.status_of(file.name)
                if stat.S_ISREG(status.st_mode) and is_trusted(status) and is_old(file, status.st_mtime):
                    directory.unlink(file.name)

    def probe(self, size: int = 0) -> None:
        """Create the directory; raise OSError unless a file of *size* bytes can be written and renamed in it."""
        directory, name = self.open(make=True), temporary_name("probe")
        _replace(directory, name, bytes(size), sync=True)
        with suppress(FileNotFoundError):  # another process removed it, because it looks abandoned
            directory.unlink(name)

    def _newly_opened(self, *, make: bool) -> OpenDirectory:
        if self._parent is not None:
            with suppress(FileNotFoundError) if make else nullcontext():
                if (found := self._parent.open().directory(self.path.name)) is not None:
                    return found
        return self._resolved(make=make)

    def _resolved(self, *, make: bool = False) -> OpenDirectory:
        return open_parent(self.path / "any", make=make)[0]


class StateFile(NamedTuple):
    """The file *name* in *directory*, which only the owner can access; OSErrors propagate unless stated otherwise."""

    directory: StateDirectory
    name: str

    @property
    def path(self) -> Path:
        """The path, for messages."""
        return self.directory.path / self.name

    def __fspath__(self) -> str:
        return str(self.path)

    def with_suffix(self, suffix: str) -> "StateFile":
        """Return the file in the same directory whose name has *suffix* in place of the last one of this name."""
        return self._replace(name=f"{self.name.rpartition('.')[0]}{suffix}")

    def read(self, *, limit: int, notify: Notify | None = None) -> bytes | None:
        """Return at most *limit* + 1 bytes of the file, or None if it does not exist.

        Raises OSError for a symbolic link, a file of another user, and anything other than a regular file. The mode of
        a file that other users can access is changed to 0600. *notify* is called with a message about such a file, and
        about a directory that other users can access.
        """
        try:
            with open(self.open(os.O_RDONLY, make=False, notify=notify), "rb") as stream:
                return stream.read(limit + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open_existing(self, *, notify: Notify | None = None) -> int | None:
        """Return the descriptor of the file, opened for reading, or None if it does not exist.

        Raises the exceptions of `read`, and calls *notify* as it does.
        """
        try:
            return self.open(os.O_RDONLY, make=False, notify=notify)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open(self, flags: int, *, make: bool = True, notify: Notify | None = None) -> int:
        """Return the descriptor of the file, opened with *flags*, after setting its mode to 0600.

        With *make*, missing directories are created. Raises OSError if it is not a regular file or belongs to another
        user. *notify* is called as by `read`.
        """
        directory = self.directory.open(make=make, notify=notify)
        descriptor = directory.open(self.name, flags | getattr(os, "O_NONBLOCK", 0))
        try:
            restrict_mode(descriptor, self, notify=notify)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def replace(self, data: bytes, *, sync: bool = True, notify: Notify | None = None) -> None:
        """Replace the content of the file with *data*, atomically; creates missing directories.

        With *sync*, the data is on disk when this returns. *notify* is called with a message if other users can access
        the directory.
        """
        directory = self.directory.open(make=True, notify=notify)
        remove_abandoned(directory, _UNFINISHED)
        _replace(directory, self.name, data, sync=sync)

    def rename(self, name: str) -> None:
        """Rename the file to *name*; replaces an existing file."""
        self.directory.open().rename(self.name, name)

    def remove(self) -> bool:
        """Remove the file, and all unfinished files of killed writers in its directory.

        Returns whether the file existed.
        """
        try:
            directory = self.directory.open()
            remove_abandoned(directory, _UNFINISHED)
            directory.unlink(self.name)
            directory.sync()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def touch(self) -> None:
        """Set the access and modification times of the file to now."""
        self.directory.open().touch(self.name)

    def modified_at(self) -> int | None:
        """Return the modification time of the file in nanoseconds, None if it is unknown."""
        try:
            return self.directory.open().status_of(self.name).st_mtime_ns
        except OSError:
            return None


def write(directory: OpenDirectory, name: str, data: bytes, *, sync: bool = True, clean: bool = True) -> None:
    """Replace the content of the file *name* in any *directory* with *data*, atomically and with mode 0600.

    With *sync*, the data is on disk when this returns. With *clean*, `remove_unfinished` is called first.
    """
    if clean:
        remove_unfinished(directory, name)
    _replace(directory, name, data, sync=sync)


def remove_unfinished(directory: OpenDirectory, name: str) -> None:
    """Remove what killed writers of the file *name* left; raises OSError if the directory cannot be listed."""
    remove_abandoned(directory, re.escape(f".{name}.") + r"[0-9a-f]{16}\.new")


def remove_abandoned(directory: OpenDirectory, pattern: str) -> None:
    """Remove the unfinished files of killed writers in *directory* whose names match *pattern*."""
    for name in directory.names():
        if re.fullmatch(pattern, name):
            with suppress(OSError):
                _remove_if_abandoned(directory, name)


def temporary_name(name: str) -> str:
    """Return a new name for the replacement of the file *name*, which `remove_abandoned` recognizes."""
    return f".{name}.{os.urandom(8).hex()}.new"


def lock_against_removal(descriptor: int) -> bool:
    """Lock the open file against removal by `remove_abandoned`; return whether it still exists."""
    if sys.platform != "win32":  # on Windows, an open file cannot be removed
        import fcntl

        with suppress(OSError):  # without locks, `remove_abandoned` does not remove it either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    return os.fstat(descriptor).st_nlink > 0


def restrict_mode(descriptor: int, path: _AnyPath, *, notify: Notify | None = None) -> None:
    """Set the mode of the open file *path* to 0600, on Windows its access control list.

    Raises OSError if it is not a regular file or belongs to another user. *notify* is called with a message if other
    users could access the file.
    """
    status = check_is_private(descriptor, path)
    if sys.platform == "win32":
        windows.restrict(Path(path))
    elif stat.S_IMODE(status.st_mode) != 0o600:
        with suppress(OSError):  # a read-only file system, or one without permissions
            os.fchmod(descriptor, 0o600)
        if notify and _is_accessible_to_others(status):
            _notify_of_file(os.fspath(path), notify, is_still_accessible=_is_accessible_to_others(os.fstat(descriptor)))


def check_status(status: os.stat_result, what: str, path: Path, *, variable: str, allow_sticky: bool = True) -> None:
    """Raise Unsafe if *status*, the status of *path*, shows that another user owns it or that it is world-writable.

    Sticky directories are accepted if *allow_sticky*. *what* is what the message calls *path*; *variable* is the
    variable in the hint.
    """
    if not is_trusted(status):
        raise Unsafe.because(f"the {what} {printable(str(path))} belongs to another user", variable=variable)
    if POSIX and status.st_mode & stat.S_IWOTH:
        # users cannot replace the files of other users in a sticky directory
        if allow_sticky and stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
            return
        shown = printable(str(path))
        remedy = f"run `chmod o-w {shown}`, or "
        raise Unsafe.because(f"everyone can write to the {what} {shown}", variable=variable, remedy=remedy)


_check_directory = partial(check_status, what="state directory", variable=_VARIABLE)


def _unsafe(error: UnsafePath) -> Unsafe:
    return Unsafe.because(error.problem, variable=_VARIABLE, remedy=error.remedy)


def check_is_private(descriptor: int, path: _AnyPath) -> os.stat_result:
    """Return the status of the open file *path*; raise OSError if it is not a regular file or is another user's."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    if not is_trusted(status):
        raise PermissionError(errno.EPERM, "belongs to another user", os.fspath(path))
    return status


def _is_accessible_to_others(status: os.stat_result) -> bool:
    return POSIX and bool(status.st_mode & 0o077)


def _notify_of_file(path: str, notify: Notify, *, is_still_accessible: bool) -> None:
    if is_still_accessible:
        notify(f"{path} is accessible to other users, and its file system does not support changing that")
    else:
        notify(f"{path} was accessible to other users; xapi set its mode to 0600")


def _replace(directory: OpenDirectory, name: str, data: bytes, *, sync: bool) -> None:
    for _ in range(_MAX_RETRIES):
        with suppress(FileNotFoundError):  # another process removed the new file before it was locked
            _replace_once(directory, name, data, sync=sync)
            return
    _replace_once(directory, name, data, sync=sync)


def _replace_once(directory: OpenDirectory, name: str, data: bytes, *, sync: bool) -> None:
    new = temporary_name(name)
    try:
        descriptor = _write_new(directory, new, data, sync=sync)
        try:
            if sys.platform != "win32":
                directory.rename(new, name)  # while it is locked, so that `remove_abandoned` does not remove it
        finally:
            os.close(descriptor)
        if sys.platform == "win32":  # which cannot rename an open file
            directory.rename(new, name)
    except BaseException:
        with suppress(OSError):
            directory.unlink(new)
        raise
    if sync:
        directory.sync()


def _write_new(directory: OpenDirectory, name: str, data: bytes, *, sync: bool) -> int:
    """Write *data* to the new file *name* and return its descriptor, locked against `remove_abandoned`."""
    descriptor = directory.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        if sys.platform == "win32":
            windows.restrict(directory.path / name)
        else:
            _lock(descriptor)
            with suppress(PermissionError):  # file systems without permissions; `read` reports them
                os.fchmod(descriptor, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if sync:
            fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _remove_if_abandoned(directory: OpenDirectory, name: str) -> None:
    """Remove the unfinished file *name* unless its writer is still running."""
    if sys.platform == "win32":
        directory.unlink(name)  # Windows refuses this while the writer has it open
        return
    descriptor = directory.open(name, os.O_RDWR | os.O_NONBLOCK)
    try:
        check_is_private(descriptor, directory.path / name)
        if try_lock(descriptor):
            directory.unlink(name)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Lock the open file without waiting; return whether it is locked."""
    return _lock(descriptor) is None


def lock_unless_locked_elsewhere(descriptor: int) -> bool:
    """Lock the open file without waiting; return False if another process has locked it.

    Returns True without a lock where the file system does not support locks.
    """
    return not isinstance(_lock(descriptor), BlockingIOError)


def _lock(descriptor: int) -> OSError | None:
    """Lock the open file without waiting; return why it is not locked, None if it is."""
    try:
        if sys.platform == "win32":
            windows.lock(descriptor)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error
    return None

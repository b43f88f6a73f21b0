"""Files: a new content replaces the old one completely or not at all, and only the user can access xapi's own files.

`Replacement` writes beside the file and renames, so that a process that is killed leaves the old content or the new
one. Owner, group and mode of an existing file stay. Where that is not possible (the file is a mount point or in a
directory that is not writable, or the file system refuses to set the mode), the complete content is copied into it.

The config file and the state directory are checked once per process, as sshd checks its files: each of them, and each
directory above it up to the home directory, belongs to root or this user, and no other user can write to it. After
that, only this user can have created what is in them, so links are followed and nothing is checked again.
"""

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self, TypeVar, cast

from xapi_cli.errors import OutputError, UsageError
from xapi_cli.system.render import pasteable, printable
from xapi_cli.system.standard_streams import write_all

_STATE_VARIABLE = "XAPI_STATE_DIR"
_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}  # opening them by name would begin at the start of the file
_NOT_REPLACEABLE = frozenset({errno.EACCES, errno.EBUSY, errno.EOPNOTSUPP, errno.EPERM, errno.EROFS})
_RETRY_TIMEOUT, _RETRY_INTERVAL = 2.0, 0.02  # seconds
_MAX_BASE = 50  # characters of the name of a file that the name of its replacement has
_T = TypeVar("_T")


class Unsafe(UsageError):
    """Another user may have written to the file or directory."""


def home() -> Path:
    """Return the home directory; one that does not exist if the user has none, or HOME is relative."""
    with suppress(RuntimeError):  # neither HOME nor an entry in the password database
        if (found := Path.home()).is_absolute():
            return found
    return Path("/nonexistent")


def base_directory(environ: Mapping[str, str], variable: str, default: str) -> Path:
    """Return the directory that *variable* names; *default* in the home directory without one, or if it is relative."""
    # The specification says to ignore a relative XDG path: https://specifications.freedesktop.org/basedir/
    chosen = Path(environ.get(variable, ""))
    return chosen if chosen.is_absolute() else home() / default


def state_directory(environ: Mapping[str, str]) -> Path:
    """Return the path of the state directory, for locks, the file store and the index of accounts."""
    if chosen := environ.get(_STATE_VARIABLE):
        return Path(chosen).absolute() / "xapi"
    if sys.platform == "win32":
        return base_directory(environ, "LOCALAPPDATA", "AppData/Local") / "xapi"
    if sys.platform == "darwin":
        return home() / "Library/Application Support/xapi"
    return base_directory(environ, "XDG_STATE_HOME", ".local/state") / "xapi"


def comparable(name: str) -> str:
    """Return a text that is equal for two names of the same file, which may not exist yet."""
    try:
        directory, base = os.path.split(os.path.normcase(os.path.realpath(name)))
        status = os.stat(directory)  # a directory that is mounted twice has two paths
    except (OSError, ValueError):  # the name cannot be opened either
        return name
    return f"{status.st_dev}:{status.st_ino}/{base}"


def is_trusted(status: os.stat_result) -> bool:
    """Return whether the file with the status *status* belongs to this user or to root."""
    return sys.platform == "win32" or status.st_uid in (0, os.geteuid())


@lru_cache(maxsize=32)  # an exception is not cached: what it reports may be fixed meanwhile
def check_safe(path: Path, *, variable: str) -> None:
    """Raise Unsafe if another user owns or can write to *path* or a directory above it, up to the home directory.

    What does not exist is skipped. *variable* is the variable in the hint that selects another place.
    """
    if sys.platform == "win32":
        return  # xapi's directories are in the profile of the user
    last, top = os.path.realpath(path), os.path.realpath(home())
    for place in (Path(last), *Path(last).parents):
        try:
            status = place.stat()
        except OSError:
            continue
        if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
            continue  # using it fails with the reason
        what = f"the {'directory' if stat.S_ISDIR(status.st_mode) else 'file'} {printable(str(place))}"
        other = f"set {variable} to a directory that only you can write to"
        if not is_trusted(status):
            raise Unsafe(f"{what} belongs to another user", hint=other)
        # in a sticky directory such as /tmp, other users cannot replace what is not theirs, but could occupy names
        is_public_parent = str(place) != last and status.st_mode & stat.S_ISVTX
        if _is_shared(status) and not is_public_parent:
            command = f"chmod go-w {pasteable(str(place))}"
            raise Unsafe(f"other users can write to {what}", hint=f"run `{command}`, or {other}")
        if str(place) == top:
            return


def _is_shared(status: os.stat_result) -> bool:
    return bool(status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and _has_others(status.st_gid)))


@cache
def _has_others(group: int) -> bool:
    """Return whether the *group* may have other members than this user; its own group, as on Fedora, has none."""
    if sys.platform == "win32" or group == 0:
        return False
    import grp
    import pwd

    with suppress(KeyError):
        found, name = grp.getgrgid(group), pwd.getpwuid(os.geteuid()).pw_name
        return found.gr_name != name or not set(found.gr_mem) <= {name}
    return True


class Replacement:
    """The new content of the file *name*: write it; `commit` puts it in place, otherwise nothing changes.

    A new file has the mode *mode*, reduced by the umask. With *is_own*, an existing file gets that mode too. With
    *sync*, the content is on disk after the commit. A target that is not a regular file (a device, a FIFO, /dev/stdout)
    is written directly. The methods raise OSError, and ValueError for a name that is not valid.
    """

    file: BinaryIO

    def __init__(self, name: str | Path, *, mode: int = 0o666, is_own: bool = False, sync: bool = False) -> None:
        self.name, self._mode, self._is_own, self._sync = str(name), mode, is_own, sync
        self.is_direct = False  # whether the target is not a regular file
        self._new: str | None = None  # the path of the new file, if it has one

    def open(self) -> None:
        """Open the new file; a failure needs no cleanup."""
        if not os.path.basename(self.name):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        self._target = os.path.realpath(self.name)  # a symbolic link stays
        old, number = _status(self.name), _STREAMS.get(self.name)
        if number is not None or (old is not None and not stat.S_ISREG(old.st_mode)):
            descriptor = os.open(self.name, os.O_WRONLY) if number is None else os.dup(number)
            self.file, self.is_direct = open(descriptor, "wb", buffering=0), True  # noqa: SIM115 - `close` does
            return
        if old is not None:
            check_writable(self._target)
        directory, base = os.path.split(self._target)
        new = os.path.join(directory, f".{base[:_MAX_BASE]}.{os.urandom(8).hex()}.new")
        mode = self._mode if old is None else self._mode & 0o600
        try:
            descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        except OSError as error:
            if old is None or error.errno not in _NOT_REPLACEABLE:
                raise
            from tempfile import TemporaryFile

            self.file = cast("BinaryIO", TemporaryFile())  # noqa: SIM115 - closed by `close`
        else:
            self.file, self._new = open(descriptor, "w+b"), new  # noqa: SIM115 - the same

    def write(self, data: bytes) -> None:
        """Write all of *data*, even to a pipe that does not block."""
        if self.is_direct:
            write_all(self.file.fileno(), data)
        else:
            self.file.write(data)

    def commit(self) -> None:
        """Put the content in place and close the file."""
        if not self.is_direct:
            self.file.flush()
            put_in_place(self.file, self._new, self._target, keep_owner=not self._is_own, sync=self._sync)
            self._new = None
        self.file.close()

    def close(self) -> None:
        """Close the file, and remove it if it was not committed."""
        with suppress(OSError, AttributeError):  # the disk may be full; the unwritten data is discarded anyway
            self.file.close()
        if self._new is not None:
            with suppress(OSError):
                os.unlink(self._new)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OutputFile(Replacement):
    """A Replacement that the user has asked for: the methods raise OutputError, which names the file."""

    count = 0  # bytes of an earlier download in it

    def open(self) -> None:
        """Open the new file; a failure needs no cleanup."""
        with writing(self.name):
            super().open()

    def write(self, data: bytes) -> None:
        """Write all of *data*."""
        with writing(self.name):
            super().write(data)

    def commit(self) -> None:
        """Put the content in place and close the file."""
        with writing(self.name):
            super().commit()


def check_writable(path: str) -> None:
    """Raise PermissionError if the existing file *path* is read-only, although it could be replaced."""
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is read-only")


def put_in_place(file: BinaryIO, new: str | None, target: str, *, keep_owner: bool = True, sync: bool = False) -> None:
    """Replace the file *target* with the complete file *new*, which is open as *file* for reading, and close that.

    An existing target keeps its owner, group and mode, if *keep_owner*. Where it cannot be replaced, the content is
    copied into it, and *new* is removed; so it is if *file* has no name. Raises OSError.
    """
    old = _status(target)
    if new is not None:
        try:
            if sync:
                os.fsync(file.fileno())
            if old is not None and keep_owner:
                _adopt(file.fileno(), old)
            if sys.platform == "win32":
                file.close()  # Windows cannot rename an open file
            _retried(os.replace, new, target)
        except OSError as error:
            if old is None or error.errno not in _NOT_REPLACEABLE or sys.platform == "win32":
                raise
        else:
            file.close()
            return
    from shutil import copyfileobj

    with file, open(target, "r+b") as copy:
        file.seek(0)
        copy.truncate()
        copyfileobj(file, copy)
        if sync:
            copy.flush()
            os.fsync(copy.fileno())
    if new is not None:
        os.unlink(new)


def _adopt(descriptor: int, old: os.stat_result) -> None:
    """Give the open file the owner, group and mode of *old*; raises OSError."""
    if sys.platform != "win32":
        new = os.fstat(descriptor)
        if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
            os.fchown(descriptor, old.st_uid, old.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)


@contextmanager
def writing(name: str) -> Iterator[None]:
    """Raise OutputError for a failure within the block, with which writing the file *name* has failed."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the name is not valid"
        shown = printable(name) or "a file without a name"
        raise OutputError(f"{shown} cannot be written: {reason}", hint="choose another file") from error


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _retried(action: Callable[..., _T], *arguments: object) -> _T:
    """Return what *action* returns for *arguments*; on Windows, repeat it while another process uses the file.

    Windows raises PermissionError both for that and for missing permissions, so the latter are reported after two
    seconds.
    """
    end = time.monotonic() + _RETRY_TIMEOUT
    while sys.platform == "win32" and time.monotonic() < end:
        with suppress(PermissionError):
            return action(*arguments)
        time.sleep(_RETRY_INTERVAL)
    return action(*arguments)


def make_private(directory: Path) -> None:
    """Create *directory* and those above it with mode 0700; the home directory is never created. Raises OSError."""
    if directory.is_dir():
        return
    if directory in (own := home(), *own.parents):
        raise FileNotFoundError(errno.ENOENT, f"no home directory: {printable(str(own))}", str(directory))
    make_private(directory.parent)
    with suppress(FileExistsError):  # another process created it first
        directory.mkdir(0o700)


class StateDirectory:
    """The directory *path*, in which only xapi has files; *root* is the state directory, if this is one in it.

    Each access checks the state directory, and raises Unsafe if another user can write to it.
    """

    def __init__(self, path: Path, *, root: Path | None = None) -> None:
        self.path = path
        self._root = root or path

    def directory(self, name: str) -> "StateDirectory":
        """Return the directory *name* in this one."""
        return StateDirectory(self.path / name, root=self._root)

    def file(self, name: str) -> "StateFile":
        """Return the file *name* in this directory."""
        return StateFile(self, self.path / name)

    def lock_file(self, name: str) -> "StateFile":
        """Return the file of the lock *name*, which is in the directory of all locks."""
        return self.directory("locks").file(f"{name}.lock")

    def check(self) -> None:
        """Raise Unsafe if another user can write to the state directory or a directory above it."""
        check_safe(self._root, variable=_STATE_VARIABLE)

    def make(self) -> None:
        """Create the directory, after checking that it is safe; raises OSError."""
        self.check()
        make_private(self.path)

    def files(self, pattern: str) -> "list[StateFile]":
        """Return the files whose names match *pattern*, sorted; none if the directory does not exist."""
        self.check()
        try:
            return [self.file(name) for name in sorted(os.listdir(self.path)) if re.fullmatch(pattern, name)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def remove_old(self, pattern: str, seconds: float) -> None:
        """Remove the files whose names match *pattern* and that were not written in the last *seconds*."""
        for file in self.files(pattern):
            with suppress(OSError):
                if not 0 <= time.time() - file.path.stat().st_mtime < seconds:
                    _retried(file.path.unlink)

    def probe(self) -> None:
        """Raise OSError unless a file of the usual size can be written in the directory, which is created."""
        from tempfile import TemporaryFile

        self.make()
        with TemporaryFile(dir=self.path) as probe:
            probe.write(bytes(4096))


class StateFile(NamedTuple):
    """The file at *path* in *directory*, which only the owner can access; every OSError propagates."""

    directory: StateDirectory
    path: Path

    def read(self, *, limit: int) -> bytes | None:
        """Return at most *limit* + 1 bytes of the file, or None if it does not exist."""
        try:
            with open(self.open(os.O_RDONLY, make=False), "rb") as stream:
                return stream.read(limit + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open(self, flags: int, *, make: bool = True) -> int:
        """Return the descriptor of the file, opened with *flags*, after setting its mode to 0600.

        With *make*, missing directories are created.
        """
        if make:
            self.directory.make()
        else:
            self.directory.check()
        descriptor = _retried(os.open, self.path, flags, 0o600)
        status = os.fstat(descriptor)
        if sys.platform != "win32" and stat.S_IMODE(status.st_mode) != 0o600:
            with suppress(OSError):  # a read-only file system, or one without permissions
                os.fchmod(descriptor, 0o600)
        return descriptor

    def replace(self, data: bytes, *, sync: bool = True) -> None:
        """Replace the content of the file with *data*, atomically; creates missing directories.

        With *sync*, the data is on disk when this returns.
        """
        self.directory.make()
        with Replacement(self.path, mode=0o600, is_own=True, sync=sync) as new:
            new.write(data)
            new.commit()

    def remove(self) -> bool:
        """Remove the file, and the replacements that killed writers left; return whether it existed."""
        for unfinished in self.directory.files(re.escape(f".{self.path.name[:_MAX_BASE]}.") + r"[0-9a-f]{16}\.new"):
            with suppress(OSError):
                unfinished.path.unlink()
        try:
            _retried(self.path.unlink)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def touch(self) -> None:
        """Set the access and modification times of the file to now."""
        os.utime(self.path)

    def mark(self) -> None:
        """Create the file if it does not exist, and set its times to now: for processes that compare `modified_at`."""
        os.close(self.open(os.O_WRONLY | os.O_CREAT))
        self.touch()

    def modified_at(self) -> int | None:
        """Return the modification time of the file in nanoseconds, None if it is unknown."""
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return None

"""Resolve a path and keep its directory open, without following symbolic links of other users.

Kernel protection against links of other users applies only to sticky directories, and only to paths that the kernel
resolves. So this module resolves each path component itself, relative to an open directory. Every OSError propagates.
"""

import errno
import os
import stat
import sys
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from xapi_cli.errors import UsageError
from xapi_cli.system.render import printable

if sys.platform == "win32":
    from xapi_cli.system import windows

POSIX = os.name == "posix"
_HOMES = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
_MAX_LINKS = 40  # the limit of Linux
_NOT_A_DIRECTORY = {errno.ENOTDIR, errno.ELOOP}  # a symbolic link is one or the other, depending on the platform
_TRAVERSE = 0  # flags for opening a directory to traverse it, which needs fewer permissions than listing it
if sys.platform != "win32":
    _TRAVERSE = getattr(os, "O_PATH", getattr(os, "O_SEARCH", 0)) | os.O_DIRECTORY | os.O_NOFOLLOW


class UnsafePath(PermissionError):
    """The path is not safe to use, because of *problem*; *remedy* is the first part of the hint."""

    remedy = ""

    def __init__(self, path: Path, problem: str) -> None:
        self.problem = problem
        super().__init__(errno.EPERM, problem, str(path))


class UntrustedLink(UnsafePath):
    """A symbolic link on the path belongs to another user."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, f"the symbolic link {printable(str(path))} belongs to another user")


class HomeOfSudoUser(UnsafePath):
    """Root would create a directory in the home directory of the user who ran sudo, which that user could not use."""

    remedy = "run it without sudo, or with `sudo -H`, or "

    def __init__(self, path: Path) -> None:
        super().__init__(path, f"root would create {printable(str(path))} in the home directory of the caller of sudo")


def home() -> Path:
    """Return the home directory: HOME if it is an absolute path, else the one in the password database."""
    if sys.platform == "win32":
        return Path.home()
    if os.path.isabs(chosen := os.environ.get("HOME", "")):
        return Path(chosen)
    import pwd

    with suppress(KeyError):
        if os.path.isabs(listed := pwd.getpwuid(os.getuid()).pw_dir):
            return Path(listed)
    return Path("/nonexistent")


def relative_homes(environ: Mapping[str, str]) -> list[str]:
    """Return the home and XDG variables that are set but do not contain an absolute path."""
    return [name for name in _HOMES if name in environ and not Path(environ[name]).is_absolute()]


def base_directory(environ: Mapping[str, str], variable: str, default: str) -> Path:
    """Return the directory that *variable* names; *default* in the home directory without one, or if it is relative."""
    # The specification says to ignore a relative XDG path: https://specifications.freedesktop.org/basedir/
    chosen = Path(environ.get(variable, ""))
    return chosen if chosen.is_absolute() else home() / default


def chosen_directory(environ: Mapping[str, str], variable: str) -> Path | None:
    """Return the absolute path of the directory that *variable* names, None without one.

    Raises UsageError if it is relative and the current directory was deleted.
    """
    if not (chosen := environ.get(variable)):
        return None
    try:
        return Path(chosen).absolute()
    except FileNotFoundError as error:
        raise UsageError(
            f"{variable} is relative, and the current directory does not exist", hint="set it to an absolute path"
        ) from error


def comparable(name: str) -> str:
    """Return a text that is equal for two names of the same file, which may not exist yet.

    On Windows, symbolic links are not resolved, because that would open the file, or a device with its name.
    """
    if sys.platform == "win32":
        return os.path.normcase(os.path.abspath(name))
    try:
        directory, base = os.path.split(os.path.realpath(name))
        status = os.stat(directory)  # a directory that is mounted twice has two paths
    except (OSError, ValueError):  # the name cannot be opened either, or the current directory was deleted
        return name
    return f"{status.st_dev}:{status.st_ino}/{base}"


def is_trusted(status: os.stat_result) -> bool:
    """Return whether the file with the status *status* belongs to this user or to root."""
    return sys.platform == "win32" or status.st_uid in (0, os.geteuid())


class OpenDirectory:
    """The directory *path*, which is kept open, so that a later change of the path has no effect.

    The methods access names in it; a symbolic link is not followed. On Windows, which does not support this,
    *descriptor* is None, and the directory is found by its path.
    """

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path = path
        self._descriptor = descriptor
        self._prefix = "" if descriptor is not None else os.path.join(path, "")
        self._finalizer: weakref.finalize[[int, os.stat_result], OpenDirectory] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the directory."""
        if self._finalizer is not None:
            self._finalizer()
        elif self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def close_when_unused(self) -> os.stat_result:
        """Return the status of the directory; close it when it is garbage-collected, unless it was closed before."""
        if self._descriptor is None:
            return os.stat(self.path)
        status = os.fstat(self._descriptor)
        self._finalizer = weakref.finalize(self, _close_if_same, self._descriptor, status)
        return status

    def detach(self) -> int:
        """Return the descriptor, which the caller closes; this object is no longer valid."""
        assert self._descriptor is not None  # noqa: S101 - not on Windows
        descriptor, self._descriptor = self._descriptor, None
        return descriptor

    def directory(self, name: str) -> "OpenDirectory | None":
        """Return the directory *name*, opened without following a symbolic link.

        Returns None if it is not a directory, and always on Windows; raises OSError for other failures.
        """
        if self._descriptor is None:
            return None
        try:
            return OpenDirectory(self.path / name, os.open(name, _TRAVERSE, dir_fd=self._descriptor))
        except OSError as error:
            if error.errno in _NOT_A_DIRECTORY:
                return None
            raise

    def status(self) -> os.stat_result:
        """Return the status of the directory."""
        return os.stat(self.path if self._descriptor is None else self._descriptor)

    def status_if_at(self, path: Path) -> os.stat_result | None:
        """Return the status of the directory; None if *path* no longer leads to it or cannot be accessed."""
        try:
            status = os.stat(self.path if self._descriptor is None else self._descriptor)
            return status if os.path.samestat(os.stat(path), status) else None
        except OSError:
            return None

    def names(self) -> list[str]:
        """Return the names of all files in the directory."""
        if sys.platform == "win32" or self._descriptor is None:
            return os.listdir(self.path)
        with closing_descriptor(os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._descriptor)) as descriptor:
            return os.listdir(descriptor)

    def sync(self) -> None:
        """Flush the directory to disk, if the platform supports it."""
        if self._descriptor is not None:
            _sync(self._descriptor)

    def status_of(self, name: str) -> os.stat_result:
        """Return the status of the file *name*."""
        return os.stat(self._prefix + name, dir_fd=self._descriptor, follow_symlinks=False)

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """Return the descriptor of the file *name*, opened with *flags*."""
        for flag in ("O_NOFOLLOW", "O_BINARY", "O_NOINHERIT"):
            flags |= getattr(os, flag, 0)
        if sys.platform == "win32":  # another process may be replacing it
            return windows.retried(lambda: os.open(self._prefix + name, flags, mode))
        return os.open(name, flags, mode, dir_fd=self._descriptor)

    if sys.platform == "linux":

        def open_unnamed(self) -> int:
            """Return the descriptor of a new file without a name."""
            return os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600, dir_fd=self._descriptor)

    def link(self, descriptor: int, name: str) -> None:
        """Give the *name* to the open file, which has no name yet; Linux only."""
        source = f"/proc/self/fd/{descriptor}"
        # without src_dir_fd, Python would call link(), which does not follow the symbolic link in /proc
        os.link(source, name, src_dir_fd=descriptor, dst_dir_fd=self._descriptor, follow_symlinks=True)

    def is_writable(self, name: str) -> bool:
        """Return whether the permissions of the file *name* allow writing."""
        return os.access(self._prefix + name, os.W_OK, dir_fd=self._descriptor)

    def rename(self, name: str, target: str) -> None:
        """Rename the file *name* to *target*, replacing an existing file."""
        if sys.platform == "win32":  # refused while a process reads *target*
            windows.retried(lambda: os.replace(self._prefix + name, self._prefix + target))
            return
        os.replace(name, target, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def unlink(self, name: str) -> None:
        """Remove the file *name*."""
        if sys.platform == "win32":
            windows.retried(lambda: os.unlink(self._prefix + name))
            return
        os.unlink(name, dir_fd=self._descriptor)

    def touch(self, name: str) -> None:
        """Set the access and modification times of the file *name* to now."""
        if self._descriptor is None:
            os.utime(self._prefix + name)
        else:
            os.utime(name, dir_fd=self._descriptor, follow_symlinks=False)


def open_parent(path: str | Path, *, follow: bool = False, make: bool = False) -> tuple[OpenDirectory, str]:
    """Return the directory that contains *path*, and the name of *path* in it.

    With *follow*, a symbolic link as the last component is followed. With *make*,
    missing directories are created with mode 0700. Raises UntrustedLink instead of
    following a link of another user, HomeOfSudoUser instead of creating a directory in
    the home directory of the user who ran sudo, and other kinds of OSError.
    """
    if sys.platform == "win32":
        whole = os.path.abspath(path)
        extended = windows.extended(whole)
        found = Path(path if extended == whole else extended)
        if follow and found.is_symlink():
            found = Path(os.path.realpath(found))
        if make:
            _make_private(found.parent)
        return OpenDirectory(found.parent, None), found.name
    resolution = _Resolution(Path(path), make=make)
    try:
        name = resolution.run(follow=follow)
    except BaseException:
        os.close(resolution.descriptor)
        raise
    return OpenDirectory(resolution.path, resolution.descriptor), name


if sys.platform == "win32":

    def _make_private(directory: Path) -> None:
        """Create *directory*, and those above it, with access for this user only; existing ones are not changed."""
        if not directory.is_dir():
            if directory.parent != directory:
                _make_private(directory.parent)
            try:
                directory.mkdir()
            except FileExistsError:
                return
            windows.restrict(directory, is_directory=True)


def _close_if_same(descriptor: int, status: os.stat_result) -> None:
    """Close the directory with *status*, unless *descriptor* was closed, and perhaps reused."""
    with suppress(OSError):
        if os.path.samestat(os.fstat(descriptor), status):
            os.close(descriptor)


@contextmanager
def closing_descriptor(descriptor: int) -> Iterator[int]:
    """Return a context manager that closes the open file *descriptor*."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class _Resolution:
    """The resolution of *path*: `descriptor` is the descriptor of the current directory, and `path` is its path."""

    def __init__(self, path: Path, *, make: bool) -> None:
        self.path = Path("/" if path.is_absolute() else ".")
        self.descriptor = os.open(self.path, _TRAVERSE)
        self._remaining = _names(str(path))
        self._links = 0
        self._make = make

    def run(self, *, follow: bool) -> str:
        """Enter the directory that contains the last name, and return that name.

        With *follow*, a symbolic link there is followed.
        """
        while self._descend() or follow:
            name = self._remaining.pop() if self._remaining else "."
            target = self._target(name)
            if target is not None:
                self._follow(target)
            elif self._remaining:
                self._change_directory(name, self.path / name)  # raises the reason why it cannot be entered
            else:
                return name
        return self._remaining.pop() if self._remaining else "."

    def _target(self, name: str) -> str | None:
        """Return the target of the symbolic link *name*, None if it is not a link; raises UntrustedLink."""
        while (before := self._status(name)) is not None and stat.S_ISLNK(before.st_mode):
            if not is_trusted(before):
                raise UntrustedLink(self.path / name)
            target = os.readlink(name, dir_fd=self.descriptor)
            after = self._status(name)
            if after is not None and (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns):
                return target  # the link did not change after its owner was checked
        return None

    def _status(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(self.path))
        if target.startswith("/"):
            self._change_directory("/", Path("/"))
        self._remaining += _names(target)

    def _descend(self) -> bool:
        """Enter the next directories; return False if only the last name remains.

        Returns True if an earlier name is not a directory (a symbolic link is not one).
        """
        while len(self._remaining) > 1:
            name = self._remaining[-1]
            try:
                new = os.open(name, _TRAVERSE, dir_fd=self.descriptor)
            except FileNotFoundError:
                if not self._make:
                    raise
                self._make_directory(name, self.path / name)
                new = os.open(name, _TRAVERSE, dir_fd=self.descriptor)
            except OSError as error:
                if error.errno in _NOT_A_DIRECTORY:
                    return True
                raise
            os.close(self.descriptor)
            self.descriptor, self.path = new, self.path / self._remaining.pop()
        return False

    def _change_directory(self, name: str, path: Path) -> None:
        new = os.open(name, _TRAVERSE, dir_fd=self.descriptor)
        os.close(self.descriptor)
        self.descriptor, self.path = new, path

    def _make_directory(self, name: str, path: Path) -> None:
        if any(Path(each).is_relative_to(path) for each in (home(), os.path.realpath(home()))):
            raise FileNotFoundError(errno.ENOENT, f"no home directory: {printable(str(home()))}", str(path))
        if _is_in_home_of_sudo_user(path):
            raise HomeOfSudoUser(path)
        with suppress(FileExistsError):  # another process created it first
            os.mkdir(name, 0o700, dir_fd=self.descriptor)
            if (
                os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mode & 0o700 != 0o700
            ):  # an unusual umask
                os.chmod(name, 0o700, dir_fd=self.descriptor)
            _sync(self.descriptor)


def _is_in_home_of_sudo_user(path: Path) -> bool:
    """Return whether this process is root by sudo, and *path* is in a home directory that belongs to its caller."""
    if sys.platform == "win32":
        return False
    if not (caller := os.environ.get("SUDO_UID")) or caller == "0" or os.geteuid() != 0:
        return False
    with suppress(OSError):
        above = os.path.realpath(home())
        return str(os.stat(above).st_uid) == caller and Path(os.path.realpath(path)).is_relative_to(above)
    return False


def _names(path: str) -> list[str]:
    """Return the components of *path* in reverse order."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _sync(directory: int) -> None:
    if sys.platform == "win32":
        return
    flags = os.O_RDONLY | os.O_DIRECTORY
    with suppress(OSError), closing_descriptor(os.open(".", flags, dir_fd=directory)) as descriptor:
        fsync(descriptor)  # some network and FUSE file systems do not support it


def fsync(descriptor: int) -> None:
    """Write the data of the open file *descriptor* to the disk; raise OSError on failure.

    On macOS, fsync() leaves the data in the cache of the drive, which a power failure erases (fsync(2) there).
    """
    if sys.platform == "darwin":
        import fcntl

        with suppress(OSError):  # not supported by some file systems, for example on a network
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)

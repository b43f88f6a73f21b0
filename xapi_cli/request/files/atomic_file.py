"""A local file that is written atomically: complete or not at all."""

import errno
import os
import re
import select
import stat
import sys
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

from xapi_cli.errors import OutputError
from xapi_cli.system import private_files
from xapi_cli.system.render import printable
from xapi_cli.system.safe_paths import OpenDirectory, is_trusted, open_parent

if TYPE_CHECKING:
    from xapi_cli.http.messages import Headers

if sys.platform == "win32":
    from xapi_cli.system import windows

_NEW = "xapi-output"  # what an unfinished file is called, for `private_files.temporary_name`
_UNFINISHED = r"\.xapi-output\.[0-9a-f]{16}\.new"  # matches what `temporary_name(_NEW)` returns
_DESCRIPTOR_DIRECTORY = "/proc/self/fd"
# The errors of file systems and kernels that do not support unnamed files.
_UNNAMED_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT})
_MAX_NAME_LENGTH = 255  # bytes, on all file systems that support unnamed files
_DESCRIPTOR = re.compile(r"/dev/(?:fd/(\d+)|(stdout)|(stderr))|/proc/self/fd/(\d+)")
_FOREIGN_DESCRIPTOR = re.compile(r"/proc/[^/]+/fd/")


class AtomicFile:
    """Write a new file that replaces the file *name* when `commit` is called; without `commit`, nothing changes.

    The data is written to a new file in the same directory. The new file has no
    name if the platform supports unnamed files, so that a killed process leaves
    no file behind. A target that is not a regular file (a device, a FIFO, a
    descriptor such as /dev/stdout) is written directly. The methods raise
    OutputError, which names the file.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._directory: OpenDirectory | None = None  # kept open, so that a later change of the path has no effect
        self._target = ""  # the name of the replaced file in it
        self._new: str | None = None  # the name of the new file, if it has one
        self._file: BinaryIO | None = None
        self._is_direct = False

    @staticmethod
    def accepts(status: int) -> bool:
        """Return whether the file receives the body of a response with *status*: always."""
        return True

    @property
    def kept(self) -> str:
        """What is kept if the download ends now: nothing."""
        return ""

    @property
    def count(self) -> int:
        """How many bytes of an earlier download the file starts with: none."""
        return 0

    def begin(self, status: int, fields: "Headers", url: str) -> None:
        """Do nothing before the body of a response: the file is empty."""

    def open(self) -> None:
        """Open the file for writing; raise OutputError if it cannot be written. A failure needs no cleanup."""
        try:
            self._file = self._open_new()
        except (OSError, ValueError) as error:
            raise self._error(error) from error

    def write(self, data: bytes) -> None:
        """Append *data* to the file."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._write_some(rest) :]
        except OSError as error:
            raise self._error(error) from error

    def commit(self) -> None:
        """Replace the content of the file with the data written."""
        try:
            if self._file is not None and self._directory is not None and not self._is_direct:
                self._file.flush()
                self._replace(self._file, self._directory)
            self._close()
        except OSError as error:
            raise self._error(error) from error

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # the disk may be full; the unwritten data is discarded anyway
            self._close()
        if self._directory is not None:
            if self._new is not None:
                with suppress(OSError):
                    self._directory.unlink(self._new)
            self._directory.close()

    def _open_new(self) -> BinaryIO:
        self._is_direct = True
        if (number := _descriptor(self.name)) is not None:
            return open(_duplicate(number), "wb", buffering=0)
        if is_descriptor(self.name):
            return open(self.name, "wb", buffering=0)
        check_name(self.name)
        directory, self._target = open_parent(self.name, follow=True)  # a symbolic link is preserved
        self._directory = directory
        if os.path.exists(self.name) and not os.path.isfile(self.name):
            return self._open_device()
        self._is_direct = False
        if _exists(directory, self._target) and not directory.is_writable(self._target):
            raise PermissionError(0, "the file is read-only")
        return _create_unnamed(directory, self._target) or self._create_named(directory)

    def _open_device(self) -> BinaryIO:
        """Open a target that is not a regular file; raise OSError if it has become a regular file in the meantime."""
        descriptor = os.open(self.name, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EAGAIN, "it was replaced by another file")
        return open(descriptor, "wb", buffering=0)

    def _create_named(self, directory: OpenDirectory) -> BinaryIO:
        """Return a new named file; if this process is killed, a later call in the same directory removes the file."""
        with suppress(OSError):  # the directory may not be readable
            private_files.remove_abandoned(directory, _UNFINISHED)
        while True:
            self._new = private_files.temporary_name(_NEW)
            descriptor = directory.open(self._new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            file = open(descriptor, "wb")  # noqa: SIM115 - closed by __exit__
            if private_files.lock_against_removal(file.fileno()):
                return file
            file.close()

    def _replace(self, file: BinaryIO, directory: OpenDirectory) -> None:
        """Atomically replace the target with *file*."""
        mode = mode_of(directory, self._target)
        set_mode(file.fileno(), mode)
        if self._new is None:
            if _link(file, directory, self._target):
                return
            self._new = private_files.temporary_name(_NEW)  # only a rename replaces a file, and it requires a name
            if not _link(file, directory, self._new):
                _copy(file, directory, self._new, mode)
        if sys.platform == "win32":
            file.close()  # Windows cannot rename an open file
        directory.rename(self._new, self._target)
        self._new = None

    def _write_some(self, data: memoryview) -> int:
        """Write as much of *data* as a single write accepts; return the number of bytes, which may be 0."""
        assert self._file is not None, "open() comes first"  # noqa: S101 - narrows the type
        written = self._file.write(data)
        if written is None:  # a non-blocking pipe is full: wait until it is writable
            select.select([], [self._file], [])
        return written or 0

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _error(self, error: OSError | ValueError) -> OutputError:
        return write_error(self.name, error)


def write_error(name: str, error: OSError | ValueError) -> OutputError:
    """Return the error for *error*, with which writing the file *name* has failed."""
    reason = (error.strerror if isinstance(error, OSError) else None) or "the name is not valid"
    shown = printable(name) or "a file without a name"
    return OutputError(f"{shown} cannot be written: {reason}", hint="choose another file")


def check_name(name: str) -> None:
    """Raise OSError if no file can have the *name*: it is empty, or that of a directory."""
    if not name or name.endswith((os.sep, "/")):
        open(name, "wb").close()  # fails with the reason
    if sys.platform == "win32" and windows.is_reserved(name):
        raise OSError(errno.EINVAL, "Windows reserves the name for a device")


def is_descriptor(name: str) -> bool:
    """Return whether *name* denotes an open file, of this process or another one, instead of a place for a file."""
    return _descriptor(name) is not None or _FOREIGN_DESCRIPTOR.match(name) is not None


def _descriptor(name: str) -> int | None:
    """Return the file descriptor of this process that *name* denotes, None if it denotes none."""
    found = _DESCRIPTOR.fullmatch(name)
    if found is None:
        return None
    return 1 if found[2] else 2 if found[3] else int(found[1] or found[4])


def _duplicate(number: int) -> int:
    """Return a duplicate of the descriptor *number*; reopening a file by name would reset its offset to 0."""
    if sys.platform == "win32":
        return os.dup(number)
    import fcntl

    if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:  # even if it was closed at startup
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return os.dup(number)


def _exists(directory: OpenDirectory, name: str) -> bool:
    with suppress(FileNotFoundError):
        directory.status_of(name)
        return True
    return False


def mode_of(directory: OpenDirectory, name: str) -> int:
    """Return the permissions of the replaced file if the user or root owns it, else those that the umask allows."""
    with suppress(OSError):
        found = directory.status_of(name)
        if is_trusted(found) and stat.S_ISREG(found.st_mode):
            return stat.S_IMODE(found.st_mode)
    umask = os.umask(0o077)
    os.umask(umask)
    return 0o666 & ~umask


def _create_unnamed(directory: OpenDirectory, name: str) -> BinaryIO | None:
    """Return a new file without a name, which can get *name* later; None if that is not possible in *directory*."""
    if sys.platform != "linux" or not hasattr(os, "O_TMPFILE") or not os.path.isdir(_DESCRIPTOR_DIRECTORY):
        return None
    # otherwise, only the final link would fail
    if len(os.fsencode(name)) > _MAX_NAME_LENGTH:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    if directory.status().st_nlink == 0:  # the current directory, which was deleted
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    try:
        return open(directory.open_unnamed(), "wb")
    except OSError as error:
        if error.errno in _UNNAMED_UNSUPPORTED:
            return None
        raise


def _link(file: BinaryIO, directory: OpenDirectory, name: str) -> bool:
    """Link the unnamed *file* to *name*; return whether it succeeded: the name may exist or a sandbox may forbid it."""
    try:
        directory.link(file.fileno(), name)
    except OSError:
        return False
    return True


def _copy(file: BinaryIO, directory: OpenDirectory, name: str, mode: int) -> None:
    """Copy the content of *file* to the new file *name* with the permissions *mode*."""
    from shutil import copyfileobj

    new = directory.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with open(os.dup(file.fileno()), "rb") as source, open(new, "wb") as copy:
        set_mode(new, mode)
        source.seek(0)
        copyfileobj(source, copy)


def set_mode(descriptor: int, mode: int) -> None:
    """Set the permissions of the open file to *mode*, where that is supported."""
    if hasattr(os, "fchmod"):  # missing on Windows before Python 3.13, where few modes exist
        os.fchmod(descriptor, mode)

"""A local file that is written whole or not at all."""

import errno
import os
import re
import select
import stat
import sys
from contextlib import suppress
from types import TracebackType
from typing import BinaryIO, Self

from xapi_cli.errors import OutputError
from xapi_cli.system import private_files
from xapi_cli.system.render import printable
from xapi_cli.system.safe_paths import Place, is_trusted, place

_UNFINISHED = re.compile(r"\.xapi-output\.[0-9a-f]{16}\.new")  # what a file is called that is still being written
_OPEN = "/proc/self/fd"
_NO_UNNAMED = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT})  # of file systems, of old kernels
_LONGEST_NAME = 255  # bytes, in all file systems that have unnamed files
_DESCRIPTOR = re.compile(r"/dev/(?:fd/(\d+)|(stdout)|(stderr))|/proc/self/fd/(\d+)")
_DESCRIPTOR_OF_OTHERS = re.compile(r"/proc/[^/]+/fd/")


class AtomicFile:
    """Take the place of the file *name* at `keep`, and of nothing without it.

    The bytes go to a new file in its folder: one without a name where the
    platform has such, so that even a killed process leaves nothing. What is no
    regular file (a device, a FIFO, a descriptor such as /dev/stdout) is written
    directly. Raises OutputError, naming the file.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._target: Place | None = None  # held open, so that the file lands where it was looked for
        self._new: Place | None = None  # where the new file has a name
        self._file: BinaryIO | None = None
        self._is_direct = False

    def open(self) -> None:
        """Make sure that the file can be written; until then there is nothing to be cleaned up."""
        try:
            self._file = self._opened()
        except (OSError, ValueError) as error:
            raise self._failed(error) from error

    def write(self, data: bytes) -> None:
        """Append *data*."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._written(rest) :]
        except OSError as error:
            raise self._failed(error) from error

    def keep(self) -> None:
        """Make what was written the content of the file."""
        try:
            if self._file is not None and self._target is not None and not self._is_direct:
                self._file.flush()
                self._put_in_place(self._file, self._target)
            self._close()
        except OSError as error:
            raise self._failed(error) from error

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # a full disk: what could not be written is to be deleted anyway
            self._close()
        if self._new is not None:
            with suppress(OSError):
                self._new.unlink()
        if self._target is not None:
            self._target.close()

    def _opened(self) -> BinaryIO:
        self._is_direct = True
        if (number := _descriptor(self._name)) is not None:
            return open(_writable(number), "wb", buffering=0)
        if not self._name or self._name.endswith((os.sep, "/")) or _DESCRIPTOR_OF_OTHERS.match(self._name):
            return open(self._name, "wb", buffering=0)  # a directory fails here
        self._target = target = place(self._name, follow=True)  # a symbolic link stays one
        if os.path.exists(self._name) and not os.path.isfile(self._name):
            return self._device()
        self._is_direct = False
        if _exists(target) and not target.is_writable():
            raise PermissionError(0, "the file is read-only")
        return _unnamed(target) or self._named(target)

    def _device(self) -> BinaryIO:
        """Open what is no regular file where it is; one that has become a regular file meanwhile stays untouched."""
        descriptor = os.open(self._name, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EAGAIN, "another file has taken its place")
        return open(descriptor, "wb", buffering=0)

    def _named(self, target: Place) -> BinaryIO:
        """Return a new file with a name; when this process is killed, the next one that comes here removes it."""
        with suppress(OSError):  # a directory that may not be listed
            private_files.sweep(target, _UNFINISHED)
        while True:
            self._new = _another_name(target)
            file = open(self._new.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")  # noqa: SIM115 - closed by __exit__
            if private_files.claim(file.fileno()):
                return file
            file.close()

    def _put_in_place(self, file: BinaryIO, target: Place) -> None:
        """Give *file* the name of the target, which is the old file until that moment."""
        mode = _mode(target)
        _set_mode(file.fileno(), mode)
        if self._new is None:
            if _linked(file, target):
                return
            self._new = _another_name(target)  # only renaming replaces a file, and only what has a name can be renamed
            if not _linked(file, self._new):
                _copy(file, self._new, mode)
        if sys.platform == "win32":
            file.close()  # or it could not be renamed
        self._new.rename(target)
        self._new = None

    def _written(self, data: memoryview) -> int:
        """Write of *data* what goes in at once; of a device that may be less than all."""
        assert self._file is not None, "open() comes first"  # noqa: S101 - for the type checker
        written = self._file.write(data)
        if written is None:  # a non-blocking pipe that is full: wait for its reader
            select.select([], [self._file], [])
        return written or 0

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _failed(self, error: OSError | ValueError) -> OutputError:
        reason = (error.strerror if isinstance(error, OSError) else None) or "the name cannot be used"
        name = printable(self._name) or "a file without a name"
        return OutputError(f"{name} cannot be written: {reason}", hint="give another file")


def _descriptor(name: str) -> int | None:
    """Return the number of our own open file that *name* stands for, if it does."""
    found = _DESCRIPTOR.fullmatch(name)
    if found is None:
        return None
    return 1 if found[2] else 2 if found[3] else int(found[1] or found[4])


def _writable(number: int) -> int:
    """Return a duplicate of the descriptor *number*: opening its name anew would begin at the start of a file."""
    import fcntl  # where there are such names, there is this

    if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:  # or what was closed before we started
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return os.dup(number)


def _exists(target: Place) -> bool:
    with suppress(FileNotFoundError):
        target.status()
        return True
    return False


def _another_name(target: Place) -> Place:
    return private_files.unfinished(target.sibling("xapi-output"))


def _mode(target: Place) -> int:
    """Return the permissions of the user's own file that is replaced, else what the umask leaves."""
    with suppress(OSError):
        found = target.status()
        if is_trusted(found) and stat.S_ISREG(found.st_mode):
            return stat.S_IMODE(found.st_mode)
    umask = os.umask(0o077)
    os.umask(umask)
    return 0o666 & ~umask


def _unnamed(target: Place) -> BinaryIO | None:
    """Return a new file without a name, in the directory of *target*; None where there are none that get one later."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir(_OPEN):
        return None
    if len(os.fsencode(target.path.name)) > _LONGEST_NAME:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))  # which would show only at the end
    try:
        return open(target.open_unnamed(), "wb")
    except OSError as error:
        if error.errno in _NO_UNNAMED:
            return None
        raise


def _linked(file: BinaryIO, name: Place) -> bool:
    """Give the unnamed *file* its *name*; tell whether that went well: there may be one, or a sandbox forbids it."""
    try:
        name.link(file.fileno())
    except OSError:
        return False
    return True


def _copy(file: BinaryIO, name: Place, mode: int) -> None:
    """Make the file *name*, with permissions *mode*, out of what is in *file*."""
    from shutil import copyfileobj

    new = name.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with open(os.dup(file.fileno()), "rb") as source, open(new, "wb") as copy:
        _set_mode(new, mode)
        source.seek(0)
        copyfileobj(source, copy)


def _set_mode(descriptor: int, mode: int) -> None:
    if hasattr(os, "fchmod"):  # not on Windows before Python 3.13, where there is little to set
        os.fchmod(descriptor, mode)

"""A local file that is written whole or not at all."""

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from xapi_cli.errors import OutputError
from xapi_cli.render import printable

_DESCRIPTOR = re.compile(r"/dev/(fd/|stdout$|stderr$)|/proc/[^/]+/fd/")


class OutFile:
    """Take the place of the file *name* at `keep`, and of nothing without it.

    The bytes go to a new file beside it. What is no regular file (a device, a
    FIFO, a descriptor such as /dev/stdout) is written directly. Raises
    OutputError, naming the file.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._target = Path(name)
        self._new: Path | None = None
        self._file: BinaryIO | None = None

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
            self._close()
            if self._new is not None:
                os.chmod(self._new, self._mode())
                os.replace(self._new, self._target)
                self._new = None
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
                os.unlink(self._new)

    def _opened(self) -> BinaryIO:
        if self._is_direct():
            return open(self._name, "wb", buffering=0)  # a folder fails here
        self._target = Path(os.path.realpath(self._name))  # a symbolic link stays one
        if self._target.exists() and not os.access(self._target, os.W_OK):
            raise PermissionError(0, "the file is read-only")
        self._new = self._target.with_name(f".xapi-{os.urandom(8).hex()}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        return open(os.open(self._new, flags, 0o600), "wb")

    def _is_direct(self) -> bool:
        if not self._name or self._name.endswith((os.sep, "/")) or _DESCRIPTOR.match(self._name):
            return True
        return os.path.exists(self._name) and not os.path.isfile(self._name)

    def _written(self, data: memoryview) -> int:
        """Write of *data* what goes in at once; of a device that may be less than all."""
        assert self._file is not None, "open() comes first"  # noqa: S101 - for the type checker
        return self._file.write(data) or 0

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _mode(self) -> int:
        """Return the permissions of the file that is replaced, else what the umask leaves."""
        with suppress(OSError):
            return stat.S_IMODE(self._target.stat().st_mode)
        umask = os.umask(0o077)
        os.umask(umask)
        return 0o666 & ~umask

    def _failed(self, error: OSError | ValueError) -> OutputError:
        reason = (error.strerror if isinstance(error, OSError) else None) or "the name cannot be used"
        name = printable(self._name) or "a file without a name"
        return OutputError(f"{name} cannot be written: {reason}", hint="give another file")

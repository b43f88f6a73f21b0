"""A local file that is written whole or not at all."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from xapi_cli.errors import OutputError
from xapi_cli.render import printable


class OutFile:
    """Take the place of the file *name* at `keep`, and of nothing without it.

    The bytes go to a new file beside it. What is no regular file (a device, a
    FIFO) is written directly. Raises OutputError, naming the file.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._target = Path(os.path.realpath(name))  # a symbolic link stays one
        self._new: Path | None = None
        try:
            self._file = self._opened()
        except (OSError, ValueError) as error:
            raise self._failed(error) from error

    def write(self, data: bytes) -> None:
        """Append *data*."""
        try:
            self._file.write(data)
        except OSError as error:
            raise self._failed(error) from error

    def keep(self) -> None:
        """Make what was written the content of the file."""
        try:
            self._file.flush()
            if self._new is not None:
                os.chmod(self._new, self._mode())
            self._file.close()
            if self._new is not None:
                os.replace(self._new, self._target)
                self._new = None
        except OSError as error:
            raise self._failed(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._file.close()
        if self._new is not None:
            with suppress(OSError):
                os.unlink(self._new)

    def _opened(self) -> BinaryIO:
        if os.path.exists(self._name) and not os.path.isfile(self._name):
            return open(self._name, "wb", buffering=0)  # a device or a FIFO; a folder fails here
        new = self._target.with_name(f".{self._target.name[:200]}.{os.urandom(8).hex()}.part")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        self._new = new
        return open(descriptor, "wb")

    def _mode(self) -> int:
        """Return the permissions of the file that is replaced, else what the umask leaves."""
        with suppress(OSError):
            return stat.S_IMODE(self._target.stat().st_mode)
        umask = os.umask(0o077)
        os.umask(umask)
        return 0o666 & ~umask

    def _failed(self, error: OSError | ValueError) -> OutputError:
        reason = (error.strerror if isinstance(error, OSError) else None) or "the name cannot be used"
        return OutputError(f"{printable(self._name)} cannot be written: {reason}", hint="give another file")

"""The standard streams as xapi finds them: closed, non-blocking, or redirected by other code in the process."""

import errno
import os
import select
import sys
from contextlib import suppress
from io import FileIO, TextIOWrapper
from typing import BinaryIO

# Windows reports a pipe whose reader has closed it as an invalid argument.
CLOSED_PIPE_ERRORS = frozenset({errno.EPIPE, errno.ECONNRESET} | ({errno.EINVAL} if sys.platform == "win32" else set()))
_CLOSED_AT_START: set[int] = set()


def reserve() -> None:
    """Open /dev/null for each closed standard stream, so that no socket or file gets its descriptor number."""
    for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        if stream is None:  # it was closed when Python started, and another library may have taken its number
            _CLOSED_AT_START.add(number)
        try:
            os.fstat(number)
        except OSError:
            _CLOSED_AT_START.add(number)
            with suppress(OSError):  # no /dev; otherwise, it gets the lowest free number, which is this one
                os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is None:  # otherwise Typer would discard help and version output and report success
        with suppress(OSError):
            raw = open(1, "wb", buffering=0, closefd=False)  # noqa: SIM115 - open until the process exits
            sys.stdout = TextIOWrapper(raw, encoding="utf-8", write_through=True)
    if sys.platform == "win32":
        os.system("")  # noqa: S605, S607 - makes the console interpret escape codes
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # as all output that does not go through it


def is_terminal(number: int) -> bool:
    """Return whether the standard stream *number* is a terminal."""
    return number not in _CLOSED_AT_START and os.isatty(number)


def open_stdin() -> BinaryIO | None:
    """Return a duplicate of stdin, without a buffer; None if it was closed when xapi started."""
    return None if 0 in _CLOSED_AT_START else _BlockingStdin(os.dup(0), closefd=False)


def duplicate(number: int) -> int | None:
    """Return a duplicate of the standard stream *number*, None if it was closed when xapi started.

    The duplicate remains valid while `store.keyring` redirects the standard stream for all threads.
    """
    try:
        return None if number in _CLOSED_AT_START else os.dup(number)
    except OSError:
        return number


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of *data*; wait while a non-blocking pipe is full. Raises OSError."""
    rest = memoryview(data)
    if sys.platform == "win32" and os.isatty(descriptor):
        with open(descriptor, "wb", buffering=0, closefd=False) as console:  # shows UTF-8 whatever the code page is
            while rest:
                rest = rest[console.write(rest) or 0 :]
        return
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


class _BlockingStdin(FileIO):
    """A stream whose `read` waits for data, even if another process made the shared stream non-blocking."""

    def read(self, size: int | None = -1, /) -> bytes:
        while (data := super().read(-1 if size is None else size)) is None:
            select.select([self], [], [])
        return data

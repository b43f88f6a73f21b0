"""The file of a journal: one process writes it, whatever the lines are, and each ends with a checksum.

The checksum of a line also covers the first line, the header, so that a line that was copied from another journal is
detected as damaged.
"""

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import BinaryIO, NamedTuple
from zlib import crc32

from xapi_cli.errors import OutputError, UsageError
from xapi_cli.system import files
from xapi_cli.system.lock import is_unsupported, try_lock
from xapi_cli.system.render import printable

BLOCK = 1024 * 1024  # bytes per read or write
_CHECKSUM = re.compile(rb', "sum": "[0-9a-f]{8}"\}\n?')
_PAGE = 4096
_MAX_UNKNOWN = 128 * BLOCK  # bytes to read before a file is rejected as not a journal; more than the longest line


class JournalLine(NamedTuple):
    """A line of the file: its *start*, its *length* in bytes, its end with the checksum, and whether that matches."""

    start: bytes
    length: int
    checksum: bytes
    is_intact: bool

    @property
    def is_complete(self) -> bool:
        """Whether the line ends with a newline."""
        return self.checksum.endswith(b"\n")

    @property
    def has_checksum(self) -> bool:
        """Whether the line ends with a checksum, which may not match."""
        return _CHECKSUM.search(self.checksum) is not None


def checksum(value: int) -> bytes:
    """Return the end of a line with the CRC-32 *value*."""
    return b', "sum": "%08x"}\n' % value


CHECKSUM_LENGTH = len(checksum(0))


class JournalFile:
    """The file *name* with the first line *header*, to which the checksum is added.

    The methods raise OSError if the file cannot be read or written.
    """

    def __init__(self, name: str, header: bytes) -> None:
        self.header = header + checksum(crc32(header))
        self.is_journal = False  # whether the content shows that it is a journal
        self._name, self._shown = name, printable(name) or "a file without a name"
        self._seed = crc32(self.header)
        self._descriptor = -1
        self._syncing: Thread | None = None

    def open(self) -> None:
        """Open the file, create it if it does not exist, and lock it.

        Raises UsageError if it is not a regular file or if another process has locked it.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)
        with suppress(FileNotFoundError):
            self._check_type(os.stat(self._name))  # opening a device may have side effects
        self._descriptor = os.open(self._name, flags | getattr(os, "O_BINARY", 0), 0o600)
        self._check_type(os.fstat(self._descriptor))
        self._lock()

    def close(self) -> None:
        """Close the file, which unlocks it."""
        if self._syncing:
            self._syncing.join()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def lines(self) -> Iterator[JournalLine]:
        """Yield the lines from the start of the file; raises UsageError if a line is too long for a journal."""
        with open(self._descriptor, "rb", buffering=BLOCK, closefd=False) as file:
            file.seek(0)
            while start := file.readline(BLOCK):
                yield self._line(start, file)

    def prepare(self, end: int) -> None:
        """Set the mode of the file to 0600, truncate it to *end* bytes, and write the header if it is empty.

        Raises UsageError if it is not a journal.
        """
        if not (self.is_journal or self._is_blank(end)):
            raise self.not_a_journal()
        files.restrict_mode(self._descriptor, Path(self._name))
        os.ftruncate(self._descriptor, end)
        if end == 0:
            self.write(self.header)

    def line(self, start: bytes, text: bytes = b"") -> tuple[bytes, bytes, bytes]:
        """Return the parts of the line of *start* and *text*."""
        return start, text, checksum(crc32(text, crc32(start, self._seed)))

    def append(self, start: bytes, chunks: Iterable[bytes]) -> tuple[int, int]:
        """Append a line of *start* and *chunks*; return the offset and the length in bytes of the chunks."""
        offset = os.lseek(self._descriptor, 0, os.SEEK_END) + len(start)
        value, length = crc32(start, self._seed), 0
        self.write(start)
        for chunk in chunks:
            self.write(chunk)
            value = crc32(chunk, value)
            length += len(chunk)
        self.write(checksum(value))
        return offset, length

    def write(self, data: bytes) -> None:
        """Append *data*."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def read(self, offset: int, size: int) -> bytes:
        """Return at most *size* bytes at *offset*."""
        if sys.platform == "win32":
            os.lseek(self._descriptor, offset, os.SEEK_SET)  # it has no pread(); O_APPEND still appends
            return os.read(self._descriptor, size)
        return os.pread(self._descriptor, size, offset)

    def read_chunks(self, offset: int, end: int) -> Iterator[bytes]:
        """Yield the content from *offset* to *end*; raises OutputError if the file was truncated or cannot be read."""
        while offset < end:
            try:
                data = self.read(offset, min(BLOCK, end - offset))
            except OSError as error:
                raise self.failure(error) from error
            if not data:
                raise OutputError(
                    f"the journal {self._shown} was truncated by another process", hint="run the command again"
                )
            yield data
            offset += len(data)

    def sync(self) -> None:
        """Flush the file to disk."""
        os.fsync(self._descriptor)

    def sync_in_background(self) -> None:
        """Flush the file to disk in a thread, unless such a thread is running; errors are ignored."""

        def sync() -> None:
            with suppress(OSError):  # the final sync() reports the error
                self.sync()

        if self._syncing is None or not self._syncing.is_alive():
            self._syncing = Thread(target=sync, daemon=True)
            self._syncing.start()

    def not_a_journal(self) -> UsageError:
        """Return the error for a file that is not a journal."""
        return UsageError(f"{self._shown} is not a journal of xapi", hint="pass a new file to --journal")

    def failure(self, error: OSError) -> OutputError:
        """Return the error for a read or write that failed with *error*."""
        reason = error.strerror or type(error).__name__
        return OutputError(f"the journal {self._shown} cannot be written: {reason}", hint="pass another --journal")

    def _check_type(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{self._shown} is not a regular file", hint="pass a new file to --journal")

    def _lock(self) -> None:
        try:
            is_locked = try_lock(self._descriptor)
        except OSError as error:
            if not is_unsupported(error):
                raise
            raise OutputError(
                f"the file system of the journal {self._shown} does not support locks ({error.strerror})",
                hint="pass a --journal on a local file system",
            ) from error
        if not is_locked:
            raise UsageError(
                f"another xapi process is writing to the journal {self._shown}",
                hint="wait for it, or pass another --journal",
            )

    def _line(self, start: bytes, file: BinaryIO) -> JournalLine:
        """Read the rest of the line that begins with *start*; a damaged line may be very long."""
        value, length, end, part = self._seed, 0, b"", start
        while part:
            data = end + part
            value, length, end = crc32(data[:-CHECKSUM_LENGTH], value), length + len(part), data[-CHECKSUM_LENGTH:]
            if length > _MAX_UNKNOWN and not self.is_journal:
                raise self.not_a_journal()
            part = b"" if end.endswith(b"\n") else file.readline(BLOCK)
        return JournalLine(start, length, end, is_intact=end == checksum(value))

    def _is_blank(self, end: int) -> bool:
        """Return whether the file, with complete lines up to *end*, is empty or one damaged page of NUL bytes."""
        size = os.fstat(self._descriptor).st_size
        return end == 0 and (size == 0 or (size <= _PAGE and not self.read(0, size).strip(b"\0")))

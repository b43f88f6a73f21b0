"""Request bodies that can be sent any number of times, byte for byte, in constant memory.

After a 401 or a redirect, the body is sent again. A pipe has been read to its end by then, and cannot be read again.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO, cast

from xapi_cli.errors import OutputError, XapiError
from xapi_cli.http.messages import Body

if TYPE_CHECKING:
    from xapi_cli.system.terminal import Terminal

CHUNK = 65_536
IN_MEMORY = 4_194_304  # bytes; a larger body is stored in a temporary file


class Text(Body):
    """A body that is already in memory."""

    def __init__(self, data: bytes, content_type: str | None = None) -> None:
        super().__init__(len(data), content_type)
        self._data = data

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, self.length, CHUNK):
            yield self._data[start : start + CHUNK]


class Spool(Body):
    """A copy of *chunks*: up to *keep* bytes in memory, a larger one in an unnamed temporary file."""

    def __init__(self, chunks: Iterable[bytes], content_type: str | None = None, *, keep: int = IN_MEMORY) -> None:
        super().__init__(0, content_type)
        self._file: BinaryIO = BytesIO()
        self._keep = keep
        try:
            for chunk in chunks:
                self.append(chunk)
            with disk_errors():
                self._file.flush()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, self.length, CHUNK):
            yield self.read(start)

    def read(self, start: int) -> bytes:
        """Return at most `CHUNK` bytes from the offset *start*; raises OutputError if they cannot be read."""
        with disk_errors():
            self._file.seek(start)
            return self._file.read(CHUNK)

    def close(self) -> None:
        """Delete the stored data."""
        with suppress(OSError):  # the disk may be full; the unwritten data is discarded anyway
            self._file.close()

    def append(self, chunk: bytes) -> None:
        """Append *chunk*; raises OutputError if it cannot be stored."""
        with disk_errors():
            if isinstance(self._file, BytesIO) and self.length + len(chunk) > self._keep:
                self._file = _move_to_disk(self._file)
            self._file.seek(self.length)  # it may have been read
            self._file.write(chunk)
        self.length += len(chunk)


class FileSlice(Body):
    """*length* bytes of the regular file *file* from the offset *start*, read when they are sent.

    Iteration raises XapiError if the file was truncated, or modified since it was
    first sent: the resent request would differ from the first one.
    """

    def __init__(self, file: BinaryIO, start: int, length: int, *, name: str, content_type: str | None = None) -> None:
        super().__init__(length, content_type)
        self._file = file
        self._start = start
        self._name = name
        self._first_status: tuple[int, int] | None = None

    def __iter__(self) -> Iterator[bytes]:
        self._check_unchanged()
        position, end = self._start, self._start + self.length
        while position < end:
            chunk = self._read(position, min(CHUNK, end - position))
            if not chunk:
                raise self._changed_error()
            position += len(chunk)
            yield chunk

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _check_unchanged(self) -> None:
        status = os.fstat(self._file.fileno())
        current = (status.st_size, status.st_mtime_ns)
        if self._first_status not in (None, current):
            raise self._changed_error()
        self._first_status = current

    def _read(self, position: int, size: int) -> bytes:
        """Read *size* bytes at *position*; another process may have moved the offset of a shared stdin."""
        try:
            self._file.seek(position)
            return self._file.read(size)
        except OSError as error:
            raise XapiError(f"{self._name} can no longer be read: {error.strerror}") from error

    def _changed_error(self) -> XapiError:
        return XapiError(f"{self._name} changed while it was sent", hint="send a copy of it")


class Chain(Body):
    """A concatenation of *bodies*."""

    def __init__(self, bodies: Sequence[Body], content_type: str | None = None) -> None:
        super().__init__(sum(body.length for body in bodies), content_type)
        self._bodies = bodies

    def __iter__(self) -> Iterator[bytes]:
        for body in self._bodies:
            yield from body

    def close(self) -> None:
        """Close all bodies."""
        for body in self._bodies:
            body.close()


class Shown(Body):
    """*body*, of which *terminal* shows how much has been sent."""

    def __init__(self, body: Body, terminal: "Terminal") -> None:
        super().__init__(body.length, body.content_type)
        self._body, self._terminal = body, terminal

    def __iter__(self) -> Iterator[bytes]:
        from xapi_cli.system.progress import Transfer

        with self._terminal.during(Transfer("sent", self.length)) as transfer:
            for chunk in self._body:
                yield chunk
                transfer.advance(len(chunk))


def _move_to_disk(memory: BytesIO) -> BinaryIO:
    """Return an unnamed temporary file, readable by its owner only, that contains the data in *memory*."""
    from tempfile import TemporaryFile  # the import takes 10 ms, and few bodies need it

    file = TemporaryFile()  # noqa: SIM115 - closed by the Spool
    file.write(memory.getbuffer())
    return cast("BinaryIO", file)


@contextmanager
def disk_errors(what: str = "a body") -> Iterator[None]:
    """Raise OutputError if *what* cannot be stored in a temporary file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OutputError(
            f"{what} cannot be stored in a temporary file: {reason}",
            hint="set TMPDIR to a directory with free space",
        ) from error

"""Read the input line by line, ahead of the consumer and without blocking it."""

from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable
from queue import Empty, Queue
from threading import Thread
from typing import BinaryIO, NamedTuple

from xapi_cli.errors import UsageError

MAX_LINE = 16 * 1024 * 1024  # bytes per line
_BLOCK = 64 * 1024
_READ_AHEAD = 4  # blocks to read ahead


class Line(NamedTuple):
    """A line that is not blank.

    *data* is None if the line is too long; *digest* is a digest of the input up to the end of the line.
    """

    number: int
    data: bytes | None
    digest: bytes


class InputDigest:
    """The digest and the number of the lines of an input so far; it does not matter in which parts they are added."""

    def __init__(self) -> None:
        import hashlib  # imported here because it loads OpenSSL

        self._hash = hashlib.blake2b(digest_size=16)
        self._newlines = 0
        self._last: bytes | bytearray = b"\n"

    def add(self, data: bytes | bytearray) -> bytes:
        """Add *data*, which is not empty; return the digest up to its end."""
        self._hash.update(data)
        self._newlines += data.count(b"\n")
        self._last = data[-1:]  # not all of it: a line may be long
        return self._hash.copy().digest()

    def lines(self) -> int:
        """Return the number of lines, the last of which may not end with a newline."""
        return self._newlines + (not self._last.endswith(b"\n"))

    def text(self) -> str:
        """Return the hexadecimal digest."""
        return self._hash.hexdigest()


class LineReader:
    """Read the lines of *source*; *wake* is called from a thread when more lines may be available.

    With *digests*, each line has a digest of the input up to and including the line, and `digest` is that of all
    lines returned so far.
    """

    def __init__(self, source: BinaryIO, wake: Callable[[], None], *, digests: bool = False) -> None:
        self.number = 0  # of the last line returned, counting blank lines
        self.position = 0  # in bytes, after that line
        self.has_ended = False
        self._source, self._wake = source, wake
        self._blocks: Queue[bytes | OSError] = Queue(_READ_AHEAD)
        self._ready: deque[bytes] = deque()  # complete lines, including the newline
        self._partial = bytearray()
        self._is_too_long = False
        self.digest = InputDigest() if digests else None

    def start(self) -> None:
        """Start the reader thread."""
        Thread(target=self._read, name="input", daemon=True).start()  # a daemon, because a read may block forever

    def next_line(self) -> Line | None:
        """Return the next line, or None if none is available yet or the input has ended (`has_ended`)."""
        while not self.has_ended:
            if not self._ready:
                if not self._fill():
                    return None
                continue
            raw = self._ready.popleft()
            self.number += 1
            self.position += len(raw)
            digest = self.digest.add(raw) if self.digest else b""
            if self._is_too_long or len(raw) > MAX_LINE:
                self._is_too_long = False
                return Line(self.number, None, digest)
            if self.number == 1:
                raw = raw.removeprefix(BOM_UTF8)  # which Windows programs write
            if raw.strip():
                return Line(self.number, raw, digest)
        return None

    def has_rest(self, is_wanted: Callable[[int], bool] = bool) -> bool:
        """Return whether a line may follow whose number *is_wanted*; the lines up to that one are lost."""
        try:
            while (line := self.next_line()) is not None:
                if is_wanted(line.number):
                    return True
        except UsageError:
            return True
        return not self.has_ended

    def _read(self) -> None:
        last: bytes | OSError = b""
        try:
            while data := self._source.read(_BLOCK):
                self._blocks.put(data)
                self._wake()
        except OSError as error:
            last = error
        except ValueError:  # it was closed, because the batch has ended
            return
        self._blocks.put(last)
        self._wake()

    def _fill(self) -> bool:
        """Split the next block into lines; return False if no block is available.

        Raises UsageError if the input cannot be read.
        """
        try:
            block = self._blocks.get_nowait()
        except Empty:
            return False
        if isinstance(block, OSError):
            raise UsageError(f"the input cannot be read: {block.strerror or type(block).__name__}") from block
        if not block:
            self.has_ended = not self._partial
            if self._partial:
                self._ready.append(bytes(self._partial))  # the last line does not end with a newline
                self._partial.clear()
                self._blocks.put(b"")
            return True
        whole, newline, rest = block.rpartition(b"\n")
        if not newline:
            self._buffer_partial(rest)
            return True
        first, *others = [line + b"\n" for line in whole.split(b"\n")]
        self._ready.append(bytes(self._partial) + first if self._partial else first)
        self._ready.extend(others)
        self._partial.clear()
        self._buffer_partial(rest)
        return True

    def _buffer_partial(self, rest: bytes) -> None:
        """Buffer the beginning of a line, but not more than the maximum length of a line."""
        self._partial += rest
        if len(self._partial) > MAX_LINE + _BLOCK:
            if self.digest:
                self.digest.add(self._partial[:-1])
            self.position += len(self._partial) - 1
            del self._partial[:-1]
            self._is_too_long = True

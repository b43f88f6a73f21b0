"""Merge the outputs of batches into one in the order of the input, and find missing and duplicate lines.

A file in which the lines are in order is read as it is. Any other file, and a pipe, is divided into runs, which are
sorted in memory and kept in a temporary file. So the memory does not depend on the length of the outputs. An index
of all lines would be simpler, but it would grow with them.
"""

import re
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from heapq import heapify, heappop, heapreplace
from io import SEEK_SET, BufferedReader, RawIOBase
from operator import itemgetter
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from xapi_cli.batch.source_files import open_input, size_of
from xapi_cli.errors import OutputError, UsageError
from xapi_cli.request.json.syntax import Number, strict
from xapi_cli.system.render import printable
from xapi_cli.system.terminal import Terminal

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


_SHOWN = 8  # ranges of line numbers in a message
_END = sys.maxsize  # above all line numbers
_RUN = 32 * 1024 * 1024  # bytes that are sorted in memory
_WRITTEN_LINES = 1000  # lines that are written to the temporary file at a time
_MAX_OPEN = 200  # files that are kept open
BLOCK = 64 * 1024
_MAX_LINE = 128 * 1024 * 1024  # bytes; the longest line has a body of 10 MiB as text in which each byte is escaped
_FAST_PATH = re.compile(rb'\{"id": ?(?:null|true|false|-?\d[\d.eE+-]*|"[^"\\]*+"), ?"line": ?([1-9]\d{0,14}),')
_MAX_PARSED = 1024 * 1024  # bytes; parsing a longer line would take too much memory
_NUMBER = rb"[1-9]\d{0,14}"
_TOKEN = re.compile(rb'"[^"\\\0-\x1f]*+(?:\\[^\0-\x1f][^"\\\0-\x1f]*+)*+"|[\[{]|[\]}]|["\0-\x08\x0a-\x1f]')
_VALUE = re.compile(rb"\s*:\s*(%s)\s*[,}]" % _NUMBER)
_TRACE = re.compile(rb'^\s*\{\s*"id"|"line"\s*:\s*%s' % _NUMBER)  # of a line that was output of a batch
_DECODER = strict(Number, object_pairs_hook=tuple)


class Damage:
    """Where outputs are damaged: the names of the truncated ones, and the damaged lines by the name of the output."""

    def __init__(self) -> None:
        self.truncated = set[str]()
        self._lines: dict[str, tuple[int, int]] = {}  # the first line, and how many there are

    def add(self, name: str, line: int) -> None:
        """Add line *line* of the output *name*."""
        first, count = self._lines.get(name, (line, 0))
        self._lines[name] = first, count + 1

    def __str__(self) -> str:
        parts = []
        for name, (first, count) in sorted(self._lines.items()):
            others = f" and {count - 1:,} more" if count > 1 else ""
            parts.append(f"line {first:,}{others} of {printable(name)} {'are' if others else 'is'} damaged")
        parts += [f"the last line of {printable(name)} is truncated" for name in sorted(self.truncated)]
        return ", ".join(parts)


class OutputReader:
    """Read *file*, the output of `xapi batch`, which messages call *name*.

    The methods raise UsageError if it cannot be read or is something else. A damaged line, and a truncated last line,
    are ignored and added to *damage*: the program that wrote them was killed, or the disk was full. Without *damage*, a
    line that starts as usual is not checked. Of a *file* that can be read again, a long line is in memory only while it
    is printed, because many files may be open.
    """

    def __init__(self, file: BinaryIO, name: str, damage: Damage | None) -> None:
        self.number = 0  # of the input line that the current line belongs to
        self._file, self._name, self._damage = file, name, damage
        self._lines = 0  # read so far
        self._start = b""  # of the current line, or all of it; empty if nothing is left to return or to skip
        self._offset: int | None = None  # of the current line, if it has been read and must be read again

    def advance(self) -> bool:
        """Go to the next line; return False if there is none."""
        if self._offset is None and self._start and not self._start.endswith(b"\n"):
            self._skip_rest()
        self._offset = None
        while self._read_start():
            if self._parse():
                return True
        return False

    def line(self) -> bytes | None:
        """Return the current line with its newline, or None if it is truncated or damaged."""
        if self._offset is not None:
            self._file.seek(self._offset)
            self._offset = None
        elif self._start.endswith(b"\n"):
            return self._start
        line = self._whole()
        if line is None or (self._damage is not None and self._check(line) != self.number):
            return None
        return line

    def _skip_rest(self) -> None:
        while part := self._read():
            if part.endswith(b"\n"):
                return
        self._record_truncation()

    def _read_start(self) -> bool:
        """Read the start of the next line that is not blank; return False if there is none."""
        while part := self._read():
            self._lines += 1
            self._start = part.removeprefix(BOM_UTF8) if self._lines == 1 else part
            if self._start.strip():
                return True
        self._start = b""
        return False

    def _whole(self) -> bytes | None:
        """Return the current line, of which only the start has been read, or None if it is truncated."""
        line, self._start = bytearray(self._start), b""
        while not line.endswith(b"\n"):
            part = self._read()
            if not part and _is_complete(line):  # another program has removed the last newline
                part = b"\n"
            if not part:
                self._record_truncation()
                return None
            line += part
            if len(line) > _MAX_LINE:
                raise self._not_output()
        return bytes(line)

    def _parse(self) -> bool:
        """Set the number of the current line; return False if the line is truncated or damaged."""
        usual = _FAST_PATH.match(self._start)
        is_whole = self._start.endswith(b"\n")
        if usual is not None and (len(self._start) == BLOCK if not is_whole else self._damage is None):
            self.number = int(usual[1])
            return True
        offset = self._file.tell() - len(self._start) if not is_whole and self._file.seekable() else None
        line = self._start if is_whole else self._whole()
        number = None if line is None else self._check(line)
        if line is None or number is None:
            self._start = b""
            return False
        self.number, self._offset = number, offset
        self._start = line if offset is None else b""
        return True

    def _check(self, line: bytes) -> int | None:
        """Return the number in *line*, or None if it is damaged."""
        try:
            number = _number_in(line)
        except _NotOutput:
            raise self._not_output() from None
        if number is None and self._damage is not None:
            self._damage.add(self._name, self._lines)
        return number

    def _record_truncation(self) -> None:
        if self._damage is not None:
            self._damage.truncated.add(self._name)

    def _read(self) -> bytes:
        """Return the next part of a line, or nothing at the end; only the last part ends with a newline."""
        try:
            return self._file.readline(BLOCK)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise UsageError(f"{printable(self._name)} cannot be read: {reason}", hint="check the file") from error

    def _not_output(self) -> UsageError:
        message = f"line {self._lines:,} of {printable(self._name)} is not a line of `xapi batch` output"
        error = UsageError(message, hint="each line must be a JSON object with the key `line`")
        return error.concerning(line=self._lines)


class _NotOutput(Exception):
    """The line is not output of a batch, whether damaged or not."""


def _number_in(line: bytes) -> int | None:
    """Return the value of the member `line` of the JSON object in *line*, or None if *line* is damaged.

    A line of more than 1 MiB is checked for complete strings and balanced brackets only. Raises _NotOutput.
    """
    text = line.strip(b" \t\r\n")
    try:
        values = _scanned(text) if len(text) > _MAX_PARSED else _parsed(text.decode())
    except RecursionError:
        values = _scanned(text)
    except ValueError:
        values = None
    if values is None:
        if _TRACE.search(text):
            return None
        raise _NotOutput
    if len(values) > 1:
        return None
    if not values or not values[0]:
        raise _NotOutput
    return values[0]


def _is_complete(line: bytes | bytearray) -> bool:
    """Return whether *line*, which has no newline, is nevertheless a line of output and not the beginning of one."""
    try:
        return _number_in(bytes(line)) is not None
    except _NotOutput:
        return False


def _parsed(text: str) -> list[int]:
    """Return the values of the members `line` of the object *text*, 0 for an invalid one; raises ValueError."""
    members = _DECODER.decode(text)
    if not isinstance(members, tuple):  # an object, because an array is a list
        return []
    return [_valid(value) for name, value in members if name == "line"]


def _valid(value: object) -> int:
    return int(value) if isinstance(value, Number) and re.fullmatch(_NUMBER.decode(), value) else 0


def _scanned(text: bytes) -> list[int] | None:
    """Return the values as `_parsed` does, or None if *text* is not balanced or contains control characters."""
    values, depth, end = list[int](), 0, len(text)
    if not text.startswith(b"{"):
        return None
    for token in _TOKEN.finditer(text):
        first = token[0][:1]
        if first in b"[{":
            depth += 1
        elif first in b"]}":
            depth -= 1
            if depth < 1 and token.end() < end:
                return None
        elif first != b'"' or token[0] == b'"':
            return None
        elif depth == 1 and token[0] == b'"line"' and (found := _VALUE.match(text, token.end())) is not None:
            values.append(int(found[1]))
    return values if depth == 0 and text.endswith(b"}") else None


def open_sorted(names: Sequence[str], damage: Damage, terminal: Terminal, stack: ExitStack) -> list[OutputReader]:
    """Return readers for the lines of the files *names*, in each of which they are in order; *stack* closes the files.

    *damage* receives the damaged lines and truncated files, at the latest when they have been read. A regular file is
    read up to its present size, because a batch may still be writing to it.

    Raises UsageError for a file that cannot be read or is not the output of a batch, and OutputError if a temporary
    file cannot be written.
    """
    readers, runs = list[OutputReader](), _Runs(stack)
    for name in names:
        with ExitStack() as own:
            file = open_input(name, terminal, own)
            if (size := size_of(file)) is None:
                runs.add(OutputReader(cast("BinaryIO", BufferedReader(cast("RawIOBase", file), BLOCK)), name, damage))
                continue
            start, end = file.tell(), size
            reader = OutputReader(_section(file, start, end), name, damage)
            if len(names) <= _MAX_OPEN and _is_sorted(OutputReader(_section(file, start, end), name, None)):
                readers.append(reader)
                stack.push(own.pop_all())
            else:
                runs.add(reader)
    return [*readers, *runs.readers()]


class _Runs:
    """Sorted runs of lines in a temporary file, which *stack* closes."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._file: IO[bytes] | None = None
        self._ends = [0]  # offsets at which runs end
        self._lines: list[tuple[int, bytes]] = []
        self._size = 0  # bytes

    def add(self, reader: OutputReader) -> None:
        """Add the lines of *reader*."""
        while reader.advance():
            if (line := reader.line()) is None:
                continue
            self._lines.append((reader.number, line))
            self._size += len(line) + BLOCK // 512  # with the memory for the object
            if self._size > _RUN:
                self._end_run()

    def readers(self) -> Iterator[OutputReader]:
        if self._lines:
            self._end_run()
        for start, end in zip(self._ends, self._ends[1:], strict=False):
            assert self._file is not None  # noqa: S101 - the run is in it
            yield OutputReader(_section(self._file, start, end), "the temporary file", None)

    def _end_run(self) -> None:
        self._lines.sort(key=itemgetter(0))
        with _disk_errors():
            if self._file is None:  # without a buffer, because closing it would repeat a write that failed
                self._file = self._stack.enter_context(TemporaryFile(buffering=0))  # noqa: SIM115 - the stack closes it
            for start in range(0, len(self._lines), _WRITTEN_LINES):
                data = memoryview(b"".join(line for _, line in self._lines[start : start + _WRITTEN_LINES]))
                while data:
                    data = data[self._file.write(data) :]
            self._ends.append(self._file.tell())
        self._lines.clear()
        self._size = 0


class _Section(RawIOBase):
    """The part of *file* from *start* to *end*."""

    def __init__(self, file: IO[bytes], start: int, end: int) -> None:
        super().__init__()
        self._file, self._start, self._at, self._end = file, start, start, end

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = SEEK_SET, /) -> int:
        """Continue at *offset*, relative to the start or to the current position; return the position."""
        self._at = offset + (self._start if whence == SEEK_SET else self._at)
        return self._at - self._start

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Read the next bytes into *buffer*; return their number."""
        target = memoryview(buffer).cast("B")
        self._file.seek(self._at)
        data = self._file.read(min(len(target), max(0, self._end - self._at)))
        target[: len(data)] = data
        self._at += len(data)
        return len(data)


def _section(file: IO[bytes], start: int, end: int) -> BinaryIO:
    return cast("BinaryIO", BufferedReader(_Section(file, start, end), BLOCK))


def _is_sorted(reader: OutputReader) -> bool:
    last, is_sorted = 0, True
    while is_sorted and reader.advance():
        last, is_sorted = reader.number, reader.number >= last
    return is_sorted


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OutputError(
            f"the lines cannot be sorted in a temporary file: {reason}",
            hint="set TMPDIR to a directory with free space, or write the outputs with --ordered",
        ) from error


class LineNumbers:
    """Ascending line numbers; only the first ranges are stored."""

    def __init__(self) -> None:
        self.count = 0
        self._last = 0
        self._ranges: list[tuple[int, int]] = []
        self._hidden = 0  # numbers that are not in a stored range

    def add(self, first: int, last: int | None = None) -> None:
        """Add the numbers from *first* to *last*, or only *first*; those that were added before are ignored."""
        first, last = max(first, self._last + 1), first if last is None else last
        if first > last:
            return
        self.count += last - first + 1
        if self._ranges and not self._hidden and self._ranges[-1][1] == first - 1:
            self._ranges[-1] = self._ranges[-1][0], last
        elif len(self._ranges) < _SHOWN:
            self._ranges.append((first, last))
        else:
            self._hidden += last - first + 1
        self._last = last

    def __str__(self) -> str:
        shown = [str(first) if first == last else f"{first}-{last}" for first, last in self._ranges]
        return ", ".join([*shown, *([f"and {self._hidden:,} more"] if self._hidden else [])])


class Merge:
    """Merge the lines of *readers*, in each of which the numbers ascend, and pass each to *write*.

    *expected* yields the numbers of the lines of the input, in order. If it is None, each number up to the last one is
    expected. Of several lines with the same number, one is passed.
    """

    def __init__(
        self, readers: Sequence[OutputReader], write: Callable[[bytes], None], expected: Iterator[int] | None
    ) -> None:
        self._readers, self._write, self._expected = readers, write, expected
        self._next = 0  # the number that is expected next; 0 if it is not read yet
        self.lines = 0
        self.missing, self.duplicates, self.unknown = LineNumbers(), LineNumbers(), LineNumbers()

    def run(self) -> None:
        """Merge all lines; raises the errors of the readers."""
        heap = [(reader.number, index) for index, reader in enumerate(self._readers) if reader.advance()]
        heapify(heap)
        last = 0
        while heap:
            number, index = heap[0]
            reader = self._readers[index]
            line = reader.line()
            if line is not None and number == last:
                self.duplicates.add(number)
            elif line is not None:
                self._found(number, last)
                self._write(line)
                last = number
            if reader.advance():
                heapreplace(heap, (reader.number, index))
            else:
                heappop(heap)
        if self._expected is not None:
            self._skip_to(_END, self._expected)

    def _found(self, number: int, last: int) -> None:
        """Count line *number*, which follows line *last* in the output."""
        self.lines += 1
        if self._expected is None:
            if number > last + 1:
                self.missing.add(last + 1, number - 1)
            return
        self._skip_to(number, self._expected)
        if self._next == number:
            self._next = 0
        else:
            self.unknown.add(number)

    def _skip_to(self, number: int, expected: Iterator[int]) -> None:
        """Count the expected numbers below *number* as missing."""
        while self._next < number:
            if self._next:
                self.missing.add(self._next)
            self._next = next(expected, _END)

"""Open the outputs of batches so that each can be read in the order of its line numbers.

A file in which the lines are in order is read as it is. Any other file, and a pipe, is divided into runs, which are
sorted in memory and kept in a temporary file. So the memory does not depend on the length of the outputs. An index
of all lines would be simpler, but it would grow with them.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import SEEK_SET, BufferedReader, RawIOBase
from operator import itemgetter
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from xapi_cli.batch.merge.lines import BLOCK, Damage, OutputReader
from xapi_cli.batch.source_files import open_input, size_of
from xapi_cli.errors import OutputError
from xapi_cli.system.terminal import Terminal

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_RUN = 32 * 1024 * 1024  # bytes that are sorted in memory
_WRITTEN_LINES = 1000  # lines that are written to the temporary file at once
_MAX_OPEN = 200  # files that are kept open


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
        """Yield a reader for each run."""
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
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
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
    """Return whether the lines of *reader* are in order."""
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

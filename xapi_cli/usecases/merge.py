"""Run `xapi batch --merge`: merge the outputs of several processes."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from threading import Event
from typing import TYPE_CHECKING, BinaryIO

from xapi_cli.batch.input.line_reader import LineReader
from xapi_cli.batch.merge import Damage, LineNumbers, Merge, open_sorted
from xapi_cli.batch.source_files import open_input
from xapi_cli.errors import MergeFailed, UsageError
from xapi_cli.system.render import escape_json

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime
    from xapi_cli.system.terminal import Terminal

_BUFFER_SIZE = 256 * 1024  # bytes


def run(runtime: "Runtime", names: Sequence[str], input_name: str | None) -> None:
    """Print the lines of the outputs *names* in the order of the input, which is in the file *input_name* if given.

    Raises MergeFailed if lines are missing or duplicated, or are not in the input, or if a file is truncated or
    damaged.
    """
    if not names:
        raise UsageError("--merge requires at least one FILE", hint="name the outputs to merge")
    if [*names, input_name].count("-") > 1:
        raise UsageError("- is given twice, but stdin can be read only once", hint="use files instead")
    terminal = runtime.terminal
    terminal.write(b"")  # raises if stdout is closed
    damage = Damage()
    with ExitStack() as stack:
        expected = None if input_name is None else _numbers(open_input(input_name, terminal, stack))
        readers = open_sorted(names, damage, terminal, stack)
        lines = _PrintedLines(terminal)
        merge = Merge(readers, lines.add, expected)
        try:
            merge.run()
        finally:
            lines.flush()
    _report(terminal, merge, damage, files=len(names), has_input=input_name is not None)


class _PrintedLines:
    """The printed lines, which are written together."""

    def __init__(self, terminal: "Terminal") -> None:
        self._terminal = terminal
        self._lines: list[bytes] = []
        self._size = 0

    def add(self, line: bytes) -> None:
        """Print *line*; on a terminal, control characters are escaped."""
        if self._terminal.stdout_is_terminal:
            line = escape_json(line.decode(errors="replace").rstrip("\n")).encode() + b"\n"
        self._lines.append(line)
        self._size += len(line)
        if self._size > _BUFFER_SIZE:
            self.flush()

    def flush(self) -> None:
        lines, self._lines, self._size = self._lines, [], 0
        if lines:
            self._terminal.write(b"".join(lines))


def _numbers(source: BinaryIO) -> Iterator[int]:
    """Yield the numbers of the lines of the input *source* that `xapi batch` sends or rejects, not of blank lines."""
    has_more = Event()
    reader = LineReader(source, has_more.set)
    reader.start()
    while True:
        has_more.clear()
        while (line := reader.next_line()) is not None:
            yield line.number
        if reader.has_ended:
            return
        has_more.wait()


def _report(terminal: "Terminal", merge: Merge, damage: Damage, *, files: int, has_input: bool) -> None:
    """Report the number of lines; raise MergeFailed if the output is incomplete or ambiguous."""
    problems = [
        *_problem(merge.missing, "missing"),
        *_problem(merge.duplicates, "duplicated"),
        *_problem(merge.unknown, "not in the input"),
        *filter(None, [str(damage)]),
    ]
    summary = f"merged {_lines(merge.lines)} from {files:,} {'file' if files == 1 else 'files'}"
    if not problems:
        terminal.note(summary)
        return
    hint = "check that each shard ran exactly once and completed"
    if merge.missing.count and not has_input:
        hint += ". Without --input, blank input lines count as missing"
    raise MergeFailed(f"{summary}: {', '.join(problems)}", hint=hint)


def _problem(numbers: LineNumbers, what: str) -> Iterator[str]:
    if numbers.count:
        yield f"{_lines(numbers.count)} {'is' if numbers.count == 1 else 'are'} {what} ({numbers})"


def _lines(count: int) -> str:
    return f"{count:,} {'line' if count == 1 else 'lines'}"

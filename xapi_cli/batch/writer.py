"""Write output lines, as they become ready or in input order."""

from collections import deque
from collections.abc import Callable

from xapi_cli.batch.journal.journal import Journal
from xapi_cli.batch.memory_budget import MemoryBudget
from xapi_cli.batch.output.results import Result

_MAX_WAITING = 4096  # maximum number of lines that wait for an earlier one
_BUFFER_SIZE = 1024 * 1024  # bytes to buffer before a write


class Writer:
    """Pass each line to *write* after it is in *journal*; with *ordered*, in the order of `expect`.

    With *shown*, pass what it returns for the result instead of the line. *failed* gets the input line of each failure
    that has one, in the same order.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        journal: Journal | None,
        budget: MemoryBudget,
        *,
        ordered: bool,
        shown: Callable[[Result], bytes] | None = None,
        failed: Callable[[bytes], None] | None = None,
    ) -> None:
        self._failed = failed
        self._write, self._journal, self._budget, self._ordered = write, journal, budget, ordered
        self._shown = shown
        self._expected: deque[int] = deque()
        self.has_room = True  # more lines can be expected
        self._out_of_order: dict[int, Result] = {}
        self._ready: list[Result] = []
        self._size = 0

    def expect(self, number: int) -> None:
        """Expect line *number* next; called only if lines are ordered."""
        self._expected.append(number)
        self.has_room = len(self._expected) < _MAX_WAITING

    def add(self, result: Result, *, is_new: bool = True) -> None:
        """Queue *result* for the next `flush`; if ordered, after all earlier lines.

        *is_new* is False for a result from the journal.
        """
        if self._journal is not None and is_new and result.is_stored:
            result = self._journal.store(result)
        if self._ordered:
            self._out_of_order[result.number] = result
            self._budget.add(result.size)
            while self._expected and (following := self._out_of_order.pop(self._expected[0], None)) is not None:
                self._expected.popleft()
                self._budget.remove(following.size)
                self._buffer(following)
            self.has_room = len(self._expected) < _MAX_WAITING
        else:
            self._buffer(result)

    def flush(self) -> None:
        """Write the lines that are ready, to the journal first."""
        if self._journal is not None:
            self._journal.flush()
        ready, self._ready, self._size = self._ready, [], 0
        short: list[bytes] = []  # written together, because each write is a system call
        for result in ready:
            if self._shown is not None:
                short.append(self._shown(result))
                continue
            if result.chunks is None:
                short += result.text, b"\n"
                continue
            self._write(b"".join(short))
            for chunk in result.chunks():
                self._write(chunk)
            short = [b"\n"]
        if short:
            self._write(b"".join(short))

    def end(self) -> None:
        """Write all remaining lines, including those that wait for lines that will not follow."""
        remaining = [self._out_of_order[number] for number in self._expected if number in self._out_of_order]
        self._out_of_order.clear()
        self._expected.clear()
        for result in remaining:
            self._buffer(result)
        self.flush()

    def _buffer(self, result: Result) -> None:
        """Buffer *result*; flush if it is long or the buffer is full."""
        if self._failed is not None and result.source:
            self._failed(result.source if result.source.endswith(b"\n") else result.source + b"\n")
            result.source = b""
        self._ready.append(result)
        self._size += len(result.text)
        if result.chunks is not None or self._size > _BUFFER_SIZE:
            self.flush()

"""Write output lines, as they become ready or in input order."""

from collections import deque
from collections.abc import Callable

from xapi_cli.batch.journal import Journal
from xapi_cli.batch.memory_budget import MemoryBudget
from xapi_cli.batch.results import Result

_WINDOW = 4096  # maximum number of lines that wait for an earlier one
_MOST = 1024 * 1024  # bytes to buffer before a write


class Writer:
    """Pass each line to *write* after it is in *journal*; with *ordered*, in the order of `announce`."""

    def __init__(
        self, write: Callable[[bytes], None], journal: Journal | None, budget: MemoryBudget, *, ordered: bool
    ) -> None:
        self._write, self._journal, self._budget, self._ordered = write, journal, budget, ordered
        self._expected: deque[int] = deque()
        self._early: dict[int, Result] = {}
        self._ready: list[Result] = []
        self._size = 0

    @property
    def has_room(self) -> bool:
        """Return whether more lines can be announced."""
        return len(self._expected) < _WINDOW

    def announce(self, number: int) -> None:
        """Expect line *number* next."""
        if self._ordered:
            self._expected.append(number)

    def add(self, result: Result, *, is_new: bool = True) -> None:
        """Queue *result* for the next `flush`; if ordered, after all earlier lines.

        *is_new* is False for a result from the journal.
        """
        if self._journal is not None and is_new and result.is_kept:
            result = self._journal.keep(result)
        if self._ordered:
            self._early[result.number] = result
            self._budget.add(result.size)
            while self._expected and (early := self._early.pop(self._expected[0], None)) is not None:
                self._expected.popleft()
                self._budget.remove(early.size)
                self._gather(early)
        else:
            self._gather(result)

    def flush(self) -> None:
        """Write the lines that are ready, to the journal first."""
        if self._journal is not None:
            self._journal.flush()
        ready, self._ready, self._size = self._ready, [], 0
        for result in ready:
            if result.pieces is None:
                self._write(result.text + b"\n")
                continue
            for piece in result.pieces():
                self._write(piece)
            self._write(b"\n")

    def end(self) -> None:
        """Write all remaining lines, including those that wait for lines that will not follow."""
        early = [self._early[number] for number in self._expected if number in self._early]
        self._early.clear()
        self._expected.clear()
        for result in early:
            self._gather(result)
        self.flush()

    def _gather(self, result: Result) -> None:
        """Buffer *result*; flush if it is long or the buffer is full."""
        self._ready.append(result)
        self._size += result.size
        if result.pieces is not None or self._size > _MOST:
            self.flush()

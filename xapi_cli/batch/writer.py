"""Write output lines, as they come or in the order of the input."""

from collections import deque
from collections.abc import Callable

from xapi_cli.batch.budget import Budget
from xapi_cli.batch.journal import Journal
from xapi_cli.batch.output import Result

_WINDOW = 4096  # lines that may wait for an earlier one


class Writer:
    """Give each line to *write*, after *journal* has it; with *ordered*, in the order in which they were announced."""

    def __init__(
        self, write: Callable[[bytes], None], journal: Journal | None, budget: Budget, *, ordered: bool
    ) -> None:
        self._write, self._journal, self._budget, self._ordered = write, journal, budget, ordered
        self._expected: deque[int] = deque()
        self._early: dict[int, bytes] = {}
        self._ready: list[bytes] = []
        self._size = 0

    @property
    def has_room(self) -> bool:
        """Whether more lines may be announced."""
        return len(self._expected) < _WINDOW

    @property
    def size(self) -> int:
        """How many bytes the next `flush` will write."""
        return self._size

    def announce(self, number: int) -> None:
        """Expect line *number* next."""
        if self._ordered:
            self._expected.append(number)

    def add(self, result: Result, *, is_new: bool = True) -> None:
        """Write *result* with the next `flush`, or when its turn comes."""
        if self._journal is not None and is_new and result.is_kept:
            self._journal.keep(result)
        if not self._ordered:
            self._ready.append(result.text)
            self._size += len(result.text)
            return
        self._early[result.number] = result.text
        self._budget.add(len(result.text))
        while self._expected and (text := self._early.pop(self._expected[0], None)) is not None:
            self._expected.popleft()
            self._budget.remove(len(text))
            self._ready.append(text)
            self._size += len(text)

    def flush(self) -> None:
        """Write what can be written, the journal first."""
        if self._journal is not None:
            self._journal.flush()
        ready, self._ready, self._size = self._ready, [], 0
        for text in ready:
            self._write(text)

    def end(self) -> None:
        """Write also what waits for lines that will not come."""
        self._ready += [self._early[number] for number in self._expected if number in self._early]
        self._early.clear()
        self._expected.clear()
        self.flush()

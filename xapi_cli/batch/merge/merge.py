"""Merge the outputs of batches into one in the order of the input, and find missing and duplicate lines."""

import sys
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace

from xapi_cli.batch.merge.lines import OutputReader

_SHOWN = 8  # ranges of line numbers in a message
_END = sys.maxsize  # above all line numbers


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

"""Process long responses in turn, so that no response waits for a longer one."""

import heapq
import time
from collections.abc import Iterator
from itertools import count
from typing import Generic, TypeVar

_TURN = 0.01  # seconds spent on one item before other work continues

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Run the steps of items in turn; the item that has used the least time is next."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T, Iterator[None]]] = []  # by the seconds used
        self._order = count()

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, item: T, steps: Iterator[None]) -> None:
        """Add *item*, which is processed when *steps* ends."""
        heapq.heappush(self._heap, (0.0, next(self._order), item, steps))

    def run(self) -> T | None:
        """Run steps of one item for a limited time; return the item if it is processed then."""
        used, order, item, steps = heapq.heappop(self._heap)
        start = now = time.monotonic()
        while now - start < _TURN:
            try:
                next(steps)
            except StopIteration:
                return item
            now = time.monotonic()
        heapq.heappush(self._heap, (used + now - start, order, item, steps))
        return None

    def clear(self) -> None:
        """Remove all items."""
        self._heap.clear()

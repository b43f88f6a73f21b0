"""Process long responses in turn, so that no response waits for a longer one."""

import heapq
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Generic, TypeVar

_TURN = 0.01  # seconds spent on one item before other work continues

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Run the steps of items in turn; the item that has used the least time is next.

    An item whose step yields something other than None waits for it: it is removed, and passed to *on_wait* with the
    remaining steps and what was yielded.
    """

    def __init__(self, on_wait: Callable[[T, Iterator[Any], Any], None]) -> None:
        self.waiting: list[tuple[float, int, T, Iterator[Any]]] = []  # a heap, by the seconds used
        self._on_wait = on_wait
        self._order = count()

    def add(self, item: T, steps: Iterator[Any]) -> None:
        """Add *item*, which is processed when *steps* ends."""
        heapq.heappush(self.waiting, (0.0, next(self._order), item, steps))

    def run(self) -> T | None:
        """Run steps of one item for a limited time; return the item if it is processed then."""
        used, order, item, steps = heapq.heappop(self.waiting)
        start = now = time.monotonic()
        while now - start < _TURN:
            try:
                awaited = next(steps)
            except StopIteration:
                return item
            if awaited is not None:
                self._on_wait(item, steps, awaited)
                return None
            now = time.monotonic()
        heapq.heappush(self.waiting, (used + now - start, order, item, steps))
        return None

    def clear(self) -> None:
        """Remove all items."""
        self.waiting.clear()

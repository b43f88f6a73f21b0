"""Long responses that wait until the memory budget has room for what their next steps need."""

import heapq
from collections.abc import Callable, Iterator
from typing import Any

from xapi_cli.batch.in_flight import InFlight
from xapi_cli.batch.memory_budget import MemoryBudget


class RoomQueue:
    """Pass each request, with its remaining steps, to *resume* when *budget* has room.

    If it has no room, one request goes on nevertheless, so that there is always progress. If *oldest* is given, it is
    the one with the number that *oldest* returns: results are ordered, and keep their memory until then.
    """

    def __init__(
        self,
        budget: MemoryBudget,
        resume: Callable[[InFlight, Iterator[Any]], None],
        oldest: Callable[[], int] | None,
    ) -> None:
        self._budget, self._resume, self._oldest = budget, resume, oldest
        # heap: first those that have got memory before, then by number
        self.waiting: list[tuple[bool, int, InFlight, Iterator[Any], int]] = []
        self._admitted = set[InFlight]()  # they have got memory, and go on

    def add(self, request: InFlight, steps: Iterator[Any], size: int) -> None:
        """Let *request* wait for *size* bytes; if that is negative, return them, and do not wait."""
        if size < 0:
            self._admit(request, steps, size)
            return
        is_new = self._oldest is not None or request not in self._admitted
        self._admitted.discard(request)
        heapq.heappush(self.waiting, (is_new, request.number, request, steps, size))
        self.run()

    def run(self) -> None:
        """Let requests go on for which there is room now."""
        while self.waiting and (self._budget.has_room or self._is_exempt(self.waiting[0][1])):
            self._admit(*heapq.heappop(self.waiting)[2:])

    def remove(self, request: InFlight) -> None:
        """Remove *request*, which has ended."""
        self._admitted.discard(request)

    def clear(self) -> None:
        """Remove all requests."""
        self.waiting.clear()
        self._admitted.clear()

    def _is_exempt(self, number: int) -> bool:
        return not self._admitted if self._oldest is None else number == self._oldest()

    def _admit(self, request: InFlight, steps: Iterator[Any], size: int) -> None:
        request.memory += size
        self._budget.add(size)
        self._admitted.add(request)
        self._resume(request, steps)

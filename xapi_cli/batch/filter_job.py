"""A document for the filter of --jq, and its result."""

import json
import re
from collections.abc import Callable, Iterator

from xapi_cli.errors import FilterError
from xapi_cli.system.render import printable

_RESULTS = re.compile(rb"\[(\d+),")
_MAX_MESSAGE = 200  # characters


class FilterJob:
    """Filter the document of line *number*: *size* bytes of text, on one line with a newline.

    *chunks* returns the text, again for each run of the filter.
    """

    __slots__ = ("_failure", "_output", "chunks", "held", "notes", "number", "size", "started")

    def __init__(self, number: int, size: int, chunks: Callable[[], Iterator[bytes]]) -> None:
        self.number, self.size, self.chunks = number, size, chunks
        self.notes = 0  # lines on stderr that were reported: the next run prints them again
        self.started = 0.0  # on the monotonic clock
        self.held = 0  # bytes of the result in memory
        self._output = bytearray()
        self._failure: str | None = None

    def receive(self, data: bytes) -> bool:
        """Add *data* to the output of the filter; return whether the output is complete."""
        self._output += data
        self.held = len(self._output)
        return data.endswith(b"\n")

    def fail(self, message: str) -> None:
        """Make `result` raise a FilterError with *message*; discard the output."""
        self._failure, self._output, self.held = message, bytearray(), 0

    def result(self) -> tuple[int, memoryview | bytes]:
        """Return the number of results and the result, an array if there are several; raises FilterError."""
        if self._failure is not None:
            raise FilterError(self._failure)
        found = _RESULTS.match(self._output)
        if found is None:
            message = printable(json.loads(self._output)["error"])[:_MAX_MESSAGE]
            raise FilterError(f"the filter of --jq failed: {message}", hint="check the filter")
        return int(found[1]), bytes(memoryview(self._output)[found.end() : -2])  # without the bracket and the newline

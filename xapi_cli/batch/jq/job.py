"""A document for the filters of --jq and --expect, and its result."""

from collections.abc import Callable, Iterator

from xapi_cli.errors import FilterError


class FilterJob:
    """Filter the document of line *number*: *size* bytes of text in the blocks that *chunks* returns, for each run."""

    __slots__ = ("_failure", "_results", "chunks", "had_turn", "held", "number", "size", "started", "then", "unmet")

    def __init__(self, number: int, size: int, chunks: Callable[[], Iterator[bytes]]) -> None:
        self.number, self.size, self.chunks = number, size, chunks
        self.then = _nothing  # called by `end`
        self.started = 0.0  # of this run, on the monotonic clock
        self.had_turn = False  # an earlier run used the time of a turn
        self.held = 0  # bytes of the result in memory
        self.unmet: tuple[int, str] | None = None  # the first condition that the document does not meet, and why
        self._results = bytearray()
        self._failure: str | None = None

    def end(self) -> None:
        """Call `then`, because the result is available, and drop it: it refers to the job, and the job to the document.

        A cycle would keep the document in memory until a garbage collection, which is rare.
        """
        then, self.then = self.then, _nothing
        then()

    def add(self, results: bytes) -> None:
        """Add *results*, each of which is JSON and ends with a newline."""
        self._results += results

    def discard(self) -> None:
        """Discard the results of a run that was ended."""
        self._results, self.held, self.unmet = bytearray(), 0, None

    def fail(self, message: str) -> None:
        """Make `result` raise a FilterError with *message*; discard the results."""
        self.discard()
        self._failure = message

    def result(self) -> tuple[int, bytes]:
        """Return the number of results and the result, an array if there are several; raises FilterError."""
        if self._failure is not None:
            raise FilterError(self._failure)
        results, self._results = self._results, bytearray()
        count = results.count(b"\n")
        del results[-1:]
        return count, b"".join((b"[", results.replace(b"\n", b","), b"]")) if count > 1 else bytes(results)


def _nothing() -> None:
    pass

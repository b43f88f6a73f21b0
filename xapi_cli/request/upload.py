"""The body of a request on its way to the server: its progress, and what a terminal shows about it afterwards."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from xapi_cli.system.render import size

if TYPE_CHECKING:
    from xapi_cli.system.terminal import Terminal

_LARGE = 1024 * 1024  # bytes
_LONG = 0.3  # seconds: the progress was shown
_MIN_TIME_FOR_RATE = 0.1  # seconds


class Upload:
    """The body that was sent last, which may have been sent before: after a 401, for example."""

    def __init__(self, terminal: "Terminal") -> None:
        self._terminal = terminal
        self._length = self._sent = 0  # bytes
        self._seconds = 0.0

    @contextmanager
    def sending(self, length: int) -> Iterator[Callable[[int], None]]:
        """Show the progress of *length* bytes for a `with` block; yield what takes the numbers of bytes sent."""
        self._length, self._sent = length, 0
        started = time.monotonic()
        if not self._terminal.shows_progress:
            yield self._advance
            return
        from xapi_cli.system.progress import Transfer

        with self._terminal.during(Transfer("sent", length)) as transfer:

            def advance(count: int) -> None:
                self._advance(count)
                transfer.advance(count)

            yield advance
        self._seconds = time.monotonic() - started

    def _advance(self, count: int) -> None:
        self._sent += count

    def note(self) -> None:
        """Note on a terminal that the body was sent, if it is large or took long, and what has been sent of it."""
        is_notable = self._length >= _LARGE or self._seconds >= _LONG
        if self._terminal.shows_progress and is_notable and self._is_complete:
            rate = f", {size(round(self._length / self._seconds))}/s" if self._seconds >= _MIN_TIME_FOR_RATE else ""
            self._terminal.note(f"sent {size(self._length)} in {self._seconds:.1f} s{rate}")

    def interrupted(self, *, is_safe: bool) -> str:
        """Return what an interruption before the response leaves open; *is_safe* is whether a repetition is."""
        if not self._is_complete:
            return f"{size(self._sent)} of {size(self._length)} sent"
        return "" if is_safe or not self._length else "the request was sent, and may have been processed"

    @property
    def _is_complete(self) -> bool:
        return self._sent == self._length

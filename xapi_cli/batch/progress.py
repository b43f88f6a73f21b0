"""Show on a terminal how far a batch is: one line on stderr, written over and over."""

import time
from collections.abc import Callable

_OFTEN = 0.2  # seconds
_BAR = 20


class Progress:
    """Write a status line with *write*; *total* is the size of the input in bytes, None where unknown."""

    def __init__(self, write: Callable[[bytes], None], total: int | None, columns: Callable[[], int]) -> None:
        self._write, self._total, self._columns = write, total, columns
        self._started = time.monotonic()
        self._next = self._started + _OFTEN
        self._is_shown = False

    def show(self, position: int, lines: int, failed: int) -> None:
        """Show that *lines* are done, *failed* of them, and the input is read up to *position*."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _OFTEN
        seconds = now - self._started
        text = f"{lines:,} lines, {lines / seconds:,.0f}/s, {failed:,} failed"
        if self._total:
            part = min(1.0, position / self._total)
            done = round(part * _BAR)
            text = f"[{'#' * done}{'.' * (_BAR - done)}] {part:4.0%} {text}"
            if part > 0:
                text += f", {_clock(seconds / part - seconds)} left"
        self._write(b"\r" + text[: self._columns() - 1].encode() + b"\x1b[K")
        self._is_shown = True

    def hide(self) -> None:
        """Make room for other lines."""
        if self._is_shown:
            self._write(b"\r\x1b[K")
            self._is_shown = False


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

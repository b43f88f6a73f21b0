"""Show the progress of a batch on a terminal: one line on stderr that is overwritten."""

import time
from collections import deque
from collections.abc import Callable

_UPDATE_INTERVAL = 0.2  # seconds between updates
_MAX_SAMPLES = 25  # updates, five seconds: shows the current rate; a resumed batch starts with a jump
_BAR_WIDTH = 20


class Progress:
    """Write a status line with *write*; *total* is the size of the input in bytes, or None if unknown."""

    def __init__(self, write: Callable[[bytes], None], total: int | None, columns: Callable[[], int]) -> None:
        self._write, self._total, self._columns = write, total, columns
        self._samples = deque([(time.monotonic(), 0, 0)], maxlen=_MAX_SAMPLES)
        self._is_shown = False

    def show(self, position: int, lines: int, failed: int) -> None:
        """Show the number of finished and *failed* *lines*; the input was read up to *position*, in bytes."""
        now = time.monotonic()
        if now - self._samples[-1][0] < _UPDATE_INTERVAL:
            return
        before, lines_before, position_before = self._samples[0]
        self._samples.append((now, lines, position))
        text = f"{lines:,} lines, {(lines - lines_before) / (now - before):,.0f}/s, {failed:,} failed"
        if self._total:
            part = min(1.0, position / self._total)
            done = round(part * _BAR_WIDTH)
            text = f"[{'#' * done}{'.' * (_BAR_WIDTH - done)}] {part:4.0%} {text}"
            if position > position_before:
                remaining = (self._total - position) * (now - before) / (position - position_before)
                text += f", {_duration(remaining)} left"
        self._write(b"\r" + text[: self._columns() - 1].encode() + b"\x1b[K")
        self._is_shown = True

    def hide(self) -> None:
        """Erase the status line, so that other lines can be written."""
        if self._is_shown:
            self._write(b"\r\x1b[K")
            self._is_shown = False


def _duration(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

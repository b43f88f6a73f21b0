"""Show the progress of a batch on a terminal: one line on stderr that is overwritten."""

import time
from collections import deque
from collections.abc import Callable

_OFTEN = 0.2  # seconds between updates
_LOOK_BACK = 25  # updates, five seconds: shows the current rate; a resumed batch starts with a jump
_BAR = 20


class Progress:
    """Write a status line with *write*; *total* is the size of the input in bytes, or None if unknown."""

    def __init__(self, write: Callable[[bytes], None], total: int | None, columns: Callable[[], int]) -> None:
        self._write, self._total, self._columns = write, total, columns
        self._looks = deque([(time.monotonic(), 0, 0)], maxlen=_LOOK_BACK)
        self._is_shown = False

    def show(self, position: int, lines: int, failed: int) -> None:
        """Show the number of finished and *failed* *lines*; the input was read up to *position*, in bytes."""
        now = time.monotonic()
        if now - self._looks[-1][0] < _OFTEN:
            return
        before, lines_before, position_before = self._looks[0]
        self._looks.append((now, lines, position))
        text = f"{lines:,} lines, {(lines - lines_before) / (now - before):,.0f}/s, {failed:,} failed"
        if self._total:
            part = min(1.0, position / self._total)
            done = round(part * _BAR)
            text = f"[{'#' * done}{'.' * (_BAR - done)}] {part:4.0%} {text}"
            if position > position_before:
                left = (self._total - position) * (now - before) / (position - position_before)
                text += f", {_clock(left)} left"
        self._write(b"\r" + text[: self._columns() - 1].encode() + b"\x1b[K")
        self._is_shown = True

    def hide(self) -> None:
        """Erase the status line, so that other lines can be written."""
        if self._is_shown:
            self._write(b"\r\x1b[K")
            self._is_shown = False


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

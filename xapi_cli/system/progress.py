"""The progress of a command: one line on stderr, which a thread overwrites while an activity takes long.

rich draws the line. The thread imports it when there is a line to show, so that a short command does not wait for it.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from xapi_cli.system.render import printable, size, size_of_total

_UPDATE_INTERVAL = 0.2  # seconds between updates
_MAX_SAMPLES = 25  # updates, five seconds: shows the current rate; a resumed transfer starts with a jump
_MAX_BAR_WIDTH, _MIN_BAR_WIDTH = 30, 8  # columns
_ERASE = b"\r\x1b[K"


class Activity:
    """Something that takes time: *done* of *total* units, of which the total may be unknown.

    The command updates `done`, and the line shows `text` once the activity has taken `delay` seconds.
    """

    delay = 0.3
    restarts = False  # at the end of an activity that began in it
    verb = ""  # with which the text begins; a narrow terminal shows the bar instead

    def __init__(self, total: int | None = None, done: int = 0) -> None:
        self.total, self.done = total, done
        self.started = time.monotonic()
        self._samples = deque([(self.started, *self._counts())], maxlen=_MAX_SAMPLES)

    def advance(self, count: int) -> None:
        """Record that *count* more units are done."""
        self.done += count

    def text(self, now: float) -> str:
        """Return the line at the time *now*, without the bar."""
        raise NotImplementedError

    def _counts(self) -> tuple[int, int]:
        """Return the units done, and the count of which the line shows the rate."""
        return self.done, self.done

    def _rates(self, now: float) -> tuple[float, float]:
        """Return the current rates per second of `_counts`."""
        done, counted = self._counts()
        before, done_before, counted_before = self._samples[0]
        self._samples.append((now, done, counted))
        seconds = max(now - before, 0.001)
        return (done - done_before) / seconds, (counted - counted_before) / seconds

    def _remaining(self, rate: float) -> str:
        """Return the remaining time at *rate* units per second, or an empty text if it is unknown."""
        if not self.total or rate <= 0 or self.done > self.total:
            return ""
        return f", {_duration((self.total - self.done) / rate)} left"


class Waiting(Activity):
    """The wait for a response from *host*."""

    delay = 1.5
    restarts = True  # the wait begins when the upload has ended

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = printable(host)

    def text(self, now: float) -> str:
        """Return the elapsed time."""
        return f"waiting for {self._host}, {now - self.started:.0f} s"


class Attempts(Activity):
    """The attempts to get the response that `--until` waits for."""

    delay = 0.0

    def text(self, now: float) -> str:
        """Return the elapsed time and the number of attempts."""
        return f"waiting for --until, {_duration(now - self.started)}, {self.count()}"

    def count(self) -> str:
        """Return the number of attempts as a text."""
        return "1 attempt" if self.done == 1 else f"{self.done:,} attempts"


class Pages(Activity):
    """The pages of a response, and their *items*."""

    def __init__(self) -> None:
        self.items = 0
        super().__init__()

    def text(self, now: float) -> str:
        """Return the numbers of pages and items, and their rate."""
        _, rate = self._rates(now)
        return f"{self.count()}, {rate:,.0f} items/s"

    def count(self) -> str:
        """Return the numbers of pages and items as a text."""
        pages, items = "page" if self.done == 1 else "pages", "item" if self.items == 1 else "items"
        return f"{self.done:,} {pages}, {self.items:,} {items}"

    def _counts(self) -> tuple[int, int]:
        return self.done, self.items


class Transfer(Activity):
    """A transfer of *total* bytes, of which *done* were transferred earlier; *verb* says in which direction."""

    def __init__(self, verb: str, total: int | None, done: int = 0) -> None:
        self.verb = f"{verb} "
        super().__init__(total, done)

    def text(self, now: float) -> str:
        """Return the bytes, the rate and the remaining time."""
        rate, _ = self._rates(now)
        done = size_of_total(self.done, self.total)
        return f"{self.verb}{done}, {size(int(rate))}/s{self._remaining(rate)}"


class Lines(Activity):
    """The lines of an input of *total* bytes, of which `done` bytes have ended; *failed* of the *lines* failed."""

    def __init__(self, total: int | None) -> None:
        self.lines = self.failed = self.retries = 0
        super().__init__(total)

    def text(self, now: float) -> str:
        """Return the numbers of lines, their rate and the remaining time."""
        position_rate, rate = self._rates(now)
        retries = f", {self.retries:,} retried" if self.retries else ""
        lines = f"{self.lines:,} {'line' if self.lines == 1 else 'lines'}"
        return f"{lines}, {rate:,.0f}/s, {self.failed:,} failed{retries}{self._remaining(position_rate)}"

    def _counts(self) -> tuple[int, int]:
        return self.done, self.lines


AnyActivity = TypeVar("AnyActivity", bound=Activity)


class Progress:
    """Show the innermost activity that takes long with *write*, in a line shorter than *columns*; thread-safe.

    Nothing is shown while *may_show* returns False.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        columns: Callable[[], int],
        *,
        colors: bool,
        may_show: Callable[[], bool] = lambda: True,
    ) -> None:
        self._write, self._columns, self._colors, self._may_show = write, columns, colors, may_show
        self._activities: list[Activity] = []
        self._pauses = 0
        self._shown: Activity | None = None
        self._lock = threading.RLock()  # a signal handler may print a message while the lock is held
        self._has_activity = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def during(self, activity: AnyActivity) -> Iterator[AnyActivity]:
        """Show *activity* for a `with` block, which ends the activities that began in it as well."""
        self._begin(activity)
        try:
            yield activity
        finally:
            self._end(activity)

    @contextmanager
    def interrupted(self) -> Iterator[None]:
        """Erase the line for a `with` block that writes something else to the terminal."""
        with self._lock:
            self._erase()
            yield

    def _erase(self) -> None:
        """Erase the line until the next update."""
        with self._lock:
            if self._shown is not None:
                self._write(_ERASE)
                self._shown = None

    def pause(self) -> None:
        """Show nothing until `resume`, because something else uses the terminal: a prompt or another program."""
        with self._lock:
            self._pauses += 1
            self._erase()

    def resume(self) -> None:
        """Show the activities again."""
        self._pauses -= 1

    def _begin(self, activity: Activity) -> None:
        with self._lock:
            self._activities.append(activity)
            self._has_activity.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="xapi-progress", daemon=True)
                self._thread.start()

    def _end(self, activity: Activity) -> None:
        with self._lock:
            if activity in self._activities:
                del self._activities[self._activities.index(activity) :]
            if not self._activities:
                self._has_activity.clear()
            elif self._activities[-1].restarts:
                self._activities[-1].started = time.monotonic()
            if self._shown not in self._activities:
                self._erase()

    def _run(self) -> None:
        line: _Line | None = None
        while self._has_activity.wait():
            try:
                if self._due(time.monotonic()):
                    line = line or _Line(colors=self._colors)  # imports rich, without the lock
                    self._show(line)
            except Exception:  # noqa: BLE001 - such as too little memory: the command goes on without progress
                return
            time.sleep(_UPDATE_INTERVAL)

    def _due(self, now: float) -> Activity | None:
        """Return the innermost activity that did not just begin, or None if there is none, or nothing may be shown."""
        if self._pauses or not self._may_show():
            return None
        running = reversed(self._activities.copy())
        return next((each for each in running if now - each.started >= each.delay), None)

    def _show(self, line: "_Line") -> None:
        with self._lock:
            now = time.monotonic()
            if activity := self._due(now):  # it may have ended in the meantime
                text = line.of(activity, now, self._columns() - 1)
                self._shown = activity
                self._write(b"\r" + text + b"\x1b[K")


class _Line:
    """Draw the line with rich: the bar, the percentage and the text of an activity."""

    def __init__(self, *, colors: bool) -> None:
        from io import BytesIO, TextIOWrapper

        from rich.console import Console

        self._encoding = getattr(sys.stderr, "encoding", None) or "utf-8"  # decides how the bar is drawn
        self._console: Console = Console(
            file=TextIOWrapper(BytesIO(), self._encoding),
            force_terminal=True,
            color_system="standard" if colors else None,
            no_color=not colors,
            legacy_windows=False,
            highlight=False,
        )

    def of(self, activity: Activity, now: float, columns: int) -> bytes:
        """Return the line for *activity* at the time *now*, at most *columns* wide."""
        text, total = activity.text(now), activity.total
        if not total:
            return text[:columns].encode(self._encoding, "replace")
        part = min(1.0, activity.done / total)
        text = f"{part:4.0%} {text}"
        if len(text) + _MIN_BAR_WIDTH + 1 > columns:
            text = text.replace(activity.verb, "", 1)  # the numbers say more
        width = min(_MAX_BAR_WIDTH, columns - len(text) - 1)
        line = self._bar(part, width) + text if width >= _MIN_BAR_WIDTH else text.lstrip()[:columns]
        return line.encode(self._encoding, "replace")

    def _bar(self, part: float, width: int) -> str:
        """Return a bar of *width* columns, *part* of which is complete; rich omits the rest if there are no colors."""
        from rich.progress_bar import ProgressBar

        with self._console.capture() as capture:
            bar = ProgressBar(1.0, part, width, style="bright_black", complete_style="cyan", finished_style="cyan")
            self._console.print(bar, end="")
        return capture.get().rstrip("\n").ljust(width)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

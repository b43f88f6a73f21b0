"""The progress of a command: one line on stderr, which a thread overwrites while an activity takes long."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from xapi_cli.system.render import printable, size

_UPDATE_INTERVAL = 0.2  # seconds between updates
_ERASE = b"\r\x1b[K"


class Activity:
    """Something that takes time: *done* of *total* units, of which the total may be unknown.

    The command updates `done`, and the line shows `text` once the activity has taken `delay` seconds.
    """

    delay = 0.3

    def __init__(self, total: int | None = None, done: int = 0) -> None:
        self.total, self.done = total, done
        self.started, self._first = time.monotonic(), done

    def advance(self, count: int) -> None:
        """Record that *count* more units are done."""
        self.done += count

    def text(self, now: float) -> str:
        """Return the line at the time *now*, without the percentage."""
        raise NotImplementedError

    def rate(self, count: int, now: float) -> float:
        """Return *count* per second since the start."""
        return count / max(now - self.started, 0.001)

    def remaining(self, now: float) -> str:
        """Return the remaining time at the present rate, or an empty text if it is unknown."""
        rate = self.rate(self.done - self._first, now)
        if not self.total or rate <= 0 or self.done > self.total:
            return ""
        return f", {duration((self.total - self.done) / rate)} left"


class Waiting(Activity):
    """The wait for a response from *host*."""

    delay = 1.5

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = printable(host)

    def text(self, now: float) -> str:
        """Return the elapsed time."""
        return f"waiting for {self._host}, {now - self.started:.0f} s"


class Transfer(Activity):
    """A transfer of *total* bytes, of which *done* were transferred earlier; *verb* says in which direction."""

    def __init__(self, verb: str, total: int | None, done: int = 0) -> None:
        self._verb = verb
        super().__init__(total, done)

    def text(self, now: float) -> str:
        """Return the bytes, the rate and the remaining time."""
        rate = size(int(self.rate(self.done - self._first, now)))
        total = f" of {size(self.total)}" if self.total else ""
        return f"{self._verb} {size(self.done)}{total}, {rate}/s{self.remaining(now)}"


AnyActivity = TypeVar("AnyActivity", bound=Activity)


class Progress:
    """Show the innermost activity that takes long with *write*, in a line shorter than *columns*; thread-safe.

    Nothing is shown while *may_show* returns False.
    """

    def __init__(
        self, write: Callable[[bytes], None], columns: Callable[[], int], may_show: Callable[[], bool] = lambda: True
    ) -> None:
        self._write, self._columns, self._may_show = write, columns, may_show
        self._activities: list[Activity] = []
        self._shown: Activity | None = None
        self._lock = threading.RLock()  # a signal handler may print a message while the lock is held
        threading.Thread(target=self._run, name="xapi-progress", daemon=True).start()

    @contextmanager
    def during(self, activity: AnyActivity) -> Iterator[AnyActivity]:
        """Show *activity* for a `with` block, which ends the activities that began in it as well."""
        with self._lock:
            self._activities.append(activity)
        try:
            yield activity
        finally:
            with self._lock:
                if activity in self._activities:
                    del self._activities[self._activities.index(activity) :]
                if self._shown not in self._activities:
                    self._erase()

    @contextmanager
    def interrupted(self) -> Iterator[None]:
        """Erase the line for a `with` block in which something else uses the terminal."""
        with self._lock:
            self._erase()
            yield

    def _erase(self) -> None:
        if self._shown is not None:
            self._write(_ERASE)
            self._shown = None

    def _run(self) -> None:
        while True:
            time.sleep(_UPDATE_INTERVAL)
            with self._lock:
                now = time.monotonic()
                due = [each for each in self._activities if now - each.started >= each.delay]
                if due and self._may_show():
                    self._shown = due[-1]
                    self._write(b"\r" + line(due[-1], now, self._columns() - 1).encode() + b"\x1b[K")


def line(activity: Activity, now: float, columns: int) -> str:
    """Return the line for *activity* at the time *now*, at most *columns* wide."""
    text = activity.text(now)
    if activity.total:
        text = f"{min(1.0, activity.done / activity.total):4.0%} {text}"
    return text.lstrip()[:columns]


def duration(seconds: float) -> str:
    """Return *seconds* as minutes and seconds, or hours, minutes and seconds."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

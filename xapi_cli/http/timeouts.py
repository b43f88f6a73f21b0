"""Limit every wait of one request, and report which limit expired."""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from xapi_cli.errors import TimeoutExpired
from xapi_cli.hints import Option
from xapi_cli.system.render import decimal

_MAX_POLL_INTERVAL = 0.5  # seconds of one system call; on Windows, Ctrl-C takes effect only between calls
DEADLINE_NAME = "--max-time"


class Timeouts(NamedTuple):
    """The timeouts of one request: one in seconds for each kind of wait, and a deadline for the whole request.

    The deadline is a time of the monotonic clock.
    """

    connect: float | None = None
    read: float | None = None
    write: float | None = None
    deadline: float | None = None
    deadline_name: str = DEADLINE_NAME


def time_limit(seconds: float, deadline: float | None, *, name: str = "--timeout") -> dict[str, Any]:
    """Return the extensions of a request of httpx that may take *seconds* in total, but only until *deadline*.

    *name* is what the message about a timeout calls the limit of *seconds*.
    """
    end = time.monotonic() + seconds
    return {"deadline": end, "deadline_name": name} if deadline is None or end < deadline else {"deadline": deadline}


class Wait:
    """One wait of at most *seconds*, which may consist of many system calls.

    *missing* returns the start of the message about a timeout; `phase` names the current step in it.
    """

    def __init__(self, timeouts: Timeouts, seconds: float | None, missing: Callable[[], str]) -> None:
        self._timeouts = timeouts
        self._seconds = seconds
        self._missing = missing
        self._end = math.inf if seconds is None else time.monotonic() + seconds
        self._deadline = math.inf if timeouts.deadline is None else timeouts.deadline
        self.phase = ""

    def poll_interval(self) -> float:
        """Return the maximum seconds for the next system call; raises TimeoutExpired if none remain."""
        now = time.monotonic()
        if self._deadline <= now:
            raise self._expired(f"before {self._timeouts.deadline_name} expired", self._timeouts.deadline_name)
        if self._seconds is not None and self._end <= now:
            raise self._expired(f"within {decimal(self._seconds)} s", "--timeout")
        return min(_MAX_POLL_INTERVAL, self._deadline - now, self._end - now)

    def _expired(self, when: str, setting: str) -> TimeoutExpired:
        phase = f" ({self.phase})" if self.phase else ""
        hint = ("raise ", Option(setting[2:]), " to wait longer") if setting.startswith("--") else None
        return TimeoutExpired(f"{self._missing()} {when}{phase}", hint=hint)

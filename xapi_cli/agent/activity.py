"""What an agent has done since it started: the commands, and the failures of its processes."""

import os
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

_FIRST_DELAY = 0.05  # seconds; twice as long after each further failure
_MAX_DELAY = 60.0  # seconds
_MAX_DOUBLINGS = 16


class Activity:
    """The commands, and when the agent is idle: *idle* seconds after its last use, and never before it is ready."""

    def __init__(self, idle: float) -> None:
        self._idle = idle
        self._since, self._used = time.time(), time.monotonic()
        self._is_ready = False
        self._warm = 0
        self._cold: Counter[str] = Counter()

    def ready(self) -> None:
        """Record that the agent is ready, and count its idle time from now on."""
        self._is_ready = True
        self.use()

    def use(self) -> None:
        """Record that the agent is in use now."""
        self._used = time.monotonic()

    def begin_command(self) -> None:
        """Count a command that a worker runs."""
        self._warm += 1
        self.use()

    def bypass(self, reason: str, *, has_begun: bool) -> None:
        """Count a command that its client runs, because of *reason*; with *has_begun*, it was counted before."""
        self._cold[reason] += 1
        self._warm -= has_begun

    def seconds_until_idle(self) -> float:
        """Return the time until the agent can end because it is idle."""
        return self._used + self._idle - time.monotonic() if self._is_ready else float("inf")

    def status(self) -> Mapping[str, Any]:
        """Return what `xapi agent status` shows."""
        return {"since": self._since, "idle": self._idle, "warm": self._warm, "cold": dict(self._cold.most_common())}


class ProcessFailures:
    """The failures: `count`, and the `last` one as a noun phrase, None without one; how long to wait after them."""

    def __init__(self) -> None:
        self.count = 0
        self.last: str | None = None
        self._in_a_row = 0
        self._retry_at = float("-inf")

    def add(self, reason: str) -> None:
        """Record a failure."""
        self.count += 1
        self.last = reason

    def back_off(self) -> None:
        """Wait before the next start: twice as long as after the failure before, unless a worker succeeded since."""
        delay = _FIRST_DELAY * 2 ** min(self._in_a_row, _MAX_DOUBLINGS)
        self._in_a_row += 1
        self._retry_at = time.monotonic() + min(delay, _MAX_DELAY)

    def succeed(self) -> None:
        """Record that a worker has got a command: the next failure is a first one."""
        self._in_a_row = 0

    def seconds_to_wait(self) -> float:
        """Return the time until the next process may be started, 0 if that is now."""
        return max(self._retry_at - time.monotonic(), 0.0)


def ending(status: int) -> str:
    """Return how a process with the wait *status* ended."""
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"

"""How often processes of the agent failed, and how long the master waits before it starts another one."""

import os
import time

_FIRST_DELAY = 0.05  # seconds; twice as long after each further failure
_MAX_DELAY = 60.0  # seconds
_MAX_DOUBLINGS = 16


class ProcessFailures:
    """The failures since the agent started: `count`, and the `last` one as a noun phrase, None without one."""

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

"""Limit every wait of one request, and report which limit expired."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from xapi_cli.errors import TimeoutExpired

_LONGEST_PAUSE = 0.5  # seconds of one system call; on Windows, Ctrl-C takes effect only between calls
_DEADLINE_NAME = "--max-time"


class Limits(NamedTuple):
    """The limits of one request: a timeout in seconds for each kind of wait, and a deadline for the whole request.

    The deadline is a time of the monotonic clock.
    """

    connect: float | None = None
    read: float | None = None
    write: float | None = None
    deadline: float | None = None
    deadline_name: str = _DEADLINE_NAME

    @classmethod
    def of(cls, extensions: Mapping[str, Any]) -> Self:
        """Return the limits in the *extensions* of a request, which httpx and the caller set."""
        seconds = extensions.get("timeout") or {}
        return cls(
            connect=seconds.get("connect"),
            read=seconds.get("read"),
            write=seconds.get("write"),
            deadline=extensions.get("deadline"),
            deadline_name=extensions.get("deadline_name") or _DEADLINE_NAME,
        )

    def wait(self, seconds: float | None, missing: str) -> "Limit":
        """Start a wait of at most *seconds*; *missing* is the start of the timeout message."""
        return Limit(self, seconds, missing)


class Limit:
    """One wait, which may consist of many system calls; `phase` names the current step in the timeout message."""

    def __init__(self, limits: Limits, seconds: float | None, missing: str) -> None:
        self._limits = limits
        self._seconds = seconds
        self._missing = missing
        self._until = None if seconds is None else time.monotonic() + seconds
        self.phase = ""

    def left(self) -> float | None:
        """Return the remaining seconds, None without a limit; raises TimeoutExpired if none remain."""
        now = time.monotonic()
        deadline = self._limits.deadline
        if deadline is not None and deadline <= now:
            raise self._expired(f"before {self._limits.deadline_name} ran out", self._limits.deadline_name)
        if self._until is not None and self._until <= now:
            raise self._expired(f"within {self._seconds:g} s", "--timeout")
        ends = [end for end in (deadline, self._until) if end is not None]
        return min(ends) - now if ends else None

    def pause(self) -> float:
        """Return the maximum seconds for the next system call; raises TimeoutExpired if none remain."""
        left = self.left()
        return _LONGEST_PAUSE if left is None else min(left, _LONGEST_PAUSE)

    def _expired(self, when: str, setting: str) -> TimeoutExpired:
        phase = f" ({self.phase})" if self.phase else ""
        hint = f"raise {setting} to wait longer" if setting.startswith("--") else None
        return TimeoutExpired(f"{self._missing} {when}{phase}", hint=hint)

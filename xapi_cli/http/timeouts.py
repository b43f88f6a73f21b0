"""Bound every wait of one request, and say which limit it was that has passed."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from xapi_cli.errors import TimeoutExpired

_LONGEST_PAUSE = 0.5  # seconds of one uninterrupted wait: Windows notices Ctrl-C only between two
_DEADLINE_NAME = "--max-time"


class Limits(NamedTuple):
    """Hold the limits of one request: seconds for each kind of wait, and a deadline for all together."""

    connect: float | None = None
    read: float | None = None
    write: float | None = None
    deadline: float | None = None
    deadline_name: str = _DEADLINE_NAME

    @classmethod
    def of(cls, extensions: Mapping[str, Any]) -> Self:
        """Read the limits that httpx, and who calls it, put into a request's *extensions*."""
        seconds = extensions.get("timeout") or {}
        return cls(
            connect=seconds.get("connect"),
            read=seconds.get("read"),
            write=seconds.get("write"),
            deadline=extensions.get("deadline"),
            deadline_name=extensions.get("deadline_name") or _DEADLINE_NAME,
        )

    def wait(self, seconds: float | None, missing: str) -> "Limit":
        """Begin a wait of at most *seconds*; an error will call *missing* what did not come."""
        return Limit(self, seconds, missing)


class Limit:
    """One wait, which may consist of many small ones; *phase* tells how far it has come."""

    def __init__(self, limits: Limits, seconds: float | None, missing: str) -> None:
        self._limits = limits
        self._seconds = seconds
        self._missing = missing
        self._until = None if seconds is None else time.monotonic() + seconds
        self.phase = ""

    def left(self) -> float | None:
        """Return the seconds that are left, None for no limit; raise TimeoutExpired when there are none."""
        now = time.monotonic()
        deadline = self._limits.deadline
        if deadline is not None and deadline <= now:
            raise self._expired(f"before {self._limits.deadline_name} ran out", self._limits.deadline_name)
        if self._until is not None and self._until <= now:
            raise self._expired(f"within {self._seconds:g} s", "--timeout")
        ends = [end for end in (deadline, self._until) if end is not None]
        return min(ends) - now if ends else None

    def pause(self) -> float:
        """Return how long to wait before looking again."""
        left = self.left()
        return _LONGEST_PAUSE if left is None else min(left, _LONGEST_PAUSE)

    def _expired(self, when: str, setting: str) -> TimeoutExpired:
        phase = f" ({self.phase})" if self.phase else ""
        hint = f"raise {setting} to wait longer" if setting.startswith("--") else None
        return TimeoutExpired(f"{self._missing} {when}{phase}", hint=hint)

"""The age of a record that the processes of one machine share: the wall clock steps, the time since boot does not.

A record contains the moment at which it was written: the ID of the boot, the seconds since then, and the wall clock.
Its age is the difference of the seconds since boot if the boot is the same. Otherwise, the machine has rebooted, or
another machine has written the record to a network file system, and the wall clock determines the age: it is right if
the clocks are. A record from the future of the wall clock is as old as this boot, because it was written before it.

Only Linux has an ID of the boot. Elsewhere, the age is the lower one by the two clocks, so that a step of the wall
clock makes no record older than it is; after a reboot, a record may seem younger than it is.
"""

import functools
import math
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # Linux only
_OTHER = "-"  # in place of the ID of a boot that is not known
_MAX_SKEW = 5.0  # seconds by which the clocks of machines that share a file system may differ


class Moment(NamedTuple):
    """A time: *seconds* after the boot with the ID *boot*, when the wall clock showed the Unix time *wall*.

    *boot* is empty if the system has no such ID.
    """

    boot: str
    seconds: float
    wall: float

    def on_clock_of(self, now: "Moment") -> float:
        """Return this moment in seconds since the boot of *now*, not after it; negative if it was before the boot."""
        since = now.seconds - self.seconds
        if self.boot == now.boot != "" and since >= 0:
            return self.seconds
        ages = [now.wall - self.wall, *([since] if "" in (self.boot, now.boot) else ())]
        return now.seconds - min((max(0.0, age) for age in ages if age >= -_MAX_SKEW), default=now.seconds)

    def age(self, now: "Moment") -> float:
        """Return the seconds from this moment to *now*."""
        return now.seconds - self.on_clock_of(now)

    def __str__(self) -> str:
        """Return the text for a record, from which `parsed` gets the moment."""
        return f"{self.boot or _OTHER} {self.seconds!r} {self.wall!r}"


def now() -> Moment:
    """Return the current time."""
    return Moment(boot_id(), since_boot(), time.time())


def since_boot() -> float:
    """Return the seconds since this machine booted, on Linux with those in which it was suspended."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@functools.cache
def boot_id() -> str:
    """Return the ID of the boot of this machine, or an empty string if it is unknown."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def boot_name() -> str:
    """Return what no other machine and no other boot has: the ID of the boot, else the host and the time of the boot.

    The latter changes when the wall clock is set. It has no spaces and no line breaks.
    """
    if boot := boot_id():
        return boot
    import socket

    return f"{socket.gethostname()!a}@{round(time.time() - since_boot(), -1):.0f}".replace(" ", "_")


def parsed(text: object, *, mtime: float | None = None) -> Moment | None:
    """Return the moment in *text*; if there is none, that of a file that was modified at *mtime*, if it is given."""
    with suppress(ValueError):
        boot, seconds, wall = str(text).split(" ")
        moment = Moment(boot.removeprefix(_OTHER), float(seconds), float(wall))
        if math.isfinite(moment.seconds) and math.isfinite(moment.wall):
            return moment
    return None if mtime is None else Moment(_OTHER, 0.0, mtime)

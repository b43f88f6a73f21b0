"""Synchronization of a test with the threads of its server and with other processes."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from glob import iglob
from pathlib import Path

from tests.support.servers import Peer


def wait_until(condition: Callable[[], object], what: str = "the condition", timeout: float = 60) -> None:
    """Wait until *condition* is true; *what* names it."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"{what}: still not true after {timeout} s"
        time.sleep(0.005)


def waiting_for_lock(file: Path) -> int:
    """Return how many processes and threads wait for the lock on *file*, which one holds: each has opened the file."""
    opened = 0
    for descriptor in iglob("/proc/[0-9]*/fd/*"):  # unlike Path.glob, it ignores processes that end meanwhile
        with suppress(OSError):
            opened += os.readlink(descriptor) == str(file)
    return opened - 1


class Gate:
    """A step at which a server reports that it was reached, and an event that lets it continue."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self._reached = threading.Event()

    def reached(self, peer: Peer) -> None:
        """Record that this step of a script was reached."""
        self._reached.set()

    def wait(self) -> None:
        """Wait until the server has reached the gate."""
        assert self._reached.wait(60)

"""Synchronization between a test and the threads of its server."""

import threading

from tests.support.servers import Peer


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
        assert self._reached.wait(20)

"""Meeting points between a test and the threads of its server."""

import threading

from tests.servers import Peer


class Gate:
    """A step at which a server tells that it came so far, and an event that lets it go on."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self._reached = threading.Event()

    def reached(self, peer: Peer) -> None:
        """Be a step of a script."""
        self._reached.set()

    def wait(self) -> None:
        """Wait until the server has come to the gate."""
        assert self._reached.wait(20)

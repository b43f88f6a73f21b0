"""The processes of the agent beside its workers: each serves a socket of its own, and is started again if it ends."""

import os
import socket
import time
from collections.abc import Callable, Mapping

_MIN_LIFE = 1.0  # seconds; a service that ends sooner is not started again at once


def _keeper(listener: socket.socket, lifeline: int) -> None:
    from xapi_cli.agent import keeper

    keeper.serve(listener, lifeline)


def _relay(listener: socket.socket, lifeline: int) -> None:
    from xapi_cli.agent import relay

    relay.serve(listener, lifeline)


_SERVICES: Mapping[str, Callable[[socket.socket, int], None]] = {"keeper": _keeper, "relay": _relay}
NAMES = tuple(_SERVICES)


class Services:
    """The services, by the names of their sockets, of which *listeners* has one each.

    *lifeline* is a pipe whose other end the master holds: its end is that of the services.
    """

    def __init__(self, listeners: Mapping[str, socket.socket], lifeline: int) -> None:
        self._listeners, self._lifeline = listeners, lifeline
        self._started = dict.fromkeys(listeners, float("-inf"))
        self.processes: dict[str, int] = {}

    def start(self, leave: Callable[[], None]) -> None:
        """Start each service that does not run; *leave* closes in a new process what belongs to the master."""
        for name in self._listeners.keys() - self.processes.keys():
            if time.monotonic() - self._started[name] >= _MIN_LIFE:
                self._started[name] = time.monotonic()
                self.processes[name] = self._fork(name, leave)

    def seconds_to_wait(self) -> float | None:
        """Return the time until `start` can start a service that has ended; None if all run."""
        missing = [self._started[name] for name in self._listeners.keys() - self.processes.keys()]
        return max(min(missing) + _MIN_LIFE - time.monotonic(), 0.0) if missing else None

    def reap(self, pid: int) -> None:
        """Note that the process *pid* has ended; it may be another one."""
        self.processes = {name: each for name, each in self.processes.items() if each != pid}

    def close(self) -> None:
        """Close the sockets in this process."""
        for each in self._listeners.values():
            each.close()

    def _fork(self, name: str, leave: Callable[[], None]) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                leave()
                for other in self._listeners.keys() - {name}:
                    self._listeners[other].close()
                _SERVICES[name](self._listeners[name], self._lifeline)
                os._exit(0)
            finally:
                os._exit(1)  # no exception may reach the loop of the master
        return pid

"""The processes of the agent beside its workers: each serves its own socket, and is started again if it ends."""

import socket
import time
from collections.abc import Callable, Mapping
from functools import partial

_MIN_LIFE = 1.0  # seconds; a service that ends sooner is not started again immediately


def _keeper(listener: socket.socket, lifeline: int) -> None:
    from xapi_cli.agent.keeper import server as keeper

    keeper.serve(listener, lifeline)


def _relay(listener: socket.socket, lifeline: int) -> None:
    from xapi_cli.agent.relay import server as relay

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

    def start(self, fork: Callable[[str, Callable[[], None]], int | None]) -> None:
        """Start each service that does not run.

        *fork* gets the name of a service and what its process does, and returns the process id, None after a failure.
        """
        for name in self._listeners.keys() - self.processes.keys():
            if time.monotonic() - self._started[name] >= _MIN_LIFE:
                self._started[name] = time.monotonic()
                if (pid := fork(name, partial(self._serve, name))) is not None:
                    self.processes[name] = pid

    @property
    def all_run(self) -> bool:
        """Whether each service runs."""
        return self._listeners.keys() == self.processes.keys()

    def seconds_to_wait(self) -> float | None:
        """Return the time until `start` can start a service that has ended; None if all run."""
        missing = [self._started[name] for name in self._listeners.keys() - self.processes.keys()]
        return max(min(missing) + _MIN_LIFE - time.monotonic(), 0.0) if missing else None

    def reap(self, pid: int) -> str | None:
        """Note that the process *pid* has ended; return the name of the service that it was, None for another one."""
        for name, each in self.processes.items():
            if each == pid:
                del self.processes[name]
                return name
        return None

    def close(self) -> None:
        """Close the sockets in this process."""
        for each in self._listeners.values():
            each.close()

    def _serve(self, name: str) -> None:
        for other in self._listeners.keys() - {name}:
            self._listeners[other].close()
        _SERVICES[name](self._listeners[name], self._lifeline)

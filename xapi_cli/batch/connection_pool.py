"""The connections of the engine by route, and the requests that wait for one."""

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from xapi_cli.batch.connections import ClientConnection
from xapi_cli.batch.event_loop import EventLoop
from xapi_cli.batch.in_flight import LINE_ERRORS, InFlight
from xapi_cli.batch.network import Network
from xapi_cli.http.connection import Route
from xapi_cli.http.reuse import GRACE_PERIOD, KEEP_ALIVE_TIMEOUT, ReusePolicy

if TYPE_CHECKING:
    from xapi_cli.http.connection import Connection


class ConnectionPool:
    """Assign connections to requests; open more with *network* if none is idle.

    *timeout* limits each wait of a connection, in seconds. *on_error* receives a waiting
    request and the exception if no connection could be opened for it.
    """

    def __init__(
        self, network: Network, loop: EventLoop, timeout: float, on_error: Callable[[InFlight, Exception], None]
    ) -> None:
        self._network, self._loop, self._timeout, self._on_error = network, loop, timeout, on_error
        self.busy: dict[ClientConnection, InFlight] = {}
        self._idle: dict[Route, deque[ClientConnection]] = {}  # longest idle first
        self._dialing: dict[Route, int] = {}  # number of connections that are being opened
        self._waiting: dict[Route, deque[InFlight]] = {}
        self._paused: set[ClientConnection] = set()
        self._reuse = ReusePolicy()

    # requests

    def send(self, request: InFlight, route: Route) -> None:
        """Send *request* over an idle connection to *route*, or as soon as there is one."""
        connection = self._take_idle(route)
        if connection is not None:
            self._begin(connection, request)
        else:
            self.wait(request, route)

    def wait(self, request: InFlight, route: Route) -> None:
        """Queue *request* for the next connection: one that becomes idle or a new one, whichever is available first."""
        self._waiting.setdefault(route, deque()).append(request)
        self._dial_for_waiting(route)

    def serve_waiting(self) -> None:
        """Assign to waiting requests the connections that became idle or whose grace period is over."""
        for route in [route for route, waiting in self._waiting.items() if waiting]:
            waiting = self._waiting[route]
            while waiting and (connection := self._take_idle(route)) is not None:
                self._begin(connection, waiting.popleft())
            self._dial_for_waiting(route)

    def release(self, connection: ClientConnection, *, is_reusable: bool) -> None:
        """Take *connection* from its request; keep it open if it *is_reusable*."""
        self.busy.pop(connection).connection = None
        if is_reusable and self._reuse.may_keep(connection.connection):
            self._add_idle(connection)
        else:
            self._drop(connection)

    def stop_waiting(self) -> None:
        """Remove all requests that wait for a connection."""
        self._waiting.clear()

    # connections

    def watch(self, connection: ClientConnection) -> None:
        """Watch *connection* for the events that it needs, unless it is paused."""
        self._loop.watch(connection, 0 if connection in self._paused else connection.events())

    def check_idle(self, connection: ClientConnection) -> None:
        """Drop *connection*, which is idle, if it was closed or received data."""
        if not connection.connection.is_idle():
            self._idle[connection.route].remove(connection)
            self._drop(connection)

    def close_stale(self, now: float) -> None:
        """Close the connections that have been idle for too long at *now*, on the monotonic clock."""
        for idle in self._idle.values():
            for connection in [each for each in idle if now - each.idle_since > KEEP_ALIVE_TIMEOUT]:
                idle.remove(connection)
                self._drop(connection)

    @property
    def next_grace_end(self) -> float | None:
        """Return when an idle connection can first be assigned to a waiting request, or None if none waits for that."""
        routes = [route for route, waiting in self._waiting.items() if waiting and self._idle.get(route)]
        return min((self._idle[route][0].idle_since + GRACE_PERIOD for route in routes), default=None)

    # backpressure

    def pause(self, connection: ClientConnection) -> None:
        """Stop reading from *connection*; its timeout is suspended."""
        self._paused.add(connection)
        connection.expires = float("inf")
        self.watch(connection)

    def is_paused(self, connection: ClientConnection | None) -> bool:
        """Return whether *connection* is paused."""
        return connection in self._paused

    def resume_paused(self) -> None:
        """Read from all connections again."""
        if not self._paused:
            return
        paused, self._paused = self._paused, set()
        for connection in paused:
            connection.expires = time.monotonic() + self._timeout
            self.watch(connection)

    # steps

    def _take_idle(self, route: Route) -> ClientConnection | None:
        """Remove and return an idle connection that can be used now; None if there is none past its grace period."""
        idle = self._idle.get(route)
        while idle:
            index = self._reuse.choose(idle)
            if index is None:
                return None
            connection = idle[index]
            del idle[index]
            if self._reuse.can_reuse(connection.connection):
                return connection
            self._drop(connection)
        return None

    def _begin(self, connection: ClientConnection, request: InFlight) -> None:
        assert request.step is not None  # noqa: S101 - the engine has set it
        request.connection = connection
        self.busy[connection] = request
        connection.begin(request.step.call.method, request.data, request.step.needs_body)
        self.watch(connection)

    def _dial_for_waiting(self, route: Route) -> None:
        """Open a connection for each waiting request, minus the idle connections, which are in their grace periods."""
        expected = len(self._idle.get(route, ()))
        while self._dialing.get(route, 0) + expected < len(self._waiting[route]):
            self._dialing[route] = self._dialing.get(route, 0) + 1
            self._loop.run_in_thread(lambda: self._network.dial(route), lambda result: self._dialed(route, result))

    def _dialed(self, route: Route, result: "Connection | Exception") -> None:
        self._dialing[route] -= 1
        waiting = self._waiting.get(route)
        if isinstance(result, Exception):
            if waiting:
                self._on_error(waiting.popleft(), result)
            elif not isinstance(result, LINE_ERRORS):
                raise result
            return
        connection = ClientConnection(result, self._timeout)
        if waiting:
            self._begin(connection, waiting.popleft())
        else:
            self._add_idle(connection)

    def _add_idle(self, connection: ClientConnection) -> None:
        self._idle.setdefault(connection.route, deque()).append(connection)
        self.watch(connection)

    def _drop(self, connection: ClientConnection) -> None:
        self._loop.unwatch(connection)
        self._paused.discard(connection)
        self._reuse.record_surplus(connection.connection)
        connection.close()

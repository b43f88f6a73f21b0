"""A thread-safe pool of connections that are kept open between requests."""

from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.reuse import ReusePolicy
from xapi_cli.system import forks

if TYPE_CHECKING:
    from xapi_cli.http.timeouts import Wait


class Lender(Protocol):
    """A source of connections that outlive this process."""

    def borrow(
        self, route: Route, authorization: str, wait: "Wait", trace: Callable[[str], None], *, new: bool
    ) -> Connection | None:
        """Return an open connection, None if this process has to open one itself.

        It has carried no credentials other than *authorization*, and no request at all if it must be *new*.
        *trace* is called with a line about it, unless it was open before. Raises
        NetworkError or TimeoutExpired if the lender could not open one.
        """
        ...

    def close(self) -> None:
        """Release what the lender holds in this process; connections that are lent stay open."""
        ...


# Returns the lender for a CA bundle and an environment; a worker of the agent sets it.
open_lender: Callable[[str | None, Mapping[str, str]], Lender | None] | None = None


class ConnectionPool:
    """A pool of connections; each is used by one caller at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._reuse = ReusePolicy()
        self._idle: dict[Route, list[Connection]] = {}  # in the order in which they became idle
        self._in_use: set[Connection] = set()
        self._is_closed = False
        forks.register(self)

    def acquire(self, route: Route) -> Connection | None:
        """Return an idle open connection for *route*, None without one; may wait for the end of a grace period."""
        while (connection := self._acquire_idle(route)) is not None:
            if self._reuse.can_reuse(connection):
                return connection
            self.discard(connection)
        return None

    def add(self, connection: Connection) -> None:
        """Register the new *connection* as in use."""
        with self._lock:
            self._in_use.add(connection)
            is_closed = self._is_closed
        if is_closed:
            connection.abort()

    def release(self, connection: Connection) -> None:
        """Keep *connection*, which has received a complete response, if it is reusable; otherwise close it."""
        if self._reuse.may_keep(connection):
            if connection.give_back():
                with self._lock:
                    self._in_use.discard(connection)
                return
            with self._lock:
                if not self._is_closed:
                    self._in_use.discard(connection)
                    self._idle.setdefault(connection.route, []).append(connection)
                    return
        self.discard(connection)

    def discard(self, connection: Connection) -> None:
        """Close *connection* and remove it from the pool."""
        self._reuse.record_surplus(connection)
        with self._lock:
            self._in_use.discard(connection)
            connection.close()

    def close(self) -> None:
        """Close idle connections, and make operations of other threads on connections in use fail immediately."""
        with self._lock:
            self._is_closed = True
            idle = [connection for connections in self._idle.values() for connection in connections]
            self._idle.clear()
            for connection in self._in_use:  # all are open, because discard() holds the lock while it closes one
                connection.abort()
        for connection in idle:
            connection.close()

    def after_fork(self) -> None:
        """Remove the connections of the parent process, and replace the lock, which another thread may have held."""
        self._lock = Lock()
        self._idle.clear()
        self._in_use.clear()

    def _acquire_idle(self, route: Route) -> Connection | None:
        with self._lock:
            idle = self._idle.get(route)
            if not idle:
                return None
            connection = idle.pop(self._reuse.choose(idle) or 0)
            self._in_use.add(connection)
            return connection

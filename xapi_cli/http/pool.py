"""A thread-safe pool of connections that are kept open between requests."""

from threading import Lock

from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.reuse import Reuse
from xapi_cli.system import forks


class Pool:
    """A pool of connections; each is used by one caller at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._reuse = Reuse()
        self._idle: dict[Route, list[Connection]] = {}  # in the order in which they became idle
        self._lent: set[Connection] = set()
        self._is_closed = False
        forks.watch(self)

    def take(self, route: Route) -> Connection | None:
        """Return an idle open connection for *route*, None without one; may wait for the end of a grace period."""
        while (connection := self._pop(route)) is not None:
            if self._reuse.is_fit(connection):
                return connection
            self.drop(connection)
        return None

    def add(self, connection: Connection) -> None:
        """Register the new *connection* as in use."""
        with self._lock:
            self._lent.add(connection)
            is_closed = self._is_closed
        if is_closed:
            connection.abort()

    def give_back(self, connection: Connection) -> None:
        """Keep *connection*, which has received a complete response, if it is reusable; otherwise close it."""
        if self._reuse.is_allowed(connection):
            with self._lock:
                if not self._is_closed:
                    self._lent.discard(connection)
                    self._idle.setdefault(connection.route, []).append(connection)
                    return
        self.drop(connection)

    def drop(self, connection: Connection) -> None:
        """Close *connection* and remove it from the pool."""
        self._reuse.note(connection)
        with self._lock:
            self._lent.discard(connection)
            connection.close()

    def close(self) -> None:
        """Close idle connections, and make operations of other threads on connections in use fail immediately."""
        with self._lock:
            self._is_closed = True
            idle = [connection for kept in self._idle.values() for connection in kept]
            self._idle.clear()
            for connection in self._lent:  # all are open, because drop() holds the lock while it closes one
                connection.abort()
        for connection in idle:
            connection.close()

    def after_fork(self) -> None:
        """Remove the connections of the parent process, and replace the lock, which another thread may have held."""
        self._lock = Lock()
        self._idle.clear()
        self._lent.clear()

    def _pop(self, route: Route) -> Connection | None:
        with self._lock:
            kept = self._idle.get(route)
            if not kept:
                return None
            connection = kept.pop(self._reuse.choice(kept) or 0)
            self._lent.add(connection)
            return connection

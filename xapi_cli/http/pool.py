"""Keep connections between requests, for threads that share one client."""

from threading import Lock

from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.reuse import Reuse
from xapi_cli.system import forks


class Pool:
    """Lend out open connections: each to one borrower at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._reuse = Reuse()
        self._idle: dict[Route, list[Connection]] = {}  # in the order in which they became idle
        self._lent: set[Connection] = set()
        self._is_closed = False
        forks.watch(self)

    def take(self, route: Route) -> Connection | None:
        """Lend a connection that is open and silent; None when there is none. Waits for the end of a grace period."""
        while (connection := self._pop(route)) is not None:
            if self._reuse.is_fit(connection):
                return connection
            self.drop(connection)
        return None

    def add(self, connection: Connection) -> None:
        """Count the new *connection* among those that are lent."""
        with self._lock:
            self._lent.add(connection)
            is_closed = self._is_closed
        if is_closed:
            connection.abort()

    def give_back(self, connection: Connection) -> None:
        """Keep *connection*, over which a complete response has come, if another request may go over it."""
        if self._reuse.is_allowed(connection):
            with self._lock:
                if not self._is_closed:
                    self._lent.discard(connection)
                    self._idle.setdefault(connection.route, []).append(connection)
                    return
        self.drop(connection)

    def drop(self, connection: Connection) -> None:
        """Close *connection*."""
        self._reuse.note(connection)
        with self._lock:
            self._lent.discard(connection)
            connection.close()

    def close(self) -> None:
        """Close what is idle, and let what other threads are doing fail at once."""
        with self._lock:
            self._is_closed = True
            idle = [connection for kept in self._idle.values() for connection in kept]
            self._idle.clear()
            for connection in self._lent:  # still open: drop() takes the lock before it closes one
                connection.abort()
        for connection in idle:
            connection.close()

    def after_fork(self) -> None:
        """Forget the connections of the parent process, and a lock that one of its threads may have held."""
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

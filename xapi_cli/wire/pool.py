"""Keep connections between requests, for threads that share one client."""

import time
from threading import Lock

from xapi_cli.wire.connection import Connection, Route

_KEEP_ALIVE = 5.0  # seconds; many servers close after as little as this, and a POST must not meet that moment


class Pool:
    """Lend out open connections: each to one borrower at a time, the one that was used last first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: dict[Route, list[tuple[Connection, float]]] = {}
        self._lent: set[Connection] = set()
        self._is_closed = False

    def take(self, route: Route) -> Connection | None:
        """Lend a connection that still lives; None when there is none."""
        while (kept := self._pop(route)) is not None:
            connection, since = kept
            if time.monotonic() - since <= _KEEP_ALIVE and connection.is_idle():
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
        """Keep *connection*, over which another request may go."""
        with self._lock:
            if not self._is_closed:
                self._lent.discard(connection)
                self._idle.setdefault(connection.route, []).append((connection, time.monotonic()))
                return
        self.drop(connection)

    def drop(self, connection: Connection) -> None:
        """Close *connection*."""
        with self._lock:
            self._lent.discard(connection)
            connection.close()

    def close(self) -> None:
        """Close what is idle, and let what other threads are doing fail at once."""
        with self._lock:
            self._is_closed = True
            idle = [connection for kept in self._idle.values() for connection, _ in kept]
            self._idle.clear()
            for connection in self._lent:  # still open: drop() takes the lock before it closes one
                connection.abort()
        for connection in idle:
            connection.close()

    def _pop(self, route: Route) -> tuple[Connection, float] | None:
        with self._lock:
            kept = self._idle.get(route)
            if not kept:
                return None
            connection, since = kept.pop()
            self._lent.add(connection)
            return connection, since

"""Connections that the relay keeps between two loans."""

from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.prepared_tls import Sources, Stamp
from xapi_cli.http.reuse import ReusePolicy

_MAX_CONNECTIONS = 64
_MAX_RECORDED = 1000  # kinds of responses and routes; then none is regarded as safe any more


class Key(NamedTuple):
    """What two calls must have in common to use the same connection.

    *route* contains the proxy and its credentials; *sources* and *stamp* are the trusted certificates, *account* is a
    digest of the credentials, "" while none have been sent over the connection.
    """

    route: Route
    sources: Sources
    stamp: Stamp
    account: str


class KeptConnections:
    """A thread-safe collection of idle connections, by the same rules as those of one process: see `http/reuse`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._reuse = ReusePolicy()
        self._idle: dict[Key, list[Connection]] = {}  # in the order in which they became idle
        self._is_closed = False

    def __len__(self) -> int:
        return sum(map(len, list(self._idle.values())))

    def take(self, key: Key) -> Connection | None:
        """Remove and return an open connection for *key*, None without one; may wait for the end of a grace period."""
        while (connection := self._pop(key) or self._pop(key._replace(account=""))) is not None:
            if self._reuse.can_reuse(connection):
                return connection
            self.discard(connection)
        return None

    def add(self, key: Key, connection: Connection) -> None:
        """Keep *connection*, which is idle, unless there are too many."""
        is_allowed = self._reuse.may_keep(connection)
        with self._lock:
            if is_allowed and not self._is_closed and len(self) < _MAX_CONNECTIONS:
                self._idle.setdefault(key, []).append(connection)
                return
        connection.close()

    def discard(self, connection: Connection) -> None:
        """Close *connection*, which has been removed, and record whether its server sends surplus bytes."""
        self._reuse.record_surplus(connection)
        connection.close()

    def close_expired(self) -> None:
        """Close the connections that have been idle for too long."""
        self._close(self._reuse.is_expired)
        if self._reuse.size > _MAX_RECORDED:
            self._reuse = ReusePolicy()

    def close(self) -> None:
        """Close all connections, and those that are added later."""
        self._is_closed = True
        self._close(lambda connection: True)

    def _pop(self, key: Key) -> Connection | None:
        with self._lock:
            idle = self._idle.get(key)
            if not idle:
                return None
            connection = idle.pop(self._reuse.choose(idle) or 0)
            if not idle:
                del self._idle[key]
            return connection

    def _close(self, is_chosen: Callable[[Connection], bool]) -> None:
        with self._lock:
            chosen = [each for idle in self._idle.values() for each in idle if is_chosen(each)]
            self._idle = {
                key: rest for key, idle in self._idle.items() if (rest := [each for each in idle if each not in chosen])
            }
        for connection in chosen:
            connection.close()

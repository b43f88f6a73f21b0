"""Connections that are kept open between requests.

HTTP/1.1 does not mark which request a response belongs to: surplus bytes after a response would be parsed as the
response to the next request. They may come up to 50 ms later, in a packet of their own. So a connection is reused only
if it has no unread data. After the first response of a kind, no data may arrive for a grace period, which shows that
the server does not send surplus bytes after a short delay. For a server that has ever sent surplus bytes, each request
uses a new connection.

A server closes an idle connection after a time, and a request that is sent at that moment is lost. So a connection is
not used in the last two seconds before the server closes it, and by a request that cannot be sent again only if it has
been idle for at most a second.
"""

import re
import time
from collections.abc import Sequence
from threading import Lock

from xapi_cli.http.connection import Connection, ResponseKind, Route

GRACE_PERIOD = 0.06  # seconds
_KEEP_ALIVE = 5.0  # seconds after which many servers close idle connections, unless they announce another time
_LONGEST = 300.0
_MARGIN = 2.0  # seconds for the way of the request, and for a server that rounds
_MAX_IDLE_BEFORE_POST = 1.0


class Pool:
    """Idle connections by route, and the connections in use; thread-safe. One belongs to one caller at a time."""

    def __init__(self) -> None:
        self._is_closed = False
        self._lock = Lock()
        self._idle: dict[Route, list[Connection]] = {}  # in the order in which they became idle
        self._in_use: set[Connection] = set()
        self._safe_kinds: set[ResponseKind | None] = set()  # after which no data arrived for the grace period
        self._unsafe_routes: set[Route] = set()  # on which surplus bytes arrived

    def acquire(self, route: Route, *, is_idempotent: bool) -> Connection | None:
        """Return an open connection for *route*, for a request that *is_idempotent*, None without one."""
        while True:
            with self._lock:
                idle = self._idle.get(route)
                if not idle:
                    return None
                connection = idle.pop(self._preferred(idle))
                self._in_use.add(connection)
            if self._is_usable(connection, is_idempotent=is_idempotent):
                return connection
            self.release(connection, is_reusable=False)

    def add(self, connection: Connection) -> None:
        """Register the new *connection* as in use."""
        with self._lock:
            self._in_use.add(connection)
            if self._is_closed:
                connection.abort()

    def release(self, connection: Connection, *, is_reusable: bool) -> None:
        """Keep *connection*, which was in use, if it *is_reusable*; otherwise close it."""
        with self._lock:
            self._in_use.discard(connection)
            if connection.has_surplus:
                self._unsafe_routes.add(connection.route)
            if is_reusable and not self._is_closed and connection.route not in self._unsafe_routes:
                self._idle.setdefault(connection.route, []).append(connection)
            else:
                connection.close()

    def close_unused(self) -> None:
        """Close the connections if all are idle."""
        with self._lock:
            if not self._in_use:
                self._close_idle()

    def close(self) -> None:
        """Close idle connections, and those that are released later; operations of other threads on them fail."""
        with self._lock:
            self._is_closed = True
            for connection in self._in_use:  # all are open: `release` holds the lock while it closes one
                connection.abort()
            self._close_idle()

    def _close_idle(self) -> None:
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()

    def _preferred(self, idle: Sequence[Connection]) -> int:
        """Return the index of the connection in *idle* to use first.

        If some have been idle for the grace period, it is the most recent of these: surplus bytes have most likely
        arrived already, and the server has least likely closed it. Otherwise, it is the first one after a response of a
        safe kind; otherwise the first one, whose grace period ends first.
        """
        limit = time.monotonic() - GRACE_PERIOD
        if idle[0].idle_since <= limit:
            return max(index for index, each in enumerate(idle) if each.idle_since <= limit)
        return next((index for index, each in enumerate(idle) if each.kind in self._safe_kinds), 0)

    def _is_usable(self, connection: Connection, *, is_idempotent: bool) -> bool:
        """Return whether *connection* may carry a request now; may wait for the end of its grace period."""
        idle_time = time.monotonic() - connection.idle_since
        limit = _keep_alive(connection.keep_alive)
        if idle_time > (limit if is_idempotent else min(limit, _MAX_IDLE_BEFORE_POST)):
            return False
        if connection.kind in self._safe_kinds:
            return connection.is_idle()
        if not connection.stays_idle(GRACE_PERIOD - idle_time):
            return False
        self._safe_kinds.add(connection.kind)
        return connection.route not in self._unsafe_routes


def _keep_alive(header: bytes) -> float:
    """Return the seconds for which a connection may be idle whose last response had *header*, Keep-Alive."""
    found = re.search(rb"(?i)\btimeout\s*=\s*(\d{1,6})", header)
    announced = min(float(found[1]), _LONGEST) if found else _KEEP_ALIVE
    return max(announced - _MARGIN, announced / 2)

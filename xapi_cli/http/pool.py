"""Connections that are kept open between requests: those of a client and of a batch.

A connection is kept under a key, which contains all that two requests must have in common to use it. A pool is
thread-safe; a connection belongs to one caller at a time.

HTTP/1.1 does not mark which request a response belongs to: surplus bytes after a response would be parsed as the
response to the next request. So a connection is reused only if it has no unread data. After the first response of a
kind, no data may arrive for a grace period, which shows that the server does not send surplus bytes after a short
delay. For a server that has ever sent surplus bytes, each request uses a new connection.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Generic, TypeVar

from xapi_cli.http.connection import Connection, ResponseKind, Route
from xapi_cli.system import forks

GRACE_PERIOD = 0.06  # seconds; surplus bytes usually follow the response within a few milliseconds
KEEP_ALIVE_TIMEOUT = 5.0  # seconds; many servers close idle connections then, which must not coincide with a POST
_MAX_RECORDED = 1000  # kinds of responses and routes; beyond that, both records are discarded, and are learned again

K = TypeVar("K", bound=Hashable)


class ConnectionPool(Generic[K]):
    """Idle connections by key, at most *limit* of them, and the connections in use that were added.

    *on_close* is called with each connection that the pool is about to close. Without *waits*, `acquire` does not wait
    for the end of a grace period, and `next_grace_end` is the time to try again. Without *checks*, the caller must
    check with `is_idle` that a used connection is open, immediately before it sends.
    """

    def __init__(
        self,
        *,
        limit: int | None = None,
        on_close: Callable[[Connection], None] | None = None,
        waits: bool = True,
        checks: bool = True,
    ) -> None:
        self._limit, self._on_close, self._waits, self._checks = limit, on_close, waits, checks
        self._lock = Lock()
        self._reuse = _ReusePolicy()
        self._idle: dict[K, list[Connection]] = {}  # in the order in which they became idle
        self._in_use: set[Connection] = set()
        self._is_closed = False
        forks.register(self)

    def __len__(self) -> int:
        return sum(map(len, list(self._idle.values())))

    def count(self, key: K) -> int:
        """Return the number of idle connections for *key*, including those in their grace periods."""
        return len(self._idle.get(key, ()))

    def acquire(self, key: K) -> Connection | None:
        """Return an idle open connection for *key*, None without one."""
        while True:
            with self._lock:
                idle = self._idle.get(key)
                if not idle or (index := self._reuse.choose(idle, waits=self._waits)) is None:
                    return None
                connection = idle.pop(index)
                if not idle:
                    del self._idle[key]
                self._in_use.add(connection)
            if self._reuse.can_reuse(connection, checks=self._checks):
                return connection
            self.discard(connection)

    def next_grace_end(self, key: K) -> float | None:
        """Return when an idle connection for *key* can first be acquired, on the monotonic clock; None without one."""
        idle = self._idle.get(key)
        return idle[0].idle_since + GRACE_PERIOD if idle else None

    def add(self, connection: Connection) -> None:
        """Register the new *connection* as in use."""
        with self._lock:
            self._in_use.add(connection)
            is_closed = self._is_closed
        if is_closed:
            connection.abort()

    def release(self, key: K, connection: Connection) -> bool:
        """Keep *connection*, which has received a complete response, if it is reusable; otherwise close it.

        Return whether it is idle in this pool now.
        """
        if self._reuse.may_keep(connection):
            with self._lock:
                if not self._is_closed and (self._limit is None or len(self) < self._limit):
                    self._in_use.discard(connection)
                    self._idle.setdefault(key, []).append(connection)
                    return True
        self.discard(connection)
        return False

    def discard(self, connection: Connection) -> None:
        """Close *connection*, which is not idle in the pool, and record whether its server sends surplus bytes."""
        self._reuse.record_surplus(connection)
        with self._lock:
            self._in_use.discard(connection)
            self._close(connection)

    def remove(self, key: K, connection: Connection) -> None:
        """Close *connection*, which is idle for *key*."""
        with self._lock:
            self._idle[key].remove(connection)
        self.discard(connection)

    def close_expired(self) -> None:
        """Close the connections that have been idle for too long."""
        with self._lock:
            expired = [each for idle in self._idle.values() for each in idle if self._reuse.is_expired(each)]
            if expired:
                kept = {key: [each for each in idle if each not in expired] for key, idle in self._idle.items()}
                self._idle = {key: idle for key, idle in kept.items() if idle}
            if self._limit is not None and self._reuse.size > _MAX_RECORDED:  # a process that lives long
                self._reuse = _ReusePolicy()
        for connection in expired:
            self.discard(connection)

    def close_unused(self) -> None:
        """Close the connections if all are idle."""
        if not self._in_use:
            self._close_idle()

    def close(self, *, aborts: bool = True) -> None:
        """Close idle connections, and those that are released later.

        With *aborts*, operations of other threads on connections in use fail immediately.
        """
        with self._lock:
            self._is_closed = True
            if aborts:
                for connection in self._in_use:  # all are open: discard() holds the lock while it closes one
                    connection.abort()
        self._close_idle()

    def after_fork(self) -> None:
        """Remove the connections of the parent process, and replace the lock, which another thread may have held."""
        self._lock = Lock()
        self._idle.clear()
        self._in_use.clear()

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = [each for idle in self._idle.values() for each in idle], {}
        for connection in idle:
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        if self._on_close is not None:
            self._on_close(connection)
        connection.close()


class _ReusePolicy:
    """The reuse policy for all connections of one client; it records which servers send surplus bytes."""

    def __init__(self) -> None:
        # Kinds of responses after which no data arrived for the grace period; None stands for an unused connection.
        self._safe_kinds: set[ResponseKind | None] = {None}
        self._unsafe_routes: set[Route] = set()  # routes on which surplus bytes arrived

    @property
    def size(self) -> int:
        """The number of recorded kinds of responses and routes, each of which takes memory."""
        return len(self._safe_kinds) + len(self._unsafe_routes)

    def choose(self, idle: Sequence[Connection], *, waits: bool) -> int | None:
        """Return the index of the connection in *idle* to reuse first.

        *idle* is in the order in which the connections became idle. If some have been idle for the grace period, the
        most recent of these is chosen: late surplus bytes have most likely arrived already, and the server has least
        likely closed it. Otherwise, the first one with a kind of response that is known to be safe is chosen.
        Otherwise, all are in their grace periods: if the caller *waits*, the first one is chosen, whose period ends
        first, else none.
        """
        limit = time.monotonic() - GRACE_PERIOD
        if idle[0].idle_since > limit:
            for index, each in enumerate(idle):  # usually returns the first one
                if each.kind in self._safe_kinds:
                    return index
            return 0 if waits else None
        return next(index for index in reversed(range(len(idle))) if idle[index].idle_since <= limit)

    def can_reuse(self, connection: Connection, *, checks: bool) -> bool:
        """Return whether *connection* may carry a request now; may wait for the end of its grace period.

        Unless it *checks*, a connection whose last response was of a safe kind counts as open.
        """
        idle_time = time.monotonic() - connection.idle_since
        if connection.kind in self._safe_kinds:
            is_idle = not checks or connection.is_idle()
        else:
            is_idle = connection.stays_idle(GRACE_PERIOD - idle_time)
            if is_idle:
                self._safe_kinds.add(connection.kind)
        return is_idle and idle_time <= KEEP_ALIVE_TIMEOUT and connection.route not in self._unsafe_routes

    def is_expired(self, connection: Connection) -> bool:
        """Return whether *connection* has been idle for so long that it is not reused."""
        return time.monotonic() - connection.idle_since > KEEP_ALIVE_TIMEOUT

    def may_keep(self, connection: Connection) -> bool:
        """Return whether *connection*, which has received a complete response, may be kept."""
        if connection.has_surplus:
            self.record_surplus(connection)
        return connection.route not in self._unsafe_routes

    def record_surplus(self, connection: Connection) -> None:
        """Record whether surplus bytes arrived on *connection*."""
        if connection.has_surplus:
            self._unsafe_routes.add(connection.route)

"""Connections that are kept open between requests: those of a client, of a batch, and of the agent's relay.

A connection is kept under a key, which contains all that two requests must have in common to use it. `http.reuse`
decides whether it may carry another request. A pool is thread-safe; a connection belongs to one caller at a time.
"""

from collections.abc import Callable, Hashable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.reuse import GRACE_PERIOD, ReusePolicy
from xapi_cli.system import forks

if TYPE_CHECKING:
    from xapi_cli.http.timeouts import Wait

_MAX_RECORDED = 1000  # kinds of responses and routes; then none is regarded as safe any more

K = TypeVar("K", bound=Hashable)


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


class ConnectionPool(Generic[K]):
    """Idle connections by key, at most *limit* of them, and the connections in use that were added.

    *on_close* is called with each connection that the pool is about to close.
    """

    def __init__(self, *, limit: int | None = None, on_close: Callable[[Connection], None] | None = None) -> None:
        self._limit, self._on_close = limit, on_close
        self._lock = Lock()
        self._reuse = ReusePolicy()
        self._idle: dict[K, list[Connection]] = {}  # in the order in which they became idle
        self._in_use: set[Connection] = set()
        self._is_closed = False
        forks.register(self)

    def __len__(self) -> int:
        return sum(map(len, list(self._idle.values())))

    def count(self, key: K) -> int:
        """Return the number of idle connections for *key*, including those in their grace periods."""
        return len(self._idle.get(key, ()))

    def acquire(self, key: K, *, waits: bool = True) -> Connection | None:
        """Return an idle open connection for *key*, None without one.

        May wait for the end of a grace period; if it never *waits*, `next_grace_end` says when to try again.
        """
        while (connection := self._pop(key, waits=waits)) is not None:
            if self._reuse.can_reuse(connection):
                return connection
            self.discard(connection)
        return None

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
            if connection.give_back():
                with self._lock:
                    self._in_use.discard(connection)
                return False
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
                self._reuse = ReusePolicy()
        for connection in expired:
            self.discard(connection)

    def close(self, *, aborts: bool = True) -> None:
        """Close idle connections, and those that are released later.

        With *aborts*, operations of other threads on connections in use fail immediately.
        """
        with self._lock:
            self._is_closed = True
            idle = [connection for connections in self._idle.values() for connection in connections]
            self._idle.clear()
            if aborts:
                for connection in self._in_use:  # all are open: discard() holds the lock while it closes one
                    connection.abort()
        for connection in idle:
            self._close(connection)

    def after_fork(self) -> None:
        """Remove the connections of the parent process, and replace the lock, which another thread may have held."""
        self._lock = Lock()
        self._idle.clear()
        self._in_use.clear()

    def _pop(self, key: K, *, waits: bool) -> Connection | None:
        with self._lock:
            idle = self._idle.get(key)
            if not idle:
                return None
            index = self._reuse.choose(idle)
            if index is None:
                if not waits:
                    return None
                index = 0
            connection = idle.pop(index)
            if not idle:
                del self._idle[key]
            self._in_use.add(connection)
            return connection

    def _close(self, connection: Connection) -> None:
        if self._on_close is not None:
            self._on_close(connection)
        connection.close()

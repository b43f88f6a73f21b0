"""Decide whether a connection may carry another request.

HTTP/1.1 does not mark which request a response belongs to: surplus bytes after a response would be parsed as the
response to the next request. So a connection is reused only if it has no unread data. After the first response of a
kind, no data may arrive for a grace period, which shows that the server does not send surplus bytes after a short
delay. For a server that has ever sent surplus bytes, each request uses a new connection.
"""

import time
from collections.abc import Sequence
from typing import Protocol

from xapi_cli.http.connection import Connection, Kind, Route

GRACE_PERIOD = 0.06  # seconds; surplus bytes usually follow the response within a few milliseconds
KEEP_ALIVE_TIMEOUT = 5.0  # seconds; many servers close idle connections then, which must not coincide with a POST


class _Idle(Protocol):
    @property
    def idle_since(self) -> float: ...

    @property
    def kind(self) -> Kind | None: ...


class ReusePolicy:
    """The reuse policy for all connections of one client; it records which servers send surplus bytes."""

    def __init__(self) -> None:
        # Kinds of responses after which no data arrived for the grace period; None stands for an unused connection.
        self._safe_kinds: set[Kind | None] = {None}
        self._unsafe_routes: set[Route] = set()  # routes on which surplus bytes arrived

    @property
    def size(self) -> int:
        """The number of recorded kinds of responses and routes, each of which takes memory."""
        return len(self._safe_kinds) + len(self._unsafe_routes)

    def choose(self, idle: Sequence[_Idle]) -> int | None:
        """Return the index of the connection in *idle* to reuse first; None if all are in their grace periods.

        *idle* is in the order in which the connections became idle. If some have been idle for the grace period, the
        most recent of these is chosen: late surplus bytes have most likely arrived already, and the server has least
        likely closed it. Otherwise, the first one with a kind of response that is known to be safe is chosen.
        """
        limit = time.monotonic() - GRACE_PERIOD
        if idle[0].idle_since > limit:
            for index, each in enumerate(idle):  # usually returns the first one
                if each.kind in self._safe_kinds:
                    return index
            return None
        return next(index for index in reversed(range(len(idle))) if idle[index].idle_since <= limit)

    def can_reuse(self, connection: Connection) -> bool:
        """Return whether *connection* may carry a request now; may wait for the end of its grace period."""
        idle_time = time.monotonic() - connection.idle_since
        if connection.kind in self._safe_kinds:
            is_idle = connection.is_idle()
        else:
            is_idle = connection.stays_idle(GRACE_PERIOD - idle_time)
            if is_idle:
                self._safe_kinds.add(connection.kind)
        return is_idle and idle_time <= KEEP_ALIVE_TIMEOUT and connection.route not in self._unsafe_routes

    def is_expired(self, connection: _Idle) -> bool:
        """Return whether *connection* has been idle for so long that it is not reused."""
        return time.monotonic() - connection.idle_since > KEEP_ALIVE_TIMEOUT

    def may_keep(self, connection: Connection) -> bool:
        """Return whether *connection*, which has received a complete response, may be kept."""
        self.record_surplus(connection)
        return connection.route not in self._unsafe_routes

    def record_surplus(self, connection: Connection) -> None:
        """Record whether surplus bytes arrived on *connection*."""
        if connection.has_surplus:
            self._unsafe_routes.add(connection.route)

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

GRACE = 0.06  # seconds; surplus bytes usually follow the response within a few milliseconds
KEEP_ALIVE = 5.0  # seconds; many servers close idle connections after 5 s, and a POST must not be sent at that moment


class _Idle(Protocol):
    @property
    def idle_since(self) -> float: ...

    @property
    def kind(self) -> Kind | None: ...


class Reuse:
    """The reuse policy for all connections of one client; it records which servers send surplus bytes."""

    def __init__(self) -> None:
        # Kinds of responses after which no data arrived for the grace period; None stands for an unused connection.
        self._sound: set[Kind | None] = {None}
        self._unsound: set[Route] = set()  # routes on which surplus bytes arrived

    def choice(self, idle: Sequence[_Idle]) -> int | None:
        """Return the index of the connection in *idle* to reuse first; None if all are in their grace periods.

        *idle* is in the order in which the connections became idle. If some have been idle for the grace period, the
        most recent of these is chosen: late surplus bytes have most likely arrived already, and the server has least
        likely closed it. Otherwise, the first one with a kind of response that is known to be safe is chosen.
        """
        limit = time.monotonic() - GRACE
        if idle[0].idle_since > limit:
            for index, each in enumerate(idle):  # usually returns the first one
                if each.kind in self._sound:
                    return index
            return None
        return next(index for index in reversed(range(len(idle))) if idle[index].idle_since <= limit)

    def is_fit(self, connection: Connection) -> bool:
        """Return whether *connection* may carry a request now; may wait for the end of its grace period."""
        silence = time.monotonic() - connection.idle_since
        if connection.kind in self._sound:
            is_silent = connection.is_silent()
        else:
            is_silent = connection.stays_silent(GRACE - silence)
            if is_silent:
                self._sound.add(connection.kind)
        return is_silent and silence <= KEEP_ALIVE and connection.route not in self._unsound

    def is_allowed(self, connection: Connection) -> bool:
        """Return whether *connection*, which has received a complete response, may be kept."""
        self.note(connection)
        return connection.route not in self._unsound

    def note(self, connection: Connection) -> None:
        """Record whether surplus bytes arrived on *connection*."""
        if connection.has_surplus:
            self._unsound.add(connection.route)

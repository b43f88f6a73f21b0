"""Decide whether a connection may carry another request.

HTTP/1.1 does not mark which request a response belongs to: what a server sends after a response, a surplus, would be
read as the response to the next request. So a connection has to be silent whenever it is reused. After the first
response of a kind it has to stay silent for a grace period, which shows that the server sends no surplus a little
later. A server that has ever sent a surplus gets a new connection for each request.
"""

import time
from collections.abc import Sequence
from typing import Protocol

from xapi_cli.http.connection import Connection, Kind, Route

GRACE = 0.06  # seconds; a surplus usually follows its response within a few milliseconds
KEEP_ALIVE = 5.0  # seconds; many servers close after as little as this, and a POST must not meet that moment


class _Idle(Protocol):
    @property
    def idle_since(self) -> float: ...

    @property
    def kind(self) -> Kind | None: ...


class Reuse:
    """Decide for all connections of one client, and remember how servers have behaved."""

    def __init__(self) -> None:
        # After such a response, a connection has stayed silent for the grace period; None stands for an unused one.
        self._sound: set[Kind | None] = {None}
        self._unsound: set[Route] = set()  # a connection has carried a surplus

    def choice(self, idle: Sequence[_Idle]) -> int | None:
        """Return the index of the connection to reuse first; None where all are in their grace periods.

        *idle* is in the order in which the connections became idle. The last one that has been silent for the grace
        period is preferred, then the one that has been silent for the longest time: there a late surplus has most
        likely arrived already, and the server has least likely closed the connection.
        """
        limit = time.monotonic() - GRACE
        if idle[0].idle_since > limit:
            for index, each in enumerate(idle):  # the first one, as a rule
                if each.kind in self._sound:
                    return index
            return None
        return next(index for index in reversed(range(len(idle))) if idle[index].idle_since <= limit)

    def is_fit(self, connection: Connection) -> bool:
        """Tell whether *connection* may carry a request now; wait for the end of its grace period."""
        silence = time.monotonic() - connection.idle_since
        if connection.kind in self._sound:
            is_silent = connection.is_silent()
        else:
            is_silent = connection.stays_silent(GRACE - silence)
            if is_silent:
                self._sound.add(connection.kind)
        return is_silent and silence <= KEEP_ALIVE and connection.route not in self._unsound

    def is_allowed(self, connection: Connection) -> bool:
        """Tell whether *connection*, over which a complete response has come, may be kept."""
        self.note(connection)
        return connection.route not in self._unsound

    def note(self, connection: Connection) -> None:
        """Remember a surplus that came over *connection*."""
        if connection.has_surplus:
            self._unsound.add(connection.route)

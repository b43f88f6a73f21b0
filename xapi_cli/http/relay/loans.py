"""Borrow open connections from the relay of the agent, which keeps them between calls.

The relay verifies certificates by the settings of the borrower. Over https, it encrypts and decrypts: the borrower gets
one end of a pair of sockets. Over plain http, the borrower gets the TCP socket itself.
"""

import hashlib
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from xapi_cli.errors import UNAUTHORIZED
from xapi_cli.http import tls
from xapi_cli.http.connection import BLOCK, Connection, Route, is_loopback
from xapi_cli.http.pool import OpenLender
from xapi_cli.http.relay.messages import (
    Loan,
    LoanEnd,
    LoanRequest,
    Message,
    MessageSocket,
    ProtocolError,
    end_error,
    failure,
    within,
)
from xapi_cli.system.safe_paths import is_process_specific

if TYPE_CHECKING:
    from xapi_cli.http.timeouts import Wait

REPLY_TIMEOUT = 0.5  # seconds; a relay that does not respond by then is not used
_RESOLVER_VARIABLES = ("HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS")  # they would not affect the relay

Connector = Callable[[], "socket.socket | None"]


class LentConnection(Connection):
    """A connection that the relay has lent over *control*.

    One that *is_private* is never given back: its first request can contain a password, as that of a login does.
    """

    is_lent = True

    def __init__(
        self, sock: socket.socket, route: Route, control: MessageSocket, loan: Loan, *, is_private: bool = False
    ) -> None:
        super().__init__(sock, route)
        self._is_private = is_private
        self.tls = loan.tls
        self.kind = loan.kind and (route, *loan.kind)
        self._control = control
        self._is_relayed = loan.is_relayed
        self._peer = loan.peer
        self._received = 0
        self._sent = 0
        self._end: Message | None = None
        self.return_control: Callable[[MessageSocket], None] = MessageSocket.close

    @property
    def peer(self) -> str:
        """Return the address of the server or proxy, not of the relay."""
        return self._peer

    def receive_now(self, size: int = BLOCK) -> bytes | None:
        """Return at most *size* bytes; at the end, b"" or raise the error with which the connection really ended."""
        if not self._is_relayed:
            return super().receive_now(size)
        try:
            data = super().receive_now(size)
        except ConnectionResetError as broken:  # the relay was killed before it had taken everything
            raise self._how_it_ended() or broken from None
        if data == b"" and (error := self._how_it_ended()):
            raise error
        self._received += len(data or b"")
        return data

    def send_now(self, data: memoryview) -> int:
        """Send as much of *data* as possible without waiting, and return the number of bytes sent."""
        count = super().send_now(data)
        self._sent += count
        return count

    def give_back(self) -> bool:
        """Return the connection to the relay, which keeps it if it has passed on exactly the bytes counted here."""
        if self.kind is None or self._is_private:
            return False
        _, method, status = self.kind
        if status == UNAUTHORIZED:  # kept by the relay, it would be open beside that of the login
            return False
        with suppress(OSError):
            self._control.send(LoanEnd((method, status), self._received, self._sent).message())
            super().close()
            self.return_control(self._control)
            return True
        return False

    def close(self) -> None:
        """End the loan; the relay closes the connection to the server."""
        if self.has_surplus:
            with suppress(OSError):
                self._control.send(LoanEnd(has_surplus=True).message())
        super().close()
        self._control.close()

    def after_fork(self) -> None:
        """Close only the descriptors: the parent process still uses the connection."""
        super().close()
        self._control.close()

    def _how_it_ended(self) -> OSError | None:
        """Return the error of the connection, None after a regular end; the relay has sent it before it closed."""
        with suppress(OSError, ProtocolError):
            self._end = self._end or self._control.receive()
        if self._end is None or self._end["type"] != "end":
            return OSError(None, "the agent's connection relay stopped; run the command again, or set XAPI_AGENT=off")
        return end_error(self._end)


class RelayLender:
    """Borrow connections from the relay to which *connect* connects, with the trusted certificates in *sources*.

    Without *loopback*, plain http connections to loopback are not borrowed: opening one takes less time than asking.
    A relay that does not respond for *reply_timeout* seconds is not used.
    """

    def __init__(
        self,
        connect: Connector,
        sources: tuple[tuple[str, str], ...],
        *,
        loopback: bool = False,
        reply_timeout: float = REPLY_TIMEOUT,
    ) -> None:
        self._connect = connect
        self._reply_timeout = reply_timeout
        self._loopback = loopback
        self._sources = sources
        self._returning: list[MessageSocket] = []

    def borrow(
        self, route: Route, authorization: str, wait: "Wait", trace: Callable[[str], None] | None, *, new: bool
    ) -> Connection | None:
        """Return an open connection, None if this process has to open one itself.

        It must be *new* for a request that may not be resent: the server may be about to close one that it has kept.
        Raises NetworkError or TimeoutExpired if the relay could not open one.
        """
        if not self._loopback and _is_instant(route):
            return None
        self._await_returns()
        with suppress(OSError, ProtocolError):
            if (sock := self._connect()) is not None:
                control = MessageSocket(sock)
                try:
                    return self._ask(control, route, authorization, wait, trace, new=new)
                except BaseException:
                    control.close()
                    raise
        return None

    def _ask(
        self,
        control: MessageSocket,
        route: Route,
        authorization: str,
        wait: "Wait",
        trace: Callable[[str], None] | None,
        *,
        new: bool,
    ) -> Connection | None:
        control.send(LoanRequest(route, _digest(authorization), self._sources, new).message())
        message = control.wait(within(self._reply_timeout))
        while message is not None and message["type"] == "phase":
            wait.phase = str(message.get("phase"))
            message = control.wait(wait.poll_interval)
        descriptor = control.take_descriptor()
        if message is None or message["type"] != "lent" or descriptor is None:
            control.close()
            if descriptor is not None:
                os.close(descriptor)
            if message is not None and message["type"] == "failed":
                raise failure(message)
            return None
        sock = socket.socket(fileno=descriptor)
        try:
            loan = Loan.of(message)
            connection = LentConnection(sock, route, control, loan, is_private=new and not authorization)
        except BaseException:
            sock.close()
            raise
        connection.return_control = self._returning.append
        if loan.trace and trace is not None:
            trace(loan.trace)
        return connection

    def close(self) -> None:
        """Wait for a short time until the relay can lend again what was returned."""
        self._await_returns()

    def _await_returns(self) -> None:
        left = within(self._reply_timeout)
        while self._returning:
            control = self._returning.pop()
            with suppress(OSError, ProtocolError):
                control.wait(left)
            control.close()


def lenders(connect: Connector) -> OpenLender:
    """Return what opens the lenders of clients that borrow from the relay to which *connect* connects."""

    def open_lender(ca_bundle: str | None, environ: Mapping[str, str]) -> RelayLender | None:
        if any(environ.get(name) for name in _RESOLVER_VARIABLES):
            return None
        paths = list(tls.configured_paths(ca_bundle, environ))
        if any(is_process_specific(path) for _, path in paths):
            return None
        return RelayLender(connect, tuple((setting, os.path.abspath(path)) for setting, path in paths))

    return open_lender


def relay_status(connect: Connector) -> dict[str, int] | None:
    """Return the counts of the relay, None if it does not respond.

    `kept` is the number of connections that it keeps now, `loans` of loans so far, `reused` of those of a connection
    that was kept, and `misses` of requests after which the borrower opened its connection itself.
    """
    with suppress(OSError, ProtocolError):
        if (sock := connect()) is not None:
            control = MessageSocket(sock)
            try:
                control.send({"type": "status"})
                message = control.wait(within(REPLY_TIMEOUT))
            finally:
                control.close()
            if message is not None and message.pop("type") == "status":
                return message
    return None


def _is_instant(route: Route) -> bool:
    """Return whether a connection for *route* needs neither TLS nor a round trip over a network."""
    host = route.proxy.host if route.proxy else route.host
    return route.scheme == "http" and (is_loopback(host) or host == "localhost")


def _digest(authorization: str) -> str:
    """Return a value that differs between credentials: their connections are not shared."""
    return hashlib.blake2b(authorization.encode(), digest_size=16).hexdigest() if authorization else ""

"""The relay: a process without tokens that owns open connections and lends each one to one borrower at a time.

Each loan has a thread. The relay reads neither requests nor responses; the borrower reports whether a response is
complete. A connection is kept for five seconds, for the same route, trusted certificates and credentials.
"""

import os
import selectors
import signal
import socket
import ssl
from threading import Lock, Thread, active_count, stack_size
from typing import NamedTuple

from xapi_cli.agent.relay.connection import RelayedConnection
from xapi_cli.errors import NetworkError, XapiError
from xapi_cli.http.connection import Connection, Route, Selector
from xapi_cli.http.dial import Dialer
from xapi_cli.http.pool import ConnectionPool
from xapi_cli.http.relay.messages import Loan, LoanEnd, LoanRequest, MessageSocket, ProtocolError, within
from xapi_cli.http.relay.prepared_tls import PreparedContexts, Sources, Stamp
from xapi_cli.http.timeouts import Timeouts, Wait
from xapi_cli.system import agent_socket, own_process

_MAX_CONNECTIONS = 64  # that are kept between two loans
_MAX_LOANS = 256  # further borrowers open connections themselves
_PRUNE_INTERVAL = 1.0  # seconds between two searches for expired connections
_REQUEST_TIMEOUT = 2.0  # seconds in which a borrower has to send its request
_DIAL_TIMEOUT = 600.0  # seconds; the borrower has its own timeout
_STACK = 512 * 1024  # bytes per thread
_FOREIGN_SETTINGS = ("SSL_CERT_FILE", "SSL_CERT_DIR", "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS")


def serve(listener: socket.socket, lifeline: int) -> None:
    """Lend connections to the peers that connect to *listener*, until *lifeline* reaches its end.

    Then loans in progress end as usual, and this function returns.
    """
    own_process.protect()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # after Ctrl-C in a terminal, the agent closes the lifeline
    for name in _FOREIGN_SETTINGS:  # the settings of a borrower are in its request
        os.environ.pop(name, None)
    stack_size(_STACK)
    relay = Relay()
    listener.setblocking(False)
    threads: list[Thread] = []
    with Selector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(lifeline, selectors.EVENT_READ)
        while lifeline not in (ready := [key.fileobj for key, _ in selector.select(_PRUNE_INTERVAL)]):
            if listener in ready:
                threads = [thread for thread in threads if thread.is_alive()]
                threads += _accept(listener, relay)
            relay.prune()
    listener.close()
    relay.close()
    for thread in threads:
        thread.join()


def _accept(listener: socket.socket, relay: "Relay") -> list[Thread]:
    """Start a thread for the next borrower, unless it disconnected, belongs to another user or exceeds the limit."""
    try:
        sock = agent_socket.accept(listener)
    except OSError:
        return []
    if sock is None:
        return []
    if active_count() > _MAX_LOANS:
        sock.close()
        return []
    thread = Thread(target=relay.handle, args=(MessageSocket(sock),), daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no more threads
        sock.close()
        return []
    return [thread]


class Key(NamedTuple):
    """What two calls must have in common to use the same connection.

    *route* contains the proxy and its credentials; *sources* and *stamp* are the trusted certificates, *account* is a
    digest of the credentials, "" while none have been sent over the connection.
    """

    route: Route
    sources: Sources
    stamp: Stamp
    account: str


class Relay:
    """The connections of the relay, and its counts; its methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._contexts = PreparedContexts()
        self._kept: ConnectionPool[Key] = ConnectionPool(limit=_MAX_CONNECTIONS)
        self._counts = {"loans": 0, "reused": 0, "misses": 0}

    def handle(self, control: MessageSocket) -> None:
        """Serve the borrower at *control* until its loan ends."""
        try:
            if (message := control.wait(within(_REQUEST_TIMEOUT))) is None:
                return
            if message["type"] == "status":
                control.send({"type": "status", **self.status()})
            elif message["type"] == "lend":
                self._serve(LoanRequest.of(message), control)
        except (OSError, ProtocolError, _BorrowerLeft):
            pass  # the borrower notices the end, and opens a connection or reports a failure
        finally:
            control.close()

    def status(self) -> dict[str, int]:
        """Return the number of connections kept, of loans so far, of those reused, and of requests without a loan."""
        with self._lock:
            return {"kept": len(self._kept), **self._counts}

    def prune(self) -> None:
        """Close the connections that have been idle for too long."""
        self._kept.close_expired()

    def close(self) -> None:
        """Close the connections that are not lent, and keep no more."""
        self._kept.close(aborts=False)

    def _serve(self, request: LoanRequest, control: MessageSocket) -> None:
        trace = ""
        try:
            stamp, context = self._contexts.get(request.sources) if request.route.scheme == "https" else ((), None)
            key = Key(request.route, request.sources, stamp, request.account)
            connection = None if request.new else self._kept_for(key)
            if connection is None:
                connection, trace = _dial(request.route, context, control)
        except NetworkError as error:
            control.send({"type": "failed", "message": error.message, "hint": error.hint})
        except (XapiError, OSError):  # the borrower tries itself, and reports the error
            self._count("misses")
            control.send({"type": "miss"})
        else:
            self._lend(connection, key, control, trace)

    def _kept_for(self, key: Key) -> Connection | None:
        return self._kept.acquire(key) or self._kept.acquire(key._replace(account=""))

    def _lend(self, connection: Connection, key: Key, control: MessageSocket, trace: str) -> None:
        """Lend *connection* until the borrower ends the loan, and keep or close it then."""
        self._count("loans", *(["reused"] if connection.kind else []))
        is_kept = False
        try:
            is_kept = _serve_loan(connection, control, trace)
        finally:
            if is_kept:
                self._kept.release(key, connection)
            else:
                self._kept.discard(connection)

    def _count(self, *names: str) -> None:
        with self._lock:
            for name in names:
                self._counts[name] += 1


class _BorrowerLeft(Exception):
    """The borrower has closed its connection to the relay."""


class _LoanWait(Wait):
    """A wait that reports each phase to the borrower, whose own limit applies, and that ends when it has left."""

    def __init__(self, control: MessageSocket) -> None:
        super().__init__(Timeouts(), _DIAL_TIMEOUT, lambda: "no connection")
        self._control = control
        self._reported = ""

    def poll_interval(self) -> float:
        """Return the seconds for the next system call; raises _BorrowerLeft if the borrower no longer waits."""
        if self._control.receive() is not None or self._control.has_ended:
            raise _BorrowerLeft
        if self.phase != self._reported:
            self._reported = self.phase
            self._control.send({"type": "phase", "phase": self.phase})
        return super().poll_interval()


def _dial(route: Route, context: ssl.SSLContext | None, control: MessageSocket) -> tuple[Connection, str]:
    """Return a new connection, and the line about it; raises NetworkError, TimeoutExpired or _BorrowerLeft."""
    lines: list[str] = []

    def prepared() -> ssl.SSLContext:
        assert context is not None  # noqa: S101 - the caller prepares it for each https route
        return context

    control.send({"type": "phase", "phase": ""})
    connection = Dialer(prepared, lines.append).open(route, _LoanWait(control))
    return connection, lines[-1]


def must_relay(route: Route) -> bool:
    """Return whether the relay passes the bytes on; over plain http, the borrower gets the TCP socket itself."""
    return route.scheme == "https"


def _serve_loan(connection: Connection, control: MessageSocket, trace: str) -> bool:
    """Lend *connection* until the borrower ends the loan; return whether it can be lent again."""
    kind, is_relayed, has_surplus = connection.kind, must_relay(connection.route), False
    message = Loan(connection.tls, kind and kind[1:], is_relayed, connection.peer, trace).message()
    if not is_relayed:
        control.send(message, connection.fileno())
        end = LoanEnd.of(control.wait())
        is_complete = True
    else:
        relayed = RelayedConnection(connection, control)
        try:
            control.send(message, relayed.borrowed.fileno())
            relayed.borrowed.close()
            end = LoanEnd.of(relayed.run())
        finally:
            relayed.close()
        is_complete, has_surplus = relayed.is_complete(end), relayed.has_surplus(end)
    if end.has_surplus or (end.kind is not None and has_surplus):
        connection.has_surplus = True
    if end.kind is None or not is_complete:
        return False
    connection.end_response(*end.kind)
    return True

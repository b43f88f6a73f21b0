"""Open connections: DNS lookup, TCP connection, proxy tunnel and TLS handshake, all within one timeout."""

import errno
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Self

import h11

from xapi_cli.errors import NetworkError
from xapi_cli.http.connection import Connection, Route, Selector
from xapi_cli.http.error_text import explained
from xapi_cli.http.http1 import Incoming
from xapi_cli.http.resolver import Address, Resolver
from xapi_cli.http.response_parser import new_protocol

if TYPE_CHECKING:
    import ssl

    from xapi_cli.http.proxies import Proxy
    from xapi_cli.http.timeouts import Limit

_HEAD_START = 0.25  # seconds between connection attempts (RFC 8305, 5)
_MOST_ADDRESSES = 20
_UNDER_WAY = {0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN}


class Dialer:
    """Open connections.

    *tls* returns the TLS context. *trace* is called with a line about each
    connection.
    """

    def __init__(self, tls: "Callable[[], ssl.SSLContext]", trace: Callable[[str], None]) -> None:
        self._tls = tls
        self._trace = trace
        self._names = Resolver()

    def open(self, route: Route, limit: "Limit") -> Connection:
        """Return a connection that is ready for a request to the server.

        Exceptions of *tls* are raised before any data is sent. Raises NetworkError
        if the connection fails.
        """
        context = self._tls() if route.scheme == "https" else None
        sock = self._reach(route, limit)
        connection = Connection(sock, route)
        address = connection.peer
        try:
            if context is not None:
                self._secure(connection, context, limit)
        except BaseException:
            connection.close()
            raise
        self._trace(f"* connected to {route} ({', '.join(filter(None, (address, connection.tls)))})")
        return connection

    def _reach(self, route: Route, limit: "Limit") -> socket.socket:
        """Return a socket that is connected to the server, or to the proxy if there is one."""
        host, port = (route.proxy.host, route.proxy.port) if route.proxy else (route.host, route.port)
        try:
            limit.phase = "name look-up"
            addresses = self._names.addresses(host, port, limit)
            limit.phase = "TCP"
            with _Race(addresses[:_MOST_ADDRESSES]) as race:
                return race.winner(limit)
        except OSError as error:
            raise _unreachable(route, error) from error

    def _secure(self, connection: Connection, context: "ssl.SSLContext", limit: "Limit") -> None:
        """Open a tunnel through the proxy, if there is one, and perform the TLS handshake."""
        if connection.route.proxy:
            limit.phase = "proxy"
            _tunnel(connection, connection.route.proxy, limit)
        limit.phase = "TLS handshake"
        try:
            connection.start_tls(context, connection.route.host, limit)
        except OSError as error:
            reason, hint = explained(error)
            raise NetworkError(f"no TLS connection to {connection.route}: {reason}", hint=hint) from error
        except ValueError as error:
            flaw = "its host is no name for a certificate"
            raise NetworkError(f"no TLS connection to {connection.route}: {flaw}") from error


class _Race:
    """Connect to the *addresses* of one server in parallel, started 250 ms apart (RFC 8305, 5).

    An unreachable address therefore delays the connection by at most 250 ms.
    """

    def __init__(self, addresses: Iterable[Address]) -> None:
        self._waiting = deque(addresses)
        self._running = Selector()
        self._next_start = 0.0
        self._failure: OSError = socket.gaierror(socket.EAI_NONAME, "no address")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self._sockets():
            sock.close()
        self._running.close()

    def winner(self, limit: "Limit") -> socket.socket:
        """Return the first connected socket; raises OSError if all addresses fail."""
        while self._waiting or self._sockets():
            pause = limit.pause()
            is_alone = not self._sockets()
            wait = self._next_start - time.monotonic()
            if self._waiting and (is_alone or wait <= 0):
                self._start(*self._waiting.popleft())
            elif (sock := self._arrival(min(pause, wait) if self._waiting else pause)) is not None:
                return sock
        raise self._failure

    def _sockets(self) -> list[socket.socket]:
        return [key.data for key in self._running.get_map().values()]

    def _start(self, family: int, address: object) -> None:
        self._next_start = time.monotonic() + _HEAD_START
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._failure = error
            return
        sock.setblocking(False)
        code = sock.connect_ex(address)  # type: ignore[arg-type]  # an address from getaddrinfo() for this family
        if code in _UNDER_WAY:
            self._running.register(sock, selectors.EVENT_WRITE, data=sock)
        else:
            self._fail(sock, code)

    def _arrival(self, seconds: float) -> socket.socket | None:
        """Wait at most *seconds*; return a socket that is now connected, or None."""
        for key, _ in self._running.select(seconds):
            sock: socket.socket = key.data
            self._running.unregister(sock)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code == 0:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return sock
            self._fail(sock, code)
        return None

    def _fail(self, sock: socket.socket, code: int) -> None:
        import os

        sock.close()
        self._failure = OSError(code, os.strerror(code))


def _tunnel(connection: Connection, proxy: "Proxy", limit: "Limit") -> None:
    """Open a tunnel to the server with CONNECT (RFC 9110, 9.3.6); *proxy* gets no headers of the request."""
    target = connection.route.server.encode("ascii")
    headers = [(b"Host", target)]
    if proxy.authorization:
        headers.append((b"Proxy-Authorization", proxy.authorization))
    protocol = new_protocol()
    incoming = Incoming(protocol, connection, f"the proxy {proxy}")
    try:
        connection.send(protocol.send(h11.Request(method="CONNECT", target=target, headers=headers)), limit)
    except OSError as error:
        raise _unreachable(connection.route, error) from error
    head = incoming.wait_for_head(limit)
    if not 200 <= head.status_code < 300:
        raise refused_by_proxy(proxy, head.status_code)
    if protocol.trailing_data[0]:
        raise NetworkError(f"the proxy {proxy} sends data before TLS has begun", hint=_check(proxy))


def refused_by_proxy(proxy: "Proxy", status: int) -> NetworkError:
    """Return the error for a *status* with which *proxy* itself refuses the request."""
    if status != 407:
        return NetworkError(f"the proxy {proxy} refuses to connect to the server (status {status})", hint=_check(proxy))
    what = "another" if proxy.authorization else "a"
    hint = f"put them into {proxy.variable}, like http://USER:PASSWORD@{proxy}"
    return NetworkError(f"the proxy {proxy} wants {what} username and password (status 407)", hint=hint)


def _check(proxy: "Proxy") -> str:
    return f"check {proxy.variable}, or name the server in NO_PROXY"


def _unreachable(route: Route, error: OSError) -> NetworkError:
    reason, hint = explained(error)
    if route.proxy:
        return NetworkError(f"no connection to the proxy {route.proxy}: {reason}", hint=_check(route.proxy))
    return NetworkError(f"no connection to {route}: {reason}", hint=hint)

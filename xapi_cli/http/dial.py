"""Open connections: DNS lookup, TCP connection, proxy tunnel and TLS handshake, all within one timeout.

A name can have many addresses, of which some cannot be reached, and an attempt to connect takes minutes to fail. So the
attempts overlap: one begins when the previous one has failed, or has taken 250 ms, and the first that succeeds is used
(RFC 8305). A timeout names the phase in which it expired, because each has another remedy.
"""

import errno
import os
import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain, zip_longest
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

import h11

from xapi_cli.errors import NetworkError
from xapi_cli.http.connection import Connection, Route, Selector
from xapi_cli.http.error_text import describe_error
from xapi_cli.http.responses import ResponseParser

if TYPE_CHECKING:
    from xapi_cli.http.proxies import Proxy
    from xapi_cli.http.timeouts import Wait

_ATTEMPT_DELAY = 0.25  # seconds between connection attempts (RFC 8305, 5)
_IN_PROGRESS = {0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN}
_TCP = socket.SOCK_STREAM

Address = tuple[int, Any]  # the family and the argument of connect()


class Dialer:
    """Open connections; thread-safe.

    *tls* returns the TLS context; it is called once, for the first https connection. *trace* is called with a line
    about each connection.
    """

    def __init__(self, tls: Callable[[], ssl.SSLContext], trace: Callable[[str], None] | None = None) -> None:
        self._create_context = tls
        self._trace = trace
        self._lock = Lock()
        self._context: ssl.SSLContext | None = None

    def open(self, route: Route, wait: "Wait") -> Connection:
        """Return a connection that is ready for a request to the server.

        Exceptions of *tls* are raised before any data is sent. Raises NetworkError
        if the connection fails.
        """
        if route.scheme != "https":
            return self._open(route, None, wait)
        context = self._tls()
        try:
            return self._open(route, context, wait)
        except NetworkError as error:
            from xapi_cli.http import tls

            complete = tls.complete(context, error.__cause__)
            if complete is None:
                raise
        with self._lock:
            self._context = complete
        return self._open(route, complete, wait)

    def _open(self, route: Route, context: ssl.SSLContext | None, wait: "Wait") -> Connection:
        sock = self._connect(route, wait)
        connection = Connection(sock, route)
        try:
            if context is not None:
                self._start_tls(connection, context, wait)
        except BaseException:
            connection.close()
            raise
        if self._trace is not None:
            self._trace(f"* connected to {route}" + (f" ({connection.tls})" if connection.tls else ""))
        return connection

    def _tls(self) -> ssl.SSLContext:
        with self._lock:
            if self._context is None:
                self._context = self._create_context()
            return self._context

    def _connect(self, route: Route, wait: "Wait") -> socket.socket:
        """Return a socket that is connected to the server, or to the proxy if there is one."""
        host, port = (route.proxy.host, route.proxy.port) if route.proxy else (route.host, route.port)
        try:
            wait.phase = "name resolution"
            addresses = _addresses(host, port, wait)
            wait.phase = "TCP"
            return _first_connected(addresses, wait)
        except OSError as error:
            raise _unreachable(route, error) from error

    def _start_tls(self, connection: Connection, context: ssl.SSLContext, wait: "Wait") -> None:
        """Open a tunnel through the proxy, if there is one, and perform the TLS handshake."""
        if connection.route.proxy:
            wait.phase = "proxy"
            _tunnel(connection, connection.route.proxy, wait)
        wait.phase = "TLS handshake"
        try:
            connection.start_tls(context, connection.route.host, wait)
        except OSError as error:
            reason, hint = describe_error(error)
            raise NetworkError(f"no TLS connection to {connection.route}: {reason}", hint=hint) from error


def _addresses(host: str, port: int, wait: "Wait") -> list[Address]:
    """Return the addresses of *host* in the order in which to try them.

    The lookup runs in a daemon thread, so that one that hangs does not prevent the process from exiting. Raises OSError
    if it fails, TimeoutExpired when *wait* has expired.
    """
    found: list[Address] = []
    failures: list[OSError] = []
    done = Event()

    def run() -> None:
        try:
            # Bytes, because with str the socket module loads the idna codec, which takes 4 ms.
            found.extend(_interleaved(socket.getaddrinfo(host.encode("ascii"), port, type=_TCP)))
        except OSError as error:
            failures.append(error)
        finally:
            done.set()

    Thread(target=run, name=f"lookup of {host}", daemon=True).start()
    while not done.is_set():
        done.wait(wait.poll_interval())
    if failures:
        raise failures[0]
    return found


def _interleaved(infos: list[tuple[Any, ...]]) -> list[Address]:
    """Return the addresses with IPv4 and IPv6 interleaved (RFC 8305, 4), because one family may be unreachable."""
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in infos))
    first = [entry for entry in addresses if entry[0] == addresses[0][0]]
    others = [entry for entry in addresses if entry[0] != addresses[0][0]]
    return [entry for entry in chain.from_iterable(zip_longest(first, others)) if entry]


def _first_connected(addresses: Iterable[Address], wait: "Wait") -> socket.socket:
    """Return the first socket that connects to one of *addresses*, and close the others.

    Raises OSError if all fail, and TimeoutExpired. The attempts start 250 ms apart (RFC 8305, 5), so an unreachable
    address delays the connection by at most 250 ms.
    """
    waiting, next_start = deque(addresses), 0.0
    error: OSError = socket.gaierror(socket.EAI_NONAME, "no address")
    with Selector() as running:
        try:
            while waiting or running.get_map():
                timeout = wait.poll_interval()
                delay = next_start - time.monotonic() if running.get_map() else 0.0
                if waiting and delay <= 0:
                    next_start = time.monotonic() + _ATTEMPT_DELAY
                    try:
                        sock = _connecting(*waiting.popleft())
                    except OSError as failure:
                        error = failure
                    else:
                        running.register(sock, selectors.EVENT_WRITE, data=sock)
                    continue
                for key, _ in running.select(min(timeout, delay) if waiting else timeout):
                    running.unregister(key.data)
                    if not (code := key.data.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
                        connected: socket.socket = key.data
                        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        return connected
                    key.data.close()
                    error = OSError(code, os.strerror(code))
            raise error
        finally:
            for key in running.get_map().values():
                key.data.close()


def _connecting(family: int, address: Any) -> socket.socket:
    """Return a socket that is being connected to *address*; raises OSError if that fails at once."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    if (code := sock.connect_ex(address)) not in _IN_PROGRESS:
        sock.close()
        raise OSError(code, os.strerror(code))
    return sock


def _tunnel(connection: Connection, proxy: "Proxy", wait: "Wait") -> None:
    """Open a tunnel to the server with CONNECT (RFC 9110, 9.3.6); *proxy* gets no headers of the request."""
    target = connection.route.server.encode("ascii")
    headers = [(b"Host", target)]
    if proxy.authorization:
        headers.append((b"Proxy-Authorization", proxy.authorization))
    request = h11.Request(method="CONNECT", target=target, headers=headers)
    parser = ResponseParser(request, f"the proxy {proxy}", over_tls=False)
    try:
        connection.send_now(memoryview(parser.request_head))  # all of it: the connection is new
        while (head := parser.head) is None:
            if data := connection.receive_now():
                parser.receive(data)
            elif data is None:
                connection.wait(wait, receiving=True)
            else:
                parser.close()
    except OSError as error:
        raise _unreachable(connection.route, error) from error
    except NetworkError as error:
        error.hint = proxy.hint
        raise
    if not 200 <= head.status < 300:
        raise proxy.refusal(head)
    if parser.has_surplus:
        raise NetworkError(f"the proxy {proxy} sent data before the TLS handshake", hint=proxy.hint)


def _unreachable(route: Route, error: OSError) -> NetworkError:
    reason, hint = describe_error(error)
    if route.proxy:
        return NetworkError(f"no connection to the proxy {route.proxy}: {reason}", hint=route.proxy.hint)
    return NetworkError(f"no connection to {route}: {reason}", hint=hint)

"""Send and receive bytes over one connection, with a timeout for each wait.

The socket is non-blocking. `Connection.wait` performs all waits and enforces
the timeout. While a request is sent, the sender can check for an early response.
"""

import errno
import selectors
import socket
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.http import urls

if TYPE_CHECKING:
    from xapi_cli.http.proxies import Proxy
    from xapi_cli.http.timeouts import Wait

BLOCK = 64 * 1024
_RECEIVED = 16 * 1024  # bytes; a batch with many threads needs a third less memory than with 64 KiB
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

# Neither uses a descriptor itself. select(), which accepts only low descriptors, is for Windows.
Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Route(NamedTuple):
    """The server of a request, and the proxy on the way to it."""

    scheme: str
    host: str
    port: int
    proxy: "Proxy | None" = None

    @property
    def server(self) -> str:
        """Return host and port in the form for messages."""
        return urls.with_port(self.host, self.port)

    @property
    def is_forwarded(self) -> bool:
        """Whether each request goes to a proxy, with a complete URL; a proxy for https only opens a tunnel."""
        return self.proxy is not None and self.scheme == "http"

    def __str__(self) -> str:
        return f"{self.server} through the proxy {self.proxy}" if self.proxy else self.server


# The kind of a response. Some servers send surplus bytes only after certain methods and statuses.
ResponseKind = tuple[Route, str, int]


class Connection:
    """A connection for *route* over the connected socket *sock*."""

    def __init__(self, sock: socket.socket, route: Route) -> None:
        sock.setblocking(False)
        self.route = route
        self.tls: str | None = None
        self.kind: ResponseKind | None = None  # of the last response, None for an unused connection
        self.idle_since = time.monotonic()
        self.keep_alive = b""  # the header of the last response
        self.has_surplus = False  # bytes arrived that belong to no response
        self._socket = sock
        self._receive_events = _READ  # TLS may have to write before it can read, and vice versa
        self._send_events = _WRITE
        self._is_aborted = False
        self._reset: ConnectionResetError | None = None  # raised by sending; the system reports it only once

    def start_tls(self, context: ssl.SSLContext, host: str, wait: "Wait") -> None:
        """Start TLS and verify that the server is *host*; raises OSError if the handshake fails."""
        tls_socket = context.wrap_socket(
            self._socket,
            server_hostname=host.rstrip(".").encode("ascii"),  # bytes, because str costs loading the idna codec
            do_handshake_on_connect=False,
            suppress_ragged_eofs=False,
        )
        self._socket = tls_socket
        while True:
            try:
                tls_socket.do_handshake()
                break
            except _WOULD_BLOCK as error:
                self._record_event(error, receiving=True)
            self.wait(wait, receiving=True)
        self.tls = tls_socket.version()

    def receive_now(self) -> bytes | None:
        """Return data without waiting; None if none has arrived, b"" if the peer closed the connection.

        Call it until it returns None before `wait`, which does not report what remains of a TLS record. Raises
        ConnectionResetError after the last data if the peer reset the connection, even if sending has reported it.
        """
        try:
            data = self._socket.recv(_RECEIVED)
        except _WOULD_BLOCK as error:
            self._record_event(error, receiving=True)
            return None
        except OSError:
            if self._reset:
                raise self._reset from None
            raise
        if self._is_aborted:  # abort() shuts the socket down, so recv() returns b"" as if the peer had closed
            raise ConnectionAbortedError(errno.ECONNABORTED, "connection aborted")
        if not data and self._reset:  # what has arrived may be incomplete
            raise self._reset
        return data

    def send_now(self, data: memoryview) -> int:
        """Send as much of *data* as possible without waiting, and return the number of bytes sent."""
        try:
            return self._socket.send(data[:BLOCK])
        except _WOULD_BLOCK as error:
            self._record_event(error, receiving=False)
            return 0
        except ConnectionResetError as error:
            self._reset = error
            raise

    def wait(
        self, wait: "Wait", *, receiving: bool = False, sending: bool = False, beside: socket.socket | None = None
    ) -> bool:
        """Wait for a short time or until a retry may succeed; raises TimeoutExpired when *wait* has expired.

        Also wait for data on the socket *beside*, and return whether some has arrived.
        """
        timeout = wait.poll_interval()
        with Selector() as selector:
            events = (self._receive_events if receiving else 0) | (self._send_events if sending else 0)
            selector.register(self._socket, events)
            if beside is not None:
                selector.register(beside, _READ)
            return any(key.fileobj is beside for key, _ in selector.select(timeout))

    def end_response(self, method: str, status: int, *, keep_alive: bytes, has_surplus: bool) -> None:
        """Mark the connection as idle: the response to *method*, with *status*, is complete.

        *keep_alive* is its header Keep-Alive. With *has_surplus*, more bytes arrived after it.
        """
        self.kind, self.keep_alive = (self.route, method, status), keep_alive
        self.idle_since = time.monotonic()
        self.has_surplus = self.has_surplus or has_surplus

    def is_idle(self) -> bool:
        """Return whether the connection is open and no data has arrived, apart from TLS protocol messages.

        Data that has arrived is discarded.
        """
        try:
            data = self._socket.recv(1)
        except BlockingIOError:
            return True
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            self._record_event(error, receiving=True)
            return True
        except OSError:
            return False
        if data and self.kind is not None:
            self.has_surplus = True
        return False

    def stays_idle(self, seconds: float) -> bool:
        """Return whether the connection stays open and no data arrives for *seconds*."""
        end = time.monotonic() + seconds
        while (is_idle := self.is_idle()) and (left := end - time.monotonic()) > 0:
            with Selector() as selector:
                selector.register(self._socket, _READ)
                selector.select(left)
        return is_idle

    def abort(self) -> None:
        """Make operations of other threads on the connection fail immediately."""
        self._is_aborted = True
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # the method of the TLS socket would disable TLS

    def close(self) -> None:
        """Close the socket; a second call is without effect."""
        with suppress(OSError):
            self._socket.close()

    def _record_event(self, error: OSError, *, receiving: bool) -> None:
        """Record the event to wait for before the call that raised *error* can be retried."""
        if receiving:
            self._receive_events = _WRITE if isinstance(error, ssl.SSLWantWriteError) else _READ
        else:
            self._send_events = _READ if isinstance(error, ssl.SSLWantReadError) else _WRITE

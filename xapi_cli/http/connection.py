"""Move bytes over one connection, never waiting longer than a limit allows.

The socket never blocks: every wait goes through one place, which knows how long
it may last, and who sends can look whether an answer has come already.
"""

import errno
import re
import selectors
import socket
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.system import forks

if TYPE_CHECKING:
    from xapi_cli.http.proxies import Proxy
    from xapi_cli.http.timeouts import Limit

BLOCK = 64 * 1024
_AGAIN = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_LOOPBACK_IPV4 = re.compile(r"(::ffff:)?127(\.\d{1,3}){3}")
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

# Neither needs a descriptor of its own; select(), which is limited to low ones, is for Windows.
Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Route(NamedTuple):
    """Say which server a request goes to, and by way of which proxy."""

    scheme: str
    host: str
    port: int
    proxy: "Proxy | None" = None

    @property
    def server(self) -> str:
        """Return host and port as messages name them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.server} through the proxy {self.proxy}" if self.proxy else self.server


def is_loopback(address: str) -> bool:
    """Tell whether *address*, written as the system writes it, stays on this machine; no name does."""
    return address == "::1" or _LOOPBACK_IPV4.fullmatch(address) is not None


# Of a response: servers that send a surplus may do so after one method and status only.
Kind = tuple[Route, str, int]


class Connection:
    """One connection for *route*, over *sock*, which is connected."""

    def __init__(self, sock: socket.socket, route: Route) -> None:
        sock.setblocking(False)
        self.route = route
        self.tls: str | None = None
        self.kind: Kind | None = None  # of the last response, None before the first
        self.idle_since = time.monotonic()
        self.has_surplus = False  # bytes came that no request had asked for
        self._socket = sock
        self._receives_when = _READ  # TLS may have to write before it can read, and the other way round
        self._sends_when = _WRITE
        self._is_aborted = False
        forks.watch(self)

    @property
    def peer(self) -> str:
        """Return the address that is connected to, "" if the other end has gone."""
        with suppress(OSError):
            return str(self._socket.getpeername()[0])
        return ""

    @property
    def is_exposed(self) -> bool:
        """Tell whether others can read what is sent: it is plain http, and not known to stay on loopback.

        The address that is connected to decides, not the name. Where a proxy
        connects to is unknown, unless the server is given by its address.
        """
        if self.route.scheme == "https":
            return False
        return not (is_loopback(self.peer) and (self.route.proxy is None or is_loopback(self.route.host)))

    def start_tls(self, context: ssl.SSLContext, host: str, limit: "Limit") -> None:
        """Speak TLS from now on, with the server that is named *host*; OSError or ValueError when that fails."""
        secured = context.wrap_socket(
            self._socket,
            server_hostname=host.rstrip(".").encode("ascii"),  # bytes, because str costs loading the idna codec
            do_handshake_on_connect=False,
            suppress_ragged_eofs=False,
        )
        self._socket = secured
        while True:
            try:
                secured.do_handshake()
                break
            except _AGAIN as wish:
                self._note(wish, receiving=True)
            self.wait(limit, receiving=True)
        self.tls = secured.version()

    def receive(self, limit: "Limit", size: int = BLOCK) -> bytes:
        """Return the next bytes, at most *size*, as soon as there are any; none at all when the other end closed."""
        while (data := self.receive_now(size)) is None:
            self.wait(limit, receiving=True)
        return data

    def receive_now(self, size: int = BLOCK) -> bytes | None:
        """Return bytes that are there already, or None; none at all, but not None, when the other end closed."""
        try:
            data = self._socket.recv(size)
        except _AGAIN as wish:
            self._note(wish, receiving=True)
            return None
        if self._is_aborted:  # which looks as if the other end had closed
            raise ConnectionAbortedError(errno.ECONNABORTED, "aborted")
        return data

    def send(self, data: bytes, limit: "Limit") -> None:
        """Send all of *data*."""
        view = memoryview(data)
        while view:
            count = self.send_now(view)
            view = view[count:]
            if not count:
                self.wait(limit, sending=True)

    def send_now(self, data: memoryview) -> int:
        """Send as much of *data* as goes without waiting, and return how much that was."""
        try:
            return self._socket.send(data[:BLOCK])
        except _AGAIN as wish:
            self._note(wish, receiving=False)
            return 0

    def wait(self, limit: "Limit", *, receiving: bool = False, sending: bool = False) -> None:
        """Wait a while until trying again may help; TimeoutExpired when *limit* has passed."""
        pause = limit.pause()
        with Selector() as selector:
            selector.register(self._socket, self.events(receiving=receiving, sending=sending))
            selector.select(pause)

    def events(self, *, receiving: bool = False, sending: bool = False) -> int:
        """Return the events of `selectors` after which trying again may help."""
        return (self._receives_when if receiving else 0) | (self._sends_when if sending else 0)

    def fileno(self) -> int:
        """Return the descriptor, for who waits for many connections at once."""
        return self._socket.fileno()

    @property
    def is_used(self) -> bool:
        """Tell whether the connection has carried a request and its response."""
        return self.kind is not None

    def rest(self, method: str, status: int) -> None:
        """Begin to be idle: the response to *method* is complete."""
        self.kind = self.route, method, status
        self.idle_since = time.monotonic()

    def is_silent(self) -> bool:
        """Tell whether the connection is open and nothing has come, not counting what TLS alone understands.

        What has come is lost.
        """
        try:
            data = self._socket.recv(1)
        except _AGAIN as wish:
            self._note(wish, receiving=True)
            return True
        except (OSError, ValueError):
            return False
        if data and self.kind is not None:
            self.has_surplus = True
        return False

    def stays_silent(self, seconds: float) -> bool:
        """Tell whether the connection is open and nothing comes for so many *seconds*."""
        end = time.monotonic() + seconds
        while (is_silent := self.is_silent()) and (left := end - time.monotonic()) > 0:
            with Selector() as selector:
                selector.register(self._socket, _READ)
                selector.select(left)
        return is_silent

    def abort(self) -> None:
        """Let whatever another thread does with the connection fail at once."""
        self._is_aborted = True
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # not the TLS socket's own, which would disarm it

    def close(self) -> None:
        """Give the socket back; more than once does no harm."""
        with suppress(OSError):
            self._socket.close()

    def after_fork(self) -> None:
        """Leave the connection to the parent process: close the descriptor alone, without a word to the server."""
        self.close()

    def _note(self, wish: OSError, *, receiving: bool) -> None:
        """Remember what has to become possible before the call that raised *wish* can go on."""
        if receiving:
            self._receives_when = _WRITE if isinstance(wish, ssl.SSLWantWriteError) else _READ
        else:
            self._sends_when = _READ if isinstance(wish, ssl.SSLWantReadError) else _WRITE

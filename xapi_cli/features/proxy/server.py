"""Forward the requests of many clients, each connection in a thread of its own.

A thread reads a request, calls `send` as `xapi request` does, and passes the response on as it arrives. A client that
does not read, or an API that does not, delays only its own thread; bodies of any size take constant memory. While
the API has not responded completely, the transport also watches the socket of the client, and ends the call if the
client leaves. As nginx does, it takes a client that closes only its direction of the connection for one that leaves.

At most `_MAX_CLIENTS` connections are open. If all are, one that is idle is closed for the next client; if none is,
clients wait in the backlog of the system.
"""

import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.errors import NetworkError, TimeoutExpired, XapiError, unexpected
from xapi_cli.features.proxy import headers
from xapi_cli.features.proxy.incoming import ClientLeft, Input, Refusal, RequestHead, Upload
from xapi_cli.features.proxy.rules import Rules
from xapi_cli.http.header_syntax import LAST_CHUNK, Header, chunk
from xapi_cli.http.retry import IDEMPOTENT
from xapi_cli.http.send import Call

if TYPE_CHECKING:
    from xapi_cli.http.messages import Response

_MAX_CLIENTS = 256
_LINGER = 2.0  # seconds in which a client may read a response before it has sent the rest of its request
_MAX_LINGER = 16 * 2**20  # bytes of that rest
_RESET = struct.pack("=HH" if sys.platform == "win32" else "=ii", 1, 0)  # when the socket is closed, for SO_LINGER


class Forwarding(NamedTuple):
    """What all connections share.

    *send* sends a call with a current token, and returns its final response. *headers* are those of the profile, which
    are added to each request. *timeout*, in seconds, limits the time for the headers of a request. *explain* returns
    the text of a failure for the client, without secrets; *warn* prints a warning.
    """

    rules: Rules
    send: "Callable[[Call], Response]"
    headers: Sequence[Header]
    timeout: float
    explain: Callable[[XapiError], str]
    warn: Callable[[str], None]


class Server:
    """Serve the connections of clients until `close`."""

    def __init__(self, forwarding: Forwarding) -> None:
        self._forwarding = forwarding
        self._listeners: list[socket.socket] = []
        self._connections: set[_Connection] = set()
        self._changed = threading.Condition()
        self._is_closing = False

    def listen(self, listener: socket.socket, port: int | None) -> None:
        """Accept clients from *listener*; *port* is its TCP port, None for a Unix socket, on which no key is needed."""
        self._listeners.append(listener)
        threading.Thread(target=self._accept, args=(listener, port), name="xapi-proxy", daemon=True).start()

    def close(self, grace: float = 0.0) -> None:
        """Accept no more clients, and close all connections, those with a call in flight after *grace* seconds."""
        expires = time.monotonic() + grace
        with self._changed:
            self._is_closing = True
            for listener in self._listeners:
                with suppress(OSError):
                    listener.shutdown(socket.SHUT_RDWR)  # ends accept()
                listener.close()
            for connection in self._connections:
                if connection.is_idle:
                    connection.abort()
            self._changed.wait_for(lambda: not self._connections, max(0.0, expires - time.monotonic()))
            for connection in self._connections:
                connection.abort()

    def _accept(self, listener: socket.socket, port: int | None) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                if self._is_closing:
                    return
                time.sleep(0.1)  # perhaps no descriptor is left
                continue
            with self._changed:
                while len(self._connections) >= _MAX_CLIENTS and not self._is_closing:
                    idle = next((each for each in self._connections if each.is_idle), None)
                    if idle is not None:
                        idle.abort()
                    self._changed.wait(0.2)
                connection = _Connection(client, port, self._forwarding)
                self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), name="xapi-client", daemon=True).start()

    def _serve(self, connection: "_Connection") -> None:
        try:
            while not self._is_closing and connection.serve_request():
                pass
        except (OSError, ClientLeft):
            pass  # the client has left, or the proxy ends
        finally:
            with self._changed:
                self._connections.discard(connection)
                self._changed.notify_all()
            connection.close()


class _Connection:
    """The connection of a client over *sock*, accepted on TCP *port*, None on a Unix socket."""

    def __init__(self, sock: socket.socket, port: int | None, forwarding: Forwarding) -> None:
        if port is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self._port, self._forwarding = sock, port, forwarding
        self._input = Input(sock, forwarding.timeout)
        self._has_call = False

    @property
    def is_idle(self) -> bool:
        """Whether it waits for the client's next request."""
        return not self._has_call and not self._input.buffer

    def abort(self) -> None:
        """End the connection from another thread."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def serve_request(self) -> bool:
        """Serve the next request; return whether another one may follow."""
        try:
            head = self._input.head()
        except Refusal as refusal:
            return self._refuse(refusal)
        if head is None:
            return False
        self._has_call = True
        try:
            return self._forward(head)
        finally:
            self._has_call = False

    def _forward(self, head: RequestHead) -> bool:
        upload = None if head.length == 0 else Upload(self._input, head.length)
        try:
            url = self._forwarding.rules.url_of(head, port=self._port)
            added = headers.forwarded(head, self._forwarding.headers)
            call = Call(head.method, url, added, upload, beside=(self._socket, self._check_client))
            response = self._forwarding.send(call)
        except Refusal as refusal:
            return self._refuse(refusal, head)
        except XapiError as error:
            return self._fail(error, head)
        except (OSError, ClientLeft):
            raise
        except Exception as error:  # noqa: BLE001 - a bug ends one call, not the proxy
            return self._fail(unexpected(error), head)
        finally:
            if upload is not None:
                upload.close()
        try:
            return self._respond(response, head)
        finally:
            response.close()

    def _check_client(self) -> None:
        """Raise ClientLeft if the client has closed the connection; otherwise, it has sent its next request."""
        if self._input.has_ended():
            raise ClientLeft

    def _respond(self, response: "Response", head: RequestHead) -> bool:
        """Pass *response* on; return whether another request may follow."""
        closes = not self._input.allows_next
        start, is_chunked = headers.response_start(response, head, self._forwarding.rules.origin, closes=closes)
        self._socket.sendall(start)
        try:
            for block in response.chunks():
                self._socket.sendall(chunk(block) if is_chunked else block)
        except XapiError:  # the response is truncated, and is so for the client
            if head.is_http_1_0:  # only a reset shows it to this client
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            return False
        if is_chunked:
            self._socket.sendall(LAST_CHUNK)
        if closes:
            self._linger()
        return not closes

    def _fail(self, error: XapiError, head: RequestHead) -> bool:
        """Respond with *error*, unless a request may have been processed that a client would send again after a 502."""
        message = self._forwarding.explain(error)
        if isinstance(error, NetworkError | TimeoutExpired) and error.sent and head.method not in IDEMPOTENT:
            self._forwarding.warn(f"{head.method} {head.target.partition('?')[0]}: {message}")
            return False
        status = 504 if isinstance(error, TimeoutExpired) else 502
        return self._refuse(Refusal(status, error.kind, message), head)

    def _refuse(self, refusal: Refusal, head: RequestHead | None = None) -> bool:
        """Respond with *refusal*; return whether another request may follow."""
        closes = not self._input.allows_next
        has_body = head is None or head.method != "HEAD"
        self._socket.sendall(headers.own_response(refusal, closes=closes, has_body=has_body))
        if closes:
            self._linger()
        return not closes

    def _linger(self) -> None:
        """Let the client read the response: closing while it sends would reset the connection (RFC 9112, 9.6)."""
        self._socket.shutdown(socket.SHUT_WR)
        self._input.drain(_MAX_LINGER, _LINGER)

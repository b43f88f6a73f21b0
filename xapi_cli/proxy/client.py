"""The connection of a client to the proxy, and the call that it waits for.

A client that has sent its requests may close only its direction of the connection, and wait for the responses; the
proxy receives the same from a client that has closed the connection. The kernel knows the difference: the closed end of
a Unix socket hangs up, and the closed end of a TCP connection has no inode. Linux shows the latter, because the client
runs on the same machine. Elsewhere, the end of the input is the end of a client on TCP.
"""

import select
import socket
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING

from xapi_cli.http.header_syntax import LAST_CHUNK, chunk
from xapi_cli.proxy import messages
from xapi_cli.proxy.streamed_exchange import StreamedExchange, Upload

if TYPE_CHECKING:
    from collections.abc import Callable

    from xapi_cli.http.connection import Connection
    from xapi_cli.http.flow import Flow, Policy, Send
    from xapi_cli.http.response_parser import ResponseHead
    from xapi_cli.proxy.request_parser import RequestHead
    from xapi_cli.request.calls import Call

_FIRST = 3.0  # seconds in which a client that has connected is expected to send its first request
_NEXT = 0.5  # seconds after its last data in which one is expected to send another request
_LINGER_FORMAT = "=HH" if sys.platform == "win32" else "=ii"
_BLOCK = 65_536
_MAX_INPUT = 262_144  # bytes that were received and not used yet; then nothing more is read
_MAX_OUTPUT = 262_144  # bytes of a response that the client has not read; then nothing more is received for it


class Client:
    """The connected socket *sock*; *port* is the TCP port of the proxy, None on a Unix socket."""

    unread = None  # a selector reports all that has arrived

    def __init__(self, sock: socket.socket, port: int | None) -> None:
        sock.setblocking(False)
        if port is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self.port = sock, port
        self.input, self.output = bytearray(), bytearray()
        self.call: ForwardedCall | None = None
        self.expected_until = time.monotonic() + _FIRST  # when its next request should have begun
        self.has_ended = False  # its input
        self.closes = False  # after the output; input is discarded
        self.close_ends_response = False  # it recognizes the end of its last response by that of the connection
        self.discarded = 0  # bytes of input
        self.expires = float("inf")  # when it must have sent the rest of a request, or have closed the connection

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._socket.fileno()

    def events(self) -> int:
        """Return the selector events to wait for."""
        is_receiving = not self.has_ended and len(self.input) < _MAX_INPUT
        return (EVENT_READ if is_receiving else 0) | (EVENT_WRITE if self.output else 0)

    def receive(self) -> bool:
        """Append what has arrived to the input, or record its end; return False if the connection is broken."""
        try:
            data = self._socket.recv(_BLOCK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.input += data
        self.expected_until = time.monotonic() + _NEXT
        self.has_ended = not data
        return True

    @property
    def hangs_up(self) -> bool:
        """Whether the other end of the connection is known to be closed in both directions; always False on Windows."""
        if sys.platform == "win32":
            return False
        poll = select.poll()
        poll.register(self._socket, 0)
        return bool(poll.poll(0))  # POLLHUP or POLLERR

    @property
    def ends(self) -> bytes:
        """The ends of the connection over TCP, the client's first, as proc_pid_net(5) shows them; b"" if it is gone."""
        shown = []
        try:
            for address, port in (self._socket.getpeername(), self._socket.getsockname()):
                (number,) = struct.unpack("=I", socket.inet_aton(address))
                shown.append(b" %08X:%04X" % (number, port))
        except OSError:
            return b""
        return b"".join(shown) + b" "

    def send(self) -> bool:
        """Send output as far as the client takes it; return False if the client has closed the connection."""
        if not self.output:
            return True
        try:
            count = self._socket.send(self.output)
        except BlockingIOError:
            return True
        except OSError:
            return False
        del self.output[:count]
        return True

    @property
    def is_full(self) -> bool:
        """Whether the client does not read its output."""
        return len(self.output) >= _MAX_OUTPUT

    @property
    def is_idle(self) -> bool:
        """Whether it has no call, and has not begun to send one."""
        return self.call is None and not (self.input or self.output or self.closes)

    def end_output(self) -> None:
        """Tell the client that nothing more follows; it may still be sending."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def reset_at_close(self) -> None:
        """Make `close` reset a TCP connection, so that the client does not regard the output as complete."""
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack(_LINGER_FORMAT, 1, 0))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def without_receiver(clients: Sequence[Client]) -> list[Client]:
    """Return those of *clients*, the input of which has ended, whose output no process receives."""
    found = [client for client in clients if client.hangs_up]
    others = [client for client in clients if client.port is not None and client not in found]
    if others:
        connections = _connections()
        found += [client for client in others if not _has_process(client.ends, connections)]
    return found


def _connections() -> bytes:
    """Return the TCP connections of this machine, as Linux shows them."""
    try:
        with open("/proc/net/tcp", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _has_process(ends: bytes, connections: bytes) -> bool:
    """Return whether a process has the end of a connection open that *connections* has with these *ends*."""
    _, found, after = connections.partition(ends) if ends else (b"", b"", b"")
    # the fields before the inode: the state, queues, timer, retransmissions, user and timeout
    fields = after.split(None, 7)
    return bool(found) and len(fields) > 6 and fields[6] != b"0"


class ForwardedCall:
    """Request *number*, with *head*, of *client*, forwarded as *call* by the rules of *policy*.

    *call* has the headers that are added to those of the client. *on_begin* is called with the client when a connection
    carries the request, and there is room for more of its body.
    """

    def __init__(
        self,
        number: int,
        client: Client,
        head: "RequestHead",
        call: "Call",
        policy: "Policy[Call]",
        on_begin: "Callable[[Client], None]",
    ) -> None:
        self._on_begin = on_begin
        self.number, self.client, self.head = number, client, head
        self.call = call
        self.flow: Flow[Call, ResponseHead] = policy.flow(call)
        self.upload = Upload(head.length)
        self.exchange: StreamedExchange | None = None
        self.attempts = 0
        self.step: Send[Call] | None = None  # while it is being sent, or waits for a connection
        self.response: ResponseHead | None = None  # of the current exchange
        self.rejection: bytearray | None = None  # the body of a 401, until it is known whether it is final
        self.has_rejection = False  # all of it
        self.is_responding = False  # the final response is being passed on
        self.is_chunked = False  # the body of the response
        self.ends_connection = False  # as the client was told
        self.is_over = False  # the client no longer needs a response

    def begin(self, connection: "Connection", timeout: float) -> StreamedExchange:
        """Return the exchange of the current step over *connection*, without sending it."""
        step = self.step
        assert step is not None  # noqa: S101 - the server has set it
        self.response = None
        self.upload.restart()
        if not self.upload.has_ended:
            self._on_begin(self.client)
        request = messages.request_head(self.head, step.call, connection.route, step.token)
        return StreamedExchange(connection, self.head.method, request, self.upload, timeout)

    def framed(self, block: bytes) -> bytes:
        """Return *block*, a part of the body of the response, as it is sent to the client."""
        return chunk(block) if self.is_chunked else block

    @property
    def end_of_body(self) -> bytes:
        """What the client gets after the body of the response."""
        return LAST_CHUNK if self.is_chunked else b""

    def end(self) -> None:
        """Free what the call holds."""
        self.is_over = True
        self.flow.close()
        self.upload.close()

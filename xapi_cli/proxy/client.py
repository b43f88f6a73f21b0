"""The connection of a client to the proxy, and the call that it waits for."""

import socket
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING

from xapi_cli.proxy import messages
from xapi_cli.proxy.streamed_exchange import StreamedExchange
from xapi_cli.proxy.upload import Upload
from xapi_cli.request.calls import Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from xapi_cli.http.connection import Connection
    from xapi_cli.http.flow import Flow, Policy, Send
    from xapi_cli.http.response_parser import ResponseHead
    from xapi_cli.proxy.request_parser import RequestHead

_BLOCK = 65_536
_MAX_INPUT = 262_144  # bytes that were received and not used yet; then nothing more is read
_MAX_OUTPUT = 262_144  # bytes of a response that the client has not read; then nothing more is received for it


class Client:
    """The connected socket *sock*; *port* is the TCP port of the proxy, None on a Unix socket."""

    def __init__(self, sock: socket.socket, port: int | None) -> None:
        sock.setblocking(False)
        if port is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self.port = sock, port
        self.input, self.output = bytearray(), bytearray()
        self.call: ForwardedCall | None = None
        self.closes = False  # after the output; input is discarded
        self.discarded = 0  # bytes of input
        self.expires = float("inf")  # when it must have sent the rest of a request, or have closed the connection

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._socket.fileno()

    def events(self) -> int:
        """Return the selector events to wait for."""
        return (EVENT_READ if len(self.input) < _MAX_INPUT else 0) | (EVENT_WRITE if self.output else 0)

    def receive(self) -> bool:
        """Append what has arrived to the input; return False if the client has closed the connection."""
        try:
            data = self._socket.recv(_BLOCK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.input += data
        return bool(data)

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

    def end_output(self) -> None:
        """Tell the client that nothing more follows; it may still be sending."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class ForwardedCall:
    """Request *number*, with *head*, of *client*, forwarded to *url* by the rules of *policy*.

    *on_begin* is called with the client when a connection carries the request, and there is room for more of its body.
    """

    def __init__(
        self,
        number: int,
        client: Client,
        head: "RequestHead",
        url: str,
        policy: "Policy[Call]",
        on_begin: "Callable[[Client], None]",
    ) -> None:
        self._on_begin = on_begin
        self.number, self.client, self.head = number, client, head
        self.call = Call(head.method, url)
        self.flow: Flow[Call, ResponseHead] = policy.flow(self.call)
        self.upload = Upload(head.length)
        self.exchange: StreamedExchange | None = None
        self.attempts = 0
        self.step: Send[Call] | None = None  # while it is being sent, or waits for a connection
        self.response: ResponseHead | None = None  # of the current exchange
        self.rejection: bytearray | None = None  # the body of a 401, until it is known whether it is final
        self.has_rejection = False  # all of it
        self.is_responding = False  # the final response is being passed on
        self.is_chunked = False
        self.is_over = False  # the client needs no response any more

    def begin(self, connection: "Connection", timeout: float) -> StreamedExchange:
        """Return the exchange of the current step over *connection*, and begin to send it."""
        step = self.step
        assert step is not None  # noqa: S101 - the server has set it
        self.response = None
        self.upload.restart()
        if not self.upload.has_ended:
            self._on_begin(self.client)
        request = messages.request_head(self.head, step.call.url, connection.route, step.token)
        return StreamedExchange(connection, self.head.method, request, self.upload, timeout)

    def end(self) -> None:
        """Free what the call holds."""
        self.is_over = True
        self.flow.close()
        self.upload.close()

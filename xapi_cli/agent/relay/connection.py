"""Pass bytes between the borrower of a connection and the server, with backpressure in both directions.

The borrower has one end of a pair of sockets. Each direction holds at most one block: while that cannot be passed on,
nothing more is taken, so the kernel's buffers fill and the sender waits.

Both ends can fail alone, and neither failure may hide data. If the server closes or resets the connection, the borrower
gets the reason over the control connection before it sees the end of the data. If the server takes no more, its
response may have arrived anyway, so receiving continues. If the borrower leaves, what it had sent is still passed on:
the kernel would send it too after a process has ended. The bytes that were passed on are counted, because a connection
can be lent again only if the borrower has counted the same: otherwise bytes of its response would reach the next one.
"""

import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from xapi_cli.http.connection import BLOCK, Connection, Selector
from xapi_cli.http.relay.messages import LoanEnd, Message, MessageSocket, end_message

_FLUSH_TIMEOUT = 5.0  # seconds to send to the server what the borrower had sent when it ended the loan
_BUFFER = 128 * 1024  # bytes that the kernel buffers in each direction


class _Direction:
    """Bytes on their way from one end to the other."""

    def __init__(self) -> None:
        self.data = memoryview(b"")  # taken, but not given yet
        self.count = 0  # bytes given
        self.has_ended = False  # nothing more can be taken
        self.has_failed = False  # nothing more can be given

    @property
    def is_taking(self) -> bool:
        return not (self.data or self.has_ended or self.has_failed)

    def pump(self, take: Callable[[], bytes | None], give: Callable[[memoryview], int]) -> bool:
        """Pass on what is possible without waiting; return whether anything has changed.

        *take* receives from one end: None if nothing has arrived, b"" at the end. *give* sends to the other end: it
        returns the number of bytes sent, which may be 0, and raises OSError or ValueError if nothing more can be sent.
        """
        is_progress = False
        if self.is_taking and (taken := take()) is not None:
            self.data, self.has_ended, is_progress = memoryview(taken), not taken, True
        if self.data:
            try:
                count = give(self.data)
            except (OSError, ValueError):
                self.data, self.has_failed = memoryview(b""), True
                return True
            self.count += count
            self.data = self.data[count:] or memoryview(b"")  # an empty view would keep the block, with its token
            is_progress = is_progress or count > 0
        return is_progress


class RelayedConnection:
    """Pass bytes between *server* and one end of a pair of sockets until the borrower ends the loan over *control*.

    `borrowed` is the other end of the pair.
    """

    def __init__(self, server: Connection, control: MessageSocket) -> None:
        self._server = server
        self._control = control
        self._local, self.borrowed = socket.socketpair()
        for end in (self._local, self.borrowed):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            end.setblocking(False)
        self._response, self._request = _Direction(), _Direction()
        self._is_over = False  # the borrower has ended the loan
        self._last_words: Message | None = None

    def run(self) -> Message | None:
        """Pass bytes on until the loan ends; return the last message of the borrower, None without one.

        Raises ProtocolError if the message is not valid.
        """
        while any([self._pump_response(), self._pump_request()]) or not self._wait_is_over():
            pass
        self._is_over = True
        self._flush()
        return self._last_words

    def is_complete(self, end: LoanEnd) -> bool:
        """Return whether exactly the bytes that *end* counts were passed on."""
        is_open = not (self._response.has_ended or self._request.has_failed)
        return is_open and end.sent == self._request.count and not self.has_surplus(end)

    def has_surplus(self, end: LoanEnd) -> bool:
        """Return whether the server sent more than the borrower, which has a complete response, has read."""
        response = self._response
        return end.received != response.count or bool(response.data) or response.has_failed

    def close(self) -> None:
        """Close both ends of the pair."""
        self._local.close()
        self.borrowed.close()

    def _pump_response(self) -> bool:
        return self._response.pump(self._take_from_server, self._give_to_borrower)

    def _pump_request(self) -> bool:
        return self._request.pump(self._take_from_borrower, self._give_to_server)

    def _take_from_server(self) -> bytes | None:
        try:
            data = self._server.receive_now(BLOCK)
        except (OSError, ValueError) as error:
            self._report_end(error if isinstance(error, OSError) else OSError(None, "the connection was closed"))
            return b""
        if data == b"":
            self._report_end(None)
        return data

    def _report_end(self, error: OSError | None) -> None:
        """Report how the connection ended; first, because the borrower looks for the report at the end of the data."""
        with suppress(OSError):
            self._control.send(end_message(error))
        with suppress(OSError):
            self._local.shutdown(socket.SHUT_WR)

    def _give_to_borrower(self, data: memoryview) -> int:
        try:
            return self._local.send(data)
        except BlockingIOError:
            return 0

    def _take_from_borrower(self) -> bytes | None:
        try:
            return self._local.recv(BLOCK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _give_to_server(self, data: memoryview) -> int:
        try:
            return self._server.send_now(data)
        except (OSError, ValueError):  # a response may have arrived anyway; otherwise receiving reports the cause
            with suppress(OSError):
                self._local.shutdown(socket.SHUT_RD)
            raise

    def _wait_is_over(self) -> bool:
        """Wait until bytes can be passed on; return whether the borrower has ended the loan."""
        if self._control not in self._wait(None, self._control):
            return False
        try:
            self._last_words = self._control.receive()
        except OSError:
            return True
        return self._last_words is not None or self._control.has_ended

    def _wait(self, seconds: float | None, *others: MessageSocket) -> list[object]:
        """Wait until bytes can be passed on, or one of *others* has a message; return what is ready.

        Nothing is passed to a borrower that has ended the loan.
        """
        is_delivering = self._response.data and not self._is_over
        local = selectors.EVENT_READ if self._request.is_taking else 0
        wanted: list[tuple[socket.socket | Connection, int]] = [
            (self._local, local | (selectors.EVENT_WRITE if is_delivering else 0)),
            (self._server, self._server_events()),
        ]
        with Selector() as selector:
            for end, events in wanted:
                if events:
                    selector.register(end, events)
            for other in others:
                selector.register(other, selectors.EVENT_READ)
            return [key.fileobj for key, _ in selector.select(seconds)]

    def _server_events(self) -> int:
        is_receiving = self._response.is_taking and not self._is_over
        return self._server.events(receiving=is_receiving, sending=bool(self._request.data))

    def _flush(self) -> None:
        """Send the server what the borrower had sent."""
        end = time.monotonic() + _FLUSH_TIMEOUT
        while self._request.is_taking or self._request.data:
            if self._pump_request():
                continue
            if (left := end - time.monotonic()) <= 0:
                self._request.has_failed = True
                return
            self._wait(left)

"""Pass bytes between the borrower of a connection and the server, with backpressure in both directions."""

import selectors
import socket
import time
from contextlib import suppress

from xapi_cli.http.connection import BLOCK, Connection, Selector
from xapi_cli.http.relay.messages import Message, MessageSocket, end_message

_FLUSH_TIMEOUT = 5.0  # seconds to send to the server what the borrower had sent when it ended the loan
_BUFFER = 128 * 1024  # bytes that the kernel buffers in each direction


class RelayedConnection:
    """Pass bytes between *server* and one end of a pair of sockets until the borrower ends the loan over *control*.

    At most one block in each direction is held here. `borrowed` is the other end of the pair.
    """

    def __init__(self, server: Connection, control: MessageSocket) -> None:
        self._server = server
        self._control = control
        self._local, self.borrowed = socket.socketpair()
        for end in (self._local, self.borrowed):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            end.setblocking(False)
        self._to_borrower = memoryview(b"")
        self._to_server = memoryview(b"")
        self._forwarded = 0  # bytes that the borrower can read or has read
        self._transmitted = 0  # bytes that the server has been sent
        self._server_ended = False  # nothing more can be received
        self._server_failed = False  # nothing more can be sent
        self._borrower_ended = False  # nothing more can be taken from the borrower
        self._is_undelivered = False  # the borrower closed its end before it was sent everything
        self._last_words: Message | None = None

    def run(self) -> Message:
        """Pass bytes on until the loan ends; return the last message of the borrower, of type `gone` without one.

        Raises ProtocolError if the message is not valid.
        """
        while True:
            is_progress = any([self._receive(), self._deliver(), self._take(), self._transmit()])
            if not is_progress and self._wait_is_over():
                break
        self._last_words = self._last_words or {"type": "gone"}
        self._flush()
        return self._last_words

    def is_complete(self, message: Message) -> bool:
        """Return whether exactly the bytes that *message* counts were passed on."""
        return (
            (message.get("received"), message.get("sent")) == (self._forwarded, self._transmitted)
            and not self.has_surplus(message)
            and not self._server_ended
            and not self._server_failed
        )

    def has_surplus(self, message: Message) -> bool:
        """Return whether the server sent more than the borrower, which has a complete response, has read."""
        return message.get("received") != self._forwarded or bool(self._to_borrower) or self._is_undelivered

    def close(self) -> None:
        """Close both ends of the pair."""
        self._local.close()
        self.borrowed.close()

    def _receive(self) -> bool:
        if not self._is_receiving:
            return False
        try:
            data = self._server.receive_now(BLOCK)
        except (OSError, ValueError) as error:
            self._end(error if isinstance(error, OSError) else OSError(None, "the connection was closed"))
            return True
        if data is None:
            return False
        if data == b"":
            self._end(None)
        self._to_borrower = memoryview(data)
        return True

    def _end(self, error: OSError | None) -> None:
        """Report how the connection ended; first, because the borrower looks for the report at the end of the data."""
        self._server_ended = True
        with suppress(OSError):
            self._control.send(end_message(error))
        with suppress(OSError):
            self._local.shutdown(socket.SHUT_WR)

    def _deliver(self) -> bool:
        if not self._to_borrower:
            return False
        try:
            count = self._local.send(self._to_borrower)
        except BlockingIOError:
            return False
        except OSError:  # the borrower has closed its end; its last message says what it has read
            self._to_borrower = memoryview(b"")
            self._is_undelivered = True
            return False
        self._forwarded += count
        self._to_borrower = self._to_borrower[count:]
        return True

    def _take(self) -> bool:
        if not self._is_taking:
            return False
        try:
            data = self._local.recv(BLOCK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self._borrower_ended = not data
        self._to_server = memoryview(data)
        return bool(data)

    def _transmit(self) -> bool:
        if not self._to_server:
            return False
        try:
            count = self._server.send_now(self._to_server)
        except (OSError, ValueError):  # a response may have arrived anyway; otherwise receiving reports the cause
            self._server_failed = True
            self._to_server = memoryview(b"")
            with suppress(OSError):
                self._local.shutdown(socket.SHUT_RD)
            return True
        self._transmitted += count
        self._to_server = self._to_server[count:]
        return bool(count)

    def _wait_is_over(self) -> bool:
        """Wait until bytes can be passed on; return whether the borrower has ended the loan."""
        return self._control in self._wait(None, self._control) and self._read_control()

    def _wait(self, seconds: float | None, *others: MessageSocket) -> list[object]:
        """Wait until bytes can be passed on, or one of *others* has a message; return what is ready."""
        wanted: list[tuple[socket.socket | Connection, int]] = [
            (self._local, self._local_events()),
            (self._server, self._server_events()),
        ]
        with Selector() as selector:
            for end, events in wanted:
                if events:
                    selector.register(end, events)
            for other in others:
                selector.register(other, selectors.EVENT_READ)
            return [key.fileobj for key, _ in selector.select(seconds)]

    @property
    def _is_receiving(self) -> bool:
        return not (self._to_borrower or self._server_ended or self._is_undelivered or self._last_words)

    @property
    def _is_taking(self) -> bool:
        return not (self._to_server or self._borrower_ended or self._server_failed)

    def _local_events(self) -> int:
        is_delivering = self._to_borrower and not self._last_words
        return (selectors.EVENT_READ if self._is_taking else 0) | (selectors.EVENT_WRITE if is_delivering else 0)

    def _server_events(self) -> int:
        return self._server.events(receiving=self._is_receiving, sending=bool(self._to_server))

    def _read_control(self) -> bool:
        try:
            self._last_words = self._control.receive()
        except OSError:
            return True
        return self._last_words is not None or self._control.has_ended

    def _flush(self) -> None:
        """Send the server what the borrower had sent: the kernel would send it too after a process has ended."""
        end = time.monotonic() + _FLUSH_TIMEOUT
        while self._is_taking or self._to_server:
            if any([self._take(), self._transmit()]):
                continue
            left = end - time.monotonic()
            if left <= 0:
                self._server_failed = True
                return
            if self._is_taking or self._to_server:
                self._wait(left)

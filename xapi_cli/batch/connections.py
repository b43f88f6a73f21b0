"""A non-blocking connection of the engine: send a request, receive its response."""

import selectors
import time
from collections.abc import Callable

from xapi_cli.batch.responses import Head, Reading, Reply
from xapi_cli.errors import NetworkError, TimeoutExpired
from xapi_cli.http.connection import Connection, Kind
from xapi_cli.http.dial import refused_by_proxy
from xapi_cli.http.http1 import IDEMPOTENT, note_sent

_DISCARDING = 0.2  # seconds to read a body that is not needed; see http.transport


class ClientConnection:
    """Send requests over *connection*, one at a time; *timeout* limits each wait, in seconds."""

    def __init__(self, connection: Connection, timeout: float) -> None:
        self.connection, self.route = connection, connection.route
        self.reading: Reading | None = None
        self.expires = float("inf")
        self._timeout = timeout
        self._method = ""
        self._unsent = memoryview(b"")
        self._is_sent = False  # at least partly
        self._is_broken = False
        self._held: Reply | None = None

    @property
    def idle_since(self) -> float:
        """Return when the last response was complete, on the monotonic clock."""
        return self.connection.idle_since

    @property
    def kind(self) -> Kind | None:
        """Return the kind of the last response, or None before the first one."""
        return self.connection.kind

    def fileno(self) -> int:
        """Return the file descriptor of the socket."""
        return self.connection.fileno()

    def events(self) -> int:
        """Return the selector events to wait for."""
        is_sending = bool(self._unsent) and not self._is_broken
        return self.connection.events(receiving=self._held is None, sending=is_sending)

    def begin(self, method: str, request: bytes, needs_body: Callable[[Head], bool] = lambda head: True) -> None:
        """Start to send *request*, as far as possible without blocking.

        *needs_body* receives the status and headers of the response and returns whether its body is needed.
        """
        self._method = method
        self._unsent = memoryview(request)
        self._is_sent = self._is_broken = False
        self._held = None
        self.reading = Reading(method, self.connection, needs_body)
        self.send()

    def send(self) -> Reply | None:
        """Send more of the request; return the response if it arrived before the whole request was sent."""
        before = len(self._unsent)
        while self._unsent and not self._is_broken:
            try:
                count = self.connection.send_now(self._unsent)
            except OSError:
                self._is_broken = True  # a response, or the cause of the failure, can still be received
                break
            if not count:
                self._is_sent = self._is_sent or self.connection.tls is not None
                break
            self._unsent = self._unsent[count:]
            self._is_sent = True
        if len(self._unsent) < before or self._is_broken:
            self.expires = time.monotonic() + self._timeout
        if self._held is not None and (self._is_broken or not self._unsent):
            return self._finished(self._held)
        return None

    def receive(self) -> Reply | None:
        """Receive available data; return the response when it is complete.

        Raises NetworkError if there will be no complete response.
        """
        assert self.reading is not None  # noqa: S101 - called only after begin()
        data: bytes | OSError | None
        try:
            data = self.connection.receive_now()  # one block, then other connections are served
        except OSError as error:
            data = error
        return None if data is None else self._taken(data)

    def expire(self) -> Reply | TimeoutExpired:
        """Return the outcome after the timeout: an error, or the response if all that is needed has arrived."""
        if self._held is not None:  # the response is complete, although the server has not read the whole request
            return self._finished(self._held)
        if self.reading is not None and self.reading.is_discarding:
            return self._finished(self.reading.cut_short())
        has_head = self.reading is not None and self.reading.has_head
        if self._unsent and not self._is_broken:
            missing = f"{self.route} took no data"
        else:
            missing = f"no more data from {self.route}" if has_head else f"no answer from {self.route}"
        error = TimeoutExpired(f"{missing} within {self._timeout:g} s", hint="raise --timeout to wait longer")
        note_sent(error, self._method, is_sent=self._is_sent)
        return error

    @property
    def may_repeat(self) -> bool:
        """Return whether a failed request can be resent over a new connection.

        That is the case if this connection was reused, no data of the response arrived, and
        the request was not sent or its method is idempotent.
        """
        has_begun = self.reading is not None and self.reading.has_begun
        return self.connection.is_used and not has_begun and (not self._is_sent or self._method in IDEMPOTENT)

    def close(self) -> None:
        """Close the socket."""
        self.connection.close()

    def _taken(self, data: bytes | OSError) -> Reply | None:
        assert self.reading is not None  # noqa: S101 - see receive()
        before = self.reading.has_head, self.reading.size
        try:
            reply = self.reading.take(data)
        except NetworkError as error:
            if not error.answered:
                note_sent(error, self._method, is_sent=self._is_sent)
            raise
        status = self.reading.status if reply is None else reply.head.status
        if status == 407 and self.route.proxy:
            raise refused_by_proxy(self.route.proxy, 407)
        if reply is None:
            self._prolong(*before)
            return None
        if self._unsent and not self._is_broken and reply.head.status < 300:
            self._held = reply  # after a success, the rest of the request must still be sent
            return None
        return self._finished(reply)

    def _prolong(self, had_head: bool, size: int) -> None:
        """Restart the timeout if the headers or more of the body arrived.

        *had_head* and *size* are the state before the data was received.
        """
        reading = self.reading
        if reading is None or not reading.has_head:
            return
        if reading.status is not None and reading.status >= 300:
            self._is_broken = True  # stop sending the request body after such a response (RFC 9112, 9.5)
        # One timeout covers the status line and headers as a whole; each block of body data restarts it.
        # Chunk framing does not count as body data.
        is_sending = bool(self._unsent) and not self._is_broken
        if reading.is_discarding and not had_head:
            self.expires = time.monotonic() + _DISCARDING
        elif not (reading.is_discarding or is_sending or (had_head and size == reading.size)):
            self.expires = time.monotonic() + self._timeout

    def _finished(self, reply: Reply) -> Reply:
        if self._unsent or self._is_broken:
            reply.persists = False
        self._unsent = memoryview(b"")
        self._held = None
        self.reading = None
        self.expires = float("inf")
        self.connection.has_surplus = self.connection.has_surplus or reply.has_surplus
        self.connection.rest(self._method, reply.head.status)
        return reply


READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

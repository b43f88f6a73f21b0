"""A non-blocking connection of the engine: send a request, receive its response."""

import time
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING

from xapi_cli.batch.responses import BufferedResponse, FastResponseParser
from xapi_cli.errors import NetworkError, TimeoutExpired
from xapi_cli.http.connection import Connection, Kind
from xapi_cli.http.dial import proxy_error
from xapi_cli.http.http1 import IDEMPOTENT, record_sent
from xapi_cli.http.reuse import DISCARD_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable

    from xapi_cli.http.flow import Response


class ClientConnection:
    """Send requests over *connection*, one at a time; *timeout* limits each wait, in seconds."""

    def __init__(self, connection: Connection, timeout: float) -> None:
        self.connection, self.route = connection, connection.route
        self.expires = float("inf")  # on the monotonic clock
        self._timeout = timeout
        self._method = ""
        self._unsent = memoryview(b"")
        self._is_sent = False  # at least partly
        self._is_broken = False  # nothing more can be sent
        self._response: FastResponseParser | None = None  # being received
        self._early_reply: BufferedResponse | None = None  # complete before the request was sent

    @property
    def idle_since(self) -> float:
        """Return when the last response was complete, on the monotonic clock."""
        return self.connection.idle_since

    @property
    def kind(self) -> Kind | None:
        """Return the kind of the last response, or None before the first one."""
        return self.connection.kind

    @property
    def is_receiving(self) -> bool:
        """Return whether a response is incomplete."""
        return self._response is not None

    @property
    def status(self) -> int | None:
        """Return the status of the incomplete response once its headers are complete, else None."""
        return None if self._response is None else self._response.status

    @property
    def memory(self) -> int:
        """Return the approximate memory use of the incomplete response, in bytes."""
        return 0 if self._response is None else self._response.memory

    @property
    def may_resend(self) -> bool:
        """Return whether a failed request can be resent over a new connection.

        That is the case if this connection was reused, no data of the response arrived, and
        the request was not sent or its method is idempotent.
        """
        has_started = self._response is not None and self._response.has_started
        return self.connection.is_used and not has_started and (not self._is_sent or self._method in IDEMPOTENT)

    def fileno(self) -> int:
        """Return the file descriptor of the socket."""
        return self.connection.fileno()

    def events(self) -> int:
        """Return the selector events to wait for."""
        is_sending = bool(self._unsent) and not self._is_broken
        return self.connection.events(receiving=self._early_reply is None, sending=is_sending)

    def begin(self, method: str, request: bytes, needs_body: "Callable[[Response], bool]") -> None:
        """Start to send *request*, as far as possible without blocking.

        *needs_body* receives the status and headers of the response and returns whether its body is needed.
        """
        self._method = method
        self._unsent = memoryview(request)
        self._is_sent = self._is_broken = False
        self._early_reply = None
        self._response = FastResponseParser(method, self.connection, needs_body)
        self._send()

    def process(self, events: int) -> BufferedResponse | None:
        """Send and receive what is possible after *events*; return the response when it is complete.

        Raises NetworkError if there will be no complete response.
        """
        reply = self._send() if events & EVENT_WRITE else None
        if reply is None and (events & EVENT_READ or self.connection.tls):
            reply = self._receive()
        return reply

    def expire(self) -> BufferedResponse | TimeoutExpired:
        """Return the outcome after the timeout: an error, or the response if all that is needed has arrived."""
        if self._early_reply is not None:  # the server has not read the whole request
            return self._finished(self._early_reply)
        if self._response is not None and self._response.is_discarding:
            return self._finished(self._response.without_body())
        if self._unsent and not self._is_broken:
            missing = f"{self.route} accepted no data"
        else:
            missing = f"no response from {self.route}" if self.status is None else f"no more data from {self.route}"
        error = TimeoutExpired(f"{missing} within {self._timeout:g} s", hint="raise --timeout to wait longer")
        record_sent(error, self._method, is_sent=self._is_sent)
        return error

    def close(self) -> None:
        """Close the socket."""
        self.connection.close()

    def _send(self) -> BufferedResponse | None:
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
        if self._early_reply is not None and (self._is_broken or not self._unsent):
            return self._finished(self._early_reply)
        return None

    def _receive(self) -> BufferedResponse | None:
        data: bytes | OSError | None
        try:
            data = self.connection.receive_now()  # one block, then other connections are served
        except OSError as error:
            data = error
        return None if data is None else self._parse(data)

    def _parse(self, data: bytes | OSError) -> BufferedResponse | None:
        assert self._response is not None  # noqa: S101 - see begin()
        before = self._response.has_headers, self._response.size
        try:
            reply = self._response.feed(data)
        except NetworkError as error:
            if not error.headers_received:
                record_sent(error, self._method, is_sent=self._is_sent)
            raise
        status = self._response.status if reply is None else reply.head.status
        if status == 407 and self.route.proxy:
            raise proxy_error(self.route.proxy, 407)
        if reply is None:
            self._prolong(*before)
            return None
        if self._unsent and not self._is_broken and reply.head.status < 300:
            self._early_reply = reply  # after a success, the rest of the request must still be sent
            return None
        return self._finished(reply)

    def _prolong(self, had_head: bool, size: int) -> None:
        """Restart the timeout if the headers or more of the body arrived.

        *had_head* and *size* are the state before the data was received.
        """
        reading = self._response
        if reading is None or not reading.has_headers:
            return
        if reading.status is not None and reading.status >= 300:
            self._is_broken = True  # stop sending the request body after such a response (RFC 9112, 9.5)
        # One timeout covers the status line and headers as a whole; each block of body data restarts it.
        # Chunk framing does not count as body data.
        is_sending = bool(self._unsent) and not self._is_broken
        if reading.is_discarding and not had_head:
            self.expires = time.monotonic() + DISCARD_TIMEOUT
        elif not (reading.is_discarding or is_sending or (had_head and size == reading.size)):
            self.expires = time.monotonic() + self._timeout

    def _finished(self, reply: BufferedResponse) -> BufferedResponse:
        if self._unsent or self._is_broken:
            reply.persists = False
        self._unsent = memoryview(b"")
        self._early_reply = None
        self._response = None
        self.expires = float("inf")
        self.connection.has_surplus = self.connection.has_surplus or reply.has_surplus
        self.connection.mark_idle(self._method, reply.head.status)
        return reply

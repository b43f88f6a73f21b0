"""An exchange of the engine: send a request and receive its response, as far as possible without blocking."""

import time
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING

from xapi_cli.batch.responses import MAX_BODY, BodyTooLarge, BufferedResponse
from xapi_cli.errors import TimeoutExpired
from xapi_cli.http.connection import Connection
from xapi_cli.http.exchange import DISCARD_TIMEOUT, Exchange

if TYPE_CHECKING:
    from collections.abc import Callable

    from xapi_cli.http.flow import Response

_HEADER_OVERHEAD = 200  # bytes of memory for the objects of a header field, without its text


class BufferedExchange:
    """Send *request* with *method* over *connection*, and collect its response; *timeout* limits each wait, in seconds.

    *needs_body* receives the status and headers of the response and returns whether its body is needed.
    """

    __slots__ = ("_body", "_exchange", "_head_size", "_method", "_timeout", "connection", "expires")

    def __init__(
        self,
        connection: Connection,
        method: str,
        request: bytes,
        needs_body: "Callable[[Response], bool]",
        timeout: float,
    ) -> None:
        self.connection, self._method, self._timeout = connection, method, timeout
        self._exchange = Exchange(
            connection.route,
            method,
            is_reused=connection.is_used,
            over_tls=connection.tls is not None,
            needs_body=needs_body,
        )
        self._exchange.offer(request, is_last=True)
        self._body: bytes | bytearray = b""
        self._head_size = 0
        self.expires = time.monotonic() + timeout
        self._send()

    @property
    def status(self) -> int | None:
        """Return the status of the response once its headers are complete, else None."""
        return None if self._exchange.head is None else self._exchange.head.status

    @property
    def memory(self) -> int:
        """Return the approximate memory use of the incomplete response, in bytes."""
        return len(self._body) + self._head_size

    @property
    def may_resend(self) -> bool:
        """Return whether the request, which failed, can be sent again over a new connection."""
        return self._exchange.may_resend

    @property
    def allows_reuse(self) -> bool:
        """Return whether the connection can carry another request."""
        return self._exchange.allows_reuse

    def events(self) -> int:
        """Return the selector events to wait for."""
        return self.connection.events(receiving=not self._exchange.has_response, sending=self._exchange.is_sending)

    def process(self, events: int) -> BufferedResponse | None:
        """Send and receive what is possible after *events*; return the response when it is complete.

        Raises NetworkError if there will be no complete response.
        """
        if events & EVENT_WRITE:
            self._send()
        if (events & EVENT_READ or self.connection.tls) and not self._exchange.has_response:
            self._receive()
        return self._response() if self._exchange.is_done else None

    def expire(self) -> BufferedResponse | TimeoutExpired | None:
        """Return the outcome after the timeout: an error, or the response if all that is needed has arrived.

        It is None if the response goes on, although the server has not read all of the request.
        """
        if not self._exchange.expire():
            missing = self._exchange.awaited
            error = TimeoutExpired(f"{missing} within {self._timeout:g} s", hint="raise --timeout to wait longer")
            self._exchange.record_sent(error)
            return error
        self.expires = time.monotonic() + self._timeout
        return self._response() if self._exchange.is_done else None

    def _send(self) -> None:
        exchange, is_progress = self._exchange, False
        while exchange.is_sending:
            try:
                count = self.connection.send_now(exchange.unsent)
            except OSError:
                exchange.cannot_send()
            else:
                exchange.sent(count)
                if not count:
                    break
            is_progress = True
        if is_progress:
            self.expires = time.monotonic() + self._timeout

    def _receive(self) -> None:
        exchange = self._exchange
        try:
            data: bytes | OSError | None = self.connection.receive_now()  # one block, then others are served
        except OSError as error:
            data = error
        if data is None:
            return
        is_first = exchange.head is None
        exchange.receive(data)
        head = exchange.head
        if head is None:
            return
        has_data = False
        while not exchange.has_response and (block := exchange.body()):
            has_data = True
            self._append(block)
        if is_first and not exchange.has_response:
            self._head_size = sum(3 * (len(name) + len(value)) + _HEADER_OVERHEAD for name, value in head.raw_headers)
            if head.declared_length() > MAX_BODY and head.has_body(self._method) and not exchange.is_discarding:
                raise BodyTooLarge
        self._prolong(is_first=is_first, has_data=has_data)

    def _append(self, block: bytes) -> None:
        if not self._body:
            self._body = block  # usually, this is all of it
            return
        if isinstance(self._body, bytes):
            self._body = bytearray(self._body)
        self._body += block
        if len(self._body) > MAX_BODY:
            raise BodyTooLarge

    def _prolong(self, *, is_first: bool, has_data: bool) -> None:
        """Restart the timeout if the headers or more of the body arrived; a body that is not needed has its own.

        One timeout covers the status line and headers as a whole. Chunk framing does not count as body data.
        """
        if self._exchange.is_discarding:
            if is_first:
                self.expires = time.monotonic() + DISCARD_TIMEOUT
        elif (is_first or has_data) and not self._exchange.is_sending:
            self.expires = time.monotonic() + self._timeout

    def _response(self) -> BufferedResponse:
        """Return the response, and mark the connection as idle."""
        head = self._exchange.head
        assert head is not None  # noqa: S101 - the response is complete
        self.connection.end_response(self._method, head.status, has_surplus=self._exchange.has_surplus)
        return BufferedResponse(head, b"" if self._exchange.is_discarding else self._body)

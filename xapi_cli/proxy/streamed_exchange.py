"""The exchange of a forwarded request: both bodies are passed on as they arrive."""

import time
from selectors import EVENT_READ, EVENT_WRITE

from xapi_cli.errors import TimeoutExpired
from xapi_cli.http.connection import Connection
from xapi_cli.http.connections import CarriedExchange
from xapi_cli.proxy.upload import Upload

_NEVER = float("inf")


class StreamedExchange(CarriedExchange):
    """Send *request*, the head, and *upload* over *connection*; *timeout* limits each wait for the server, in seconds.

    The wait for more of the upload, and a pause because the client does not read the response, do not count.
    """

    def __init__(self, connection: Connection, method: str, request: bytes, upload: Upload, timeout: float) -> None:
        is_reused, over_tls = connection.is_used, connection.tls is not None
        super().__init__(connection.route, method, is_reused=is_reused, over_tls=over_tls)
        self.connection, self._upload, self._timeout = connection, upload, timeout
        self.is_paused = False  # the client does not read the response
        self.expires = time.monotonic() + timeout
        if (part := upload.next_part()) is not None:
            request += part
        self.offer(request, is_last=upload.is_offered)

    def events(self) -> int:
        """Return the selector events to wait for."""
        return self.connection.events(receiving=not self.is_paused, sending=self.is_sending)

    def process(self, events: int) -> None:
        """Send and receive what is possible after *events*.

        Raises NetworkError if there will be no complete response, and OutputError if a copy of the body is lost.
        """
        if events & EVENT_WRITE:
            self.send()
        if not self.is_paused and (events & EVENT_READ or self.over_tls):
            self._receive()

    def send(self) -> None:
        """Send what has arrived of the upload, as far as the server takes it."""
        while not self.stops_sending:
            if not self.unsent:
                if self._is_finished or (part := self._upload.next_part()) is None:
                    break
                self.offer(part, is_last=self._upload.is_offered)
            try:
                count = self.connection.send_now(self.unsent)
            except OSError:
                self.cannot_send()
                break
            if not count:
                break
            self.sent(count)
            self.expires = time.monotonic() + self._timeout
        if not self._is_finished and not self.unsent and not self.stops_sending and self.head is None:
            self.expires = _NEVER  # until more of the upload arrives

    def resume(self) -> None:
        """Receive again, after a pause."""
        self.is_paused = False
        self.expires = time.monotonic() + self._timeout

    def pause(self) -> None:
        """Receive nothing until `resume`."""
        self.is_paused = True
        self.expires = _NEVER

    @property
    def is_complete(self) -> bool:
        """Whether nothing more is to be sent or received."""
        return self.has_response and (self.stops_sending or (self._is_finished and not self.unsent))

    def end(self) -> bool:
        """Mark the connection as idle, after the response; return whether it may carry another request."""
        assert self.head is not None  # noqa: S101 - there is a response
        self.connection.end_response(self.method, self.head.status, has_surplus=self.has_surplus)
        return self.allows_reuse

    def timeout_error(self) -> TimeoutExpired | None:
        """Return the error after the timeout; None if the exchange goes on without the rest of the request."""
        missing = self.awaited
        if self.expire():
            self.expires = time.monotonic() + self._timeout
            return None
        error = TimeoutExpired(f"{missing} within {self._timeout:g} s", hint="raise --timeout to wait longer")
        self.record_sent(error)
        return error

    def _receive(self) -> None:
        data: bytes | OSError | None
        try:
            data = self.connection.receive_now()
        except OSError as error:
            data = error
        if data is not None:
            had_head = self.head is not None
            self.receive(data)
            if had_head or self.head is not None:  # one timeout covers the status line and headers
                self.expires = time.monotonic() + self._timeout

"""The exchange of a forwarded request: both bodies are passed on as they arrive."""

from selectors import EVENT_READ, EVENT_WRITE

from xapi_cli.http.connection import Connection
from xapi_cli.http.connections import CarriedExchange
from xapi_cli.proxy.upload import Upload

_NEVER = float("inf")


class StreamedExchange(CarriedExchange):
    """Send *request*, the head, and *upload* over *connection*; *timeout* limits each wait for the server, in seconds.

    The wait for more of the upload, and a pause because the client does not read the response, do not count.
    """

    def __init__(self, connection: Connection, method: str, request: bytes, upload: Upload, timeout: float) -> None:
        super().__init__(connection, method, timeout)
        self._upload = upload
        self.is_paused = False  # the client does not read the response
        if (part := upload.next_part()) is not None:
            request += part
        self.offer(request, is_last=upload.is_offered)

    def events(self) -> int:
        """Return the selector events to wait for."""
        return self.connection.events(receiving=self._is_receiving, sending=self.is_sending)

    def process(self, events: int) -> None:
        """Send and receive what is possible after *events*.

        Raises NetworkError if there will be no complete response, and OutputError if a copy of the body is lost.
        """
        if events & EVENT_WRITE:
            self.send()
        has_data = self._is_receiving and (events & EVENT_READ or self.over_tls) and self.receive_block()
        if has_data and self.head is not None:  # one timeout covers the status line and headers
            self.restart_timeout()
        self._limit_wait()

    def send(self) -> None:
        """Send what has arrived of the upload, as far as the server takes it."""
        while not self.stops_sending:
            if not self.unsent:
                if self._is_finished or (part := self._upload.next_part()) is None:
                    break
                self.offer(part, is_last=self._upload.is_offered)
            super().send()
            if self.unsent:
                break
        self._limit_wait()

    def resume(self) -> None:
        """Receive again, after a pause."""
        self.is_paused = False
        self._limit_wait()

    def pause(self) -> None:
        """Receive nothing until `resume`."""
        self.is_paused = True
        self._limit_wait()

    def _limit_wait(self) -> None:
        """Suspend the timeout while the exchange waits for the client; begin one when it waits for the server again."""
        awaits_upload = not (self.has_sent_all or self.unsent)
        if self.is_paused or awaits_upload:
            self.expires = _NEVER
        elif self.expires == _NEVER:
            self.restart_timeout()

    @property
    def _is_receiving(self) -> bool:
        """Whether more of the response is to be received; what follows a complete one, such as a reset, is ignored."""
        return not (self.is_paused or self.has_response)

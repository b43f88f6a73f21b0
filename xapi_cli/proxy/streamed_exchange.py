"""The exchange of a forwarded request: both bodies are passed on as they arrive."""

from selectors import EVENT_READ, EVENT_WRITE

from xapi_cli.errors import OutputError
from xapi_cli.http.connection import Connection
from xapi_cli.http.connections import CarriedExchange
from xapi_cli.http.header_syntax import LAST_CHUNK, chunk
from xapi_cli.proxy.request_parser import ChunkedBody, LengthBody
from xapi_cli.request.body.spool import Spool

_NEVER = float("inf")
_MAX_BACKLOG = 262_144  # bytes that have arrived and are not forwarded yet; then nothing more is read
_MAX_KEPT = 2**30  # bytes; a longer body cannot be sent again


class Upload:
    """The body of a request, of *length* bytes, or chunked if that is None; a copy can be sent again after a 401."""

    is_replayable = True  # all of it is kept
    _is_offered = False  # to its end

    def __init__(self, length: int | None) -> None:
        self._source = ChunkedBody() if length is None else LengthBody(length)
        self._is_chunked = length is None
        self._kept: Spool | None = None
        self._offset = 0  # in what is kept, of the next part
        self._live = bytearray()  # what is forwarded without being kept

    @property
    def has_ended(self) -> bool:
        """Whether all of the body has arrived."""
        return self._source.has_ended

    @property
    def is_offered(self) -> bool:
        """Whether `next_part` has returned all of the body."""
        return self._is_offered or (not self._is_chunked and self.has_ended and not self._backlog)

    @property
    def wants_data(self) -> bool:
        """Whether more of the body is to be read now."""
        return not self.has_ended and self._backlog < _MAX_BACKLOG

    @property
    def _backlog(self) -> int:
        return (self._kept.length - self._offset if self._kept else 0) + len(self._live)

    def take(self, buffer: bytearray) -> None:
        """Take what belongs to the body from *buffer*; raises InvalidRequest."""
        if not self.wants_data or not buffer:
            return
        data = self._source.take(buffer)
        if not data:
            return
        if self._kept is None and self.is_replayable:
            self._kept = Spool(())
        if self._kept is not None and self.is_replayable:
            try:
                if self._kept.length + len(data) <= _MAX_KEPT:
                    self._kept.append(data)
                    return
            except OutputError:  # there is no space for the copy; the request goes on
                pass
            self.is_replayable = False
        self._live += data

    def restart(self) -> None:
        """Begin again at the start, for another attempt; requires `is_replayable`."""
        self._offset, self._is_offered = 0, False

    def next_part(self) -> bytes | None:
        """Return the next part, as it is sent; None if none has arrived.

        Raises OutputError if the copy of it cannot be read.
        """
        if self._is_offered:
            return None
        part = self._next_data()
        if not self._is_chunked:
            return part or None
        if part:
            return chunk(part)
        if not self.has_ended:
            return None
        self._is_offered = True
        return LAST_CHUNK

    def close(self) -> None:
        """Delete what is kept."""
        if self._kept is not None:
            self._kept.close()

    def _next_data(self) -> bytes:
        if self._kept is not None and self._offset < self._kept.length:
            data = self._kept.read(self._offset)
            self._offset += len(data)
            return data
        data = bytes(self._live)
        self._live.clear()
        return data


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

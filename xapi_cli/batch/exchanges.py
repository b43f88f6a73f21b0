"""An exchange of the engine: send a request and receive its response, as far as possible without blocking."""

import time
from selectors import EVENT_READ, EVENT_WRITE

from xapi_cli.batch.responses import MAX_BODY, BufferedResponse, body_too_large
from xapi_cli.errors import TimeoutExpired
from xapi_cli.http.connection import BLOCK
from xapi_cli.http.connections import CarriedExchange
from xapi_cli.http.exchange import DISCARD_TIMEOUT

_SHORT_BLOCK = 2 * 1024  # bytes per read, initially
_GROWTH = 4  # the factor by which the next blocks are longer or shorter
_QUICK, _SLOW = 0.0003, 0.002  # seconds to process a block
_HEADER_OVERHEAD = 200  # bytes of memory for the objects of a header field, without its text


class BufferedExchange(CarriedExchange):
    """Send the request that is offered, and collect its response; the parameters are those of `CarriedExchange`."""

    memory = 0  # approximate use by the incomplete response, in bytes
    used = 0.0  # seconds spent on it so far
    passed_over = 0.0  # when, on the monotonic clock, others were first processed before it; 0 if none were
    _collected: bytes | bytearray = b""

    def events(self) -> int:
        """Return the selector events to wait for."""
        return self.connection.events(receiving=not self.has_response, sending=self.is_sending)

    def process(self, events: int, size: int) -> BufferedResponse | None:
        """Send and receive what is possible after *events*; return the response when it is complete.

        At most *size* bytes are received.

        Raises NetworkError if there will be no complete response.
        """
        if events & EVENT_WRITE:
            self.send()
        if (events & EVENT_READ or self.over_tls) and not self.has_response:
            self._receive(size)
        return self._response() if self.is_done else None

    def took(self, seconds: float) -> None:
        """Record that a block of the incomplete response took *seconds* to process."""
        self.used += seconds
        self.passed_over = 0.0

    def time_out(self) -> BufferedResponse | TimeoutExpired | None:
        """Return the outcome after the timeout: an error, or the response if all that is needed has arrived.

        It is None if the response goes on, although the server has not read all of the request.
        """
        return self.timeout_error() or (self._response() if self.is_done else None)

    def _receive(self, size: int) -> None:
        is_first, has_data = self.head is None, False
        if not self.receive_block(size):
            return
        while not self.has_response and (block := self.body()):
            has_data = True
            self.memory += len(block)
            if self._collected:
                self._collect_more(block)
            else:
                self._collected = block  # usually, this is all of it
        if self.has_response or (head := self.head) is None:
            return
        if is_first:
            self.memory += sum(3 * (len(name) + len(value)) + _HEADER_OVERHEAD for name, value in head.raw_headers)
            if head.declared_length() > MAX_BODY and head.has_body(self.method) and not self.is_discarding:
                raise body_too_large()
        self._prolong(is_first=is_first, has_data=has_data)

    def _collect_more(self, block: bytes) -> None:
        if isinstance(self._collected, bytes):
            self._collected = bytearray(self._collected)
        self._collected += block
        if len(self._collected) > MAX_BODY:
            raise body_too_large()

    def _prolong(self, *, is_first: bool, has_data: bool) -> None:
        """Restart the timeout if the headers or more of the body arrived; a body that is not needed has its own.

        One timeout covers the status line and headers as a whole. Chunk framing does not count as body data.
        """
        if self.is_discarding:
            if is_first:
                self.expires = time.monotonic() + DISCARD_TIMEOUT
        elif (is_first or has_data) and not self.is_sending:
            self.restart_timeout()

    def _response(self) -> BufferedResponse:
        assert self.head is not None  # noqa: S101 - the response is complete
        return BufferedResponse(self.head, b"" if self.is_discarding else self._collected)


class BlockSize:
    """The number of `bytes` per read of a response while many responses have arrived.

    It is the same for all responses, and shorter after each slow block. If each response had its own, many responses
    could begin with a part that is processed quickly, and go on with a long block of chunks of one byte each. It is
    longer again after a turn whose blocks were quick on average. So a block that was slow only because other processes
    ran has little effect.
    """

    def __init__(self) -> None:
        self.bytes = _SHORT_BLOCK
        self._seconds, self._count = 0.0, 0  # of the blocks of this turn

    def took(self, seconds: float) -> None:
        """Record that a block took *seconds* to process."""
        self._seconds += seconds
        self._count += 1
        if seconds > _SLOW:
            self.bytes = max(self.bytes // _GROWTH, _SHORT_BLOCK)

    def end_turn(self) -> None:
        """Increase `bytes` if the blocks since the last call were quick on average."""
        if self._seconds < self._count * _QUICK:
            self.bytes = min(self.bytes * _GROWTH, BLOCK)
        self._seconds, self._count = 0.0, 0

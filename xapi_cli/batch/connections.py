"""One connection of the engine: a request out, its response in, without ever waiting."""

import selectors
import time
from collections.abc import Callable

from xapi_cli.batch.responses import Head, Reading, Reply
from xapi_cli.errors import NetworkError, TimeoutExpired
from xapi_cli.http.connection import Connection, Kind
from xapi_cli.http.dial import refused_by_proxy
from xapi_cli.http.http1 import IDEMPOTENT, note_sent

_DISCARDING = 0.2  # seconds for a body that nobody needs; see wire.transport


class ClientConnection:
    """Send one request after another over *connection*; each wait may take *timeout* seconds."""

    def __init__(self, connection: Connection, timeout: float) -> None:
        self.connection, self.route = connection, connection.route
        self.reading: Reading | None = None
        self.expires = float("inf")
        self._timeout = timeout
        self._method = ""
        self._unsent = memoryview(b"")
        self._is_sent = False  # some of it, at least
        self._is_broken = False
        self._held: Reply | None = None

    @property
    def idle_since(self) -> float:
        """When the last response was complete, in the time of the monotonic clock."""
        return self.connection.idle_since

    @property
    def kind(self) -> Kind | None:
        """What kind of response the last one was, None before the first."""
        return self.connection.kind

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.connection.fileno()

    def events(self) -> int:
        """Return the events to wait for."""
        is_sending = bool(self._unsent) and not self._is_broken
        return self.connection.events(receiving=self._held is None, sending=is_sending)

    def begin(self, method: str, request: bytes, needs_body: Callable[[Head], bool] = lambda head: True) -> None:
        """Send *request*, as far as that goes at once; *needs_body* decides by the head of the response."""
        self._method = method
        self._unsent = memoryview(request)
        self._is_sent = self._is_broken = False
        self._held = None
        self.reading = Reading(method, self.connection, needs_body)
        self.send()

    def send(self) -> Reply | None:
        """Send more; return the reply, where that had come before all was sent."""
        before = len(self._unsent)
        while self._unsent and not self._is_broken:
            try:
                count = self.connection.send_now(self._unsent)
            except OSError:
                self._is_broken = True  # an answer may be there nevertheless, or the reason why there is none
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
        """Take what has come; return the reply when it is complete. Raises NetworkError where there will be none."""
        assert self.reading is not None  # noqa: S101 - only a channel with a request is asked
        data: bytes | OSError | None
        try:
            data = self.connection.receive_now()  # one block, and then it is the others' turn
        except OSError as error:
            data = error
        return None if data is None else self._taken(data)

    def expire(self) -> Reply | TimeoutExpired:
        """Return what a wait that took too long means: a failure, unless all that is needed has arrived."""
        if self._held is not None:  # that the server left some of the request unread is its own affair
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
        """Tell whether a request that failed may go over a new connection: this one was old, and nothing has come."""
        has_begun = self.reading is not None and self.reading.has_begun
        return self.connection.is_used and not has_begun and (not self._is_sent or self._method in IDEMPOTENT)

    def close(self) -> None:
        """Give the socket back."""
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
            self._held = reply  # success does not excuse from sending the rest
            return None
        return self._finished(reply)

    def _prolong(self, had_head: bool, size: int) -> None:
        """Begin another wait where the head, or more of the body, has come since *had_head* and *size* were true."""
        reading = self.reading
        if reading is None or not reading.has_head:
            return
        if reading.status is not None and reading.status >= 300:
            self._is_broken = True  # such an answer does not wait for the rest of the request (RFC 9112, 9.5)
        # The head is waited for as a whole, the body by pieces; what frames a chunk is no piece of it.
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

"""Read responses as they come in: the usual ones by a short way, all others by h11.

The short way knows heads in which nothing is odd, and bodies with a Content-Length.
It makes ten times the speed. Whatever else comes, failures included, is read again by
`wire.http1`, so that there is one set of rules, limits and words.
"""

import re
from typing import TYPE_CHECKING

import h11

from xapi_cli.call.heads import joined_headers
from xapi_cli.errors import NetworkError
from xapi_cli.render import json_line
from xapi_cli.wire.http1 import Incoming, new_protocol

if TYPE_CHECKING:
    from xapi_cli.wire.connection import Connection
    from xapi_cli.wire.limits import Limit

LARGEST = 10 * 1024 * 1024  # bytes of a body, coded or not

_USUAL_STATUS = re.compile(rb"HTTP/1\.1 ([2-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?\r\n")
_USUAL_HEADER = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*"
    rb"([\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?|)[ \t]*\r\n"
)
_END = b"\r\n\r\n"
_REMEMBERED = 256  # heads; a server sends many that are the same
_LONGEST_REMEMBERED = 2048  # bytes


class BodyTooLarge(NetworkError):
    """Report a body that is larger than a line of output may hold."""

    def __init__(self) -> None:
        super().__init__(
            f"the body has more than {LARGEST // 2**20} MiB",
            hint="`xapi request -o FILE` takes it",
            sent=True,
            answered=True,
        )


class Head:
    """Status and headers of a response; *length* is None where the body tells its own end."""

    __slots__ = ("_json", "headers", "length", "persists", "raw", "status")

    def __init__(self, status: int, raw: list[tuple[bytes, bytes]], length: int | None = None) -> None:
        self.status, self.raw, self.length = status, raw, length
        self.headers = {name.lower(): value for name, value in raw}
        self.persists = True
        self._json: bytes | None = None

    def json(self) -> bytes:
        """Return the headers as a JSON object."""
        if self._json is None:
            self._json = json_line(joined_headers(self.raw)).encode()
        return self._json

    def get(self, name: bytes) -> str | None:
        """Return the value of the header *name*, which is in lower case."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


class Reply:
    """A whole response; *persists* tells whether the connection may serve again."""

    __slots__ = ("body", "head", "persists")

    def __init__(self, head: Head, body: bytes | bytearray, *, persists: bool) -> None:
        self.head, self.body, self.persists = head, body, persists


class Reading:
    """The response to one request with *method*, over *connection*, which serves *sender*."""

    __slots__ = ("_buffer", "_connection", "_head", "_is_closed", "_long", "_method", "_missing", "has_begun", "size")

    def __init__(self, method: str, connection: "Connection") -> None:
        self._method, self._connection = method, connection
        self._buffer: bytes | bytearray = b""
        self._head: Head | None = None
        self._missing = 0
        self._is_closed = False
        self._long: _LongWay | None = None
        self.has_begun = False
        self.size = 0  # bytes of body that are kept

    @property
    def has_head(self) -> bool:
        """Whether the final head is complete."""
        return self._head is not None or (self._long is not None and self._long.head is not None)

    @property
    def status(self) -> int | None:
        """The status, once the final head is complete."""
        head = self._head or (self._long.head if self._long is not None else None)
        return None if head is None else head.status

    def take(self, data: bytes | OSError) -> Reply | None:
        """Return the response when *data* completes it; no data at all says that the connection was closed."""
        if data and not isinstance(data, OSError):
            self.has_begun = True
        if self._long is not None:
            return self._by_long_way(data)
        if not data or isinstance(data, OSError):
            return self._by_long_way(data)
        return self._on(data) if self._head is not None else self._begin(data)

    def _begin(self, data: bytes) -> Reply | None:
        start = len(self._buffer)
        self._buffer = self._buffer + data if start else data
        end = self._buffer.find(_END, max(0, start - 3))
        if end < 0:
            return self._by_long_way(None) if len(self._buffer) > 8192 else None
        text = bytes(self._buffer[: end + 4])
        head = _heads.get(text) or _usual_head(text)
        if head is None or head.length is None:
            return self._by_long_way(None)
        has_none = self._method == "HEAD" or head.status in (204, 304)
        length = 0 if has_none else head.length
        if length > LARGEST:
            raise BodyTooLarge
        size = len(self._buffer) - end - 4
        self.size = size
        if size < length:
            self._head, self._missing = head, length - size
            self._buffer = bytearray(self._buffer)  # it grows in place from here on
            return None
        body = bytes(self._buffer[end + 4 : end + 4 + length])
        return Reply(head, body, persists=head.persists and size == length)

    def _on(self, data: bytes) -> Reply | None:
        assert self._head is not None  # noqa: S101 - for the type checker
        assert isinstance(self._buffer, bytearray)  # noqa: S101 - the same
        self._buffer += data
        self.size += len(data)
        self._missing -= len(data)
        if self._missing > 0:
            return None
        body, self._buffer = self._buffer, b""  # it may be large, and is not copied
        del body[len(body) + self._missing :]
        del body[: body.find(_END) + 4]
        return Reply(self._head, body, persists=self._head.persists and not self._missing)

    def _by_long_way(self, data: bytes | OSError | None) -> Reply | None:
        if self._long is None:
            self._long = _LongWay(self._method, self._connection)
            kept, self._buffer, self._head = bytes(self._buffer), b"", None
            if kept and (reply := self._long.take(kept)) is not None:
                return reply
        reply = self._long.take(data) if data is not None else None
        self.size = self._long.size
        return reply


_heads: dict[bytes, Head] = {}


def _usual_head(text: bytes) -> Head | None:
    """Return the head that *text* is, None where anything about it is out of the ordinary."""
    status = _USUAL_STATUS.match(text)
    if status is None:
        return None
    raw = []
    at, end = status.end(), len(text) - 2
    while at < end:
        header = _USUAL_HEADER.match(text, at)
        if header is None:
            return None
        raw.append((header[1], header[2]))
        at = header.end()
    head = Head(int(status[1]), raw)
    if len(head.headers) != len(raw) and sum(name.lower() == b"content-length" for name, _ in raw) > 1:
        return None
    if b"transfer-encoding" in head.headers or not _settle_length(head):
        return None
    connection = head.headers.get(b"connection", b"").lower()
    if connection not in (b"", b"keep-alive"):
        if connection != b"close":
            return None
        head.persists = False
    _remember(text, head)
    return head


def _settle_length(head: Head) -> bool:
    length = head.headers.get(b"content-length")
    if length is None:
        head.length = 0 if head.status in (204, 304) else None
        return head.length is not None
    if not length.isdigit() or len(length) > 18:
        return False
    head.length = int(length)
    return True


def _remember(text: bytes, head: Head) -> None:
    if len(text) <= _LONGEST_REMEMBERED:
        if len(_heads) >= _REMEMBERED:
            _heads.clear()
        _heads[text] = head


class _Nothing(Exception):
    """Say that nothing more has been received."""


class _Fed:
    """Stand in for a Connection: it gives what it was fed."""

    def __init__(self, tls: str | None) -> None:
        self.tls = tls
        self.data: bytes | OSError | None = None

    def receive_now(self, size: int) -> bytes | None:
        if isinstance(self.data, OSError):
            raise self.data
        if not self.data:
            return self.data
        taken, rest = self.data[:size], self.data[size:]
        self.data = rest or None
        return taken

    def receive(self, limit: "Limit | None", size: int = 65_536) -> bytes:
        data = self.receive_now(size)
        if data is None:
            raise _Nothing
        return data


class _LongWay:
    """The response by the rules of `wire.http1`."""

    def __init__(self, method: str, connection: "Connection") -> None:
        self._protocol = new_protocol()
        self._protocol.send(h11.Request(method=method, target="/", headers=[("Host", "")]))
        self._protocol.send(h11.EndOfMessage())
        self._fed = _Fed(connection.tls)
        self._incoming = Incoming(self._protocol, self._fed, str(connection.route))  # type: ignore[arg-type]  # it receives
        self._body = bytearray()
        self.head: Head | None = None

    @property
    def size(self) -> int:
        return len(self._body)

    def take(self, data: bytes | OSError) -> Reply | None:
        self._fed.data = data
        try:
            while self.head is None:
                self._look()
            while (block := self._incoming.block(None)) is not None:  # type: ignore[arg-type]  # it never waits
                self._body += block
                if len(self._body) > LARGEST:
                    raise BodyTooLarge
        except _Nothing:
            return None
        return Reply(self.head, self._body, persists=self._persists())

    def _look(self) -> None:
        if self._fed.data is None:
            raise _Nothing
        self._incoming.look()
        head = self._incoming.head
        if head is not None:
            self.head = Head(head.status_code, head.headers.raw_items())

    def _persists(self) -> bool:
        assert self.head is not None  # noqa: S101 - for the type checker
        states = self._protocol.states
        is_complete = states[h11.CLIENT] is h11.DONE and states[h11.SERVER] is h11.DONE
        is_smuggling = {b"content-length", b"transfer-encoding"} <= set(self.head.headers)
        return is_complete and not is_smuggling and not self._protocol.trailing_data[0] and not self._fed.data

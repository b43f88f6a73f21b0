"""Parse responses incrementally: common ones on a fast path, all others with `http.response_parser`.

The fast path handles common status lines and headers that arrive in one block, and bodies with a
Content-Length. It is ten times as fast. Everything else, failures included, is parsed again from
the first byte by the parser, so that there is one set of rules, limits and error messages.
"""

import re
from typing import TYPE_CHECKING

import h11

from xapi_cli.errors import NetworkError
from xapi_cli.http.headers import joined_headers
from xapi_cli.http.response_parser import ResponseParser, declares_body, new_protocol
from xapi_cli.http.reuse import MAX_DISCARDED
from xapi_cli.system.render import json_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from xapi_cli.http.connection import Connection
    from xapi_cli.http.flow import Response

MAX_BODY = 10 * 1024 * 1024  # bytes of a body, before and after content decoding

_COMMON_STATUS = re.compile(rb"HTTP/1\.1 ([2-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?\r\n")
_COMMON_HEADER = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*"
    rb"([\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?|)[ \t]*\r\n"
)
_HEADER_OVERHEAD = 200  # bytes of memory for the objects of a header field, without its text
_HEADERS_END = b"\r\n\r\n"
_MAX_CACHED = 256  # cached status lines and headers; a server sends many identical ones
_MAX_CACHED_LENGTH = 2048  # bytes


class BodyTooLarge(NetworkError):
    """The body exceeds the maximum size for a line of output."""

    kind = "size"

    def __init__(self) -> None:
        super().__init__(
            f"the body has more than {MAX_BODY // 2**20} MiB",
            hint="`xapi request -o FILE` accepts it",
            sent=True,
            headers_received=True,
        )


class ResponseHead:
    """The status and headers of a response; *length* is None if the body is delimited in another way."""

    __slots__ = ("_json", "headers", "length", "persists", "raw", "status")

    def __init__(self, status: int, raw: list[tuple[bytes, bytes]], length: int | None = None) -> None:
        self.status, self.raw, self.length = status, raw, length
        self.headers = {name.lower(): value for name, value in raw}
        self.persists = True
        self._json: bytes | None = None

    @property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the names and values of the header fields."""
        return self.raw

    def json(self) -> bytes:
        """Return the headers as a JSON object."""
        if self._json is None:
            self._json = json_line(joined_headers(self.raw)).encode()
        return self._json

    def get(self, name: bytes) -> str | None:
        """Return the value of the header *name* (in lower case), or None."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


class BufferedResponse:
    """A complete response.

    *persists* is whether the connection can be reused, *has_surplus* whether extra data followed the response.
    """

    __slots__ = ("body", "has_surplus", "head", "persists")

    def __init__(
        self, head: ResponseHead, body: bytes | bytearray, *, persists: bool, has_surplus: bool = False
    ) -> None:
        self.head, self.body, self.persists, self.has_surplus = head, body, persists, has_surplus

    @property
    def status(self) -> int:
        """Return the status code."""
        return self.head.status

    @property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the names and values of the header fields."""
        return self.head.raw


class FastResponseParser:
    """Parse the response to one request with *method* over *connection*.

    *needs_body* receives the status and headers and returns whether the body is needed.
    """

    __slots__ = (
        "_buffer", "_connection", "_head", "_head_size", "_method", "_missing", "_needs_body", "_parser", "has_started",
        "is_discarding", "size",
    )  # fmt: skip

    def __init__(
        self, method: str, connection: "Connection", needs_body: "Callable[[Response], bool]" = lambda response: True
    ) -> None:
        self._method, self._connection, self._needs_body = method, connection, needs_body
        self._buffer: bytes | bytearray = b""
        self._head: ResponseHead | None = None
        self._missing = 0
        self._parser: ResponseParser | None = None
        self.has_started = False
        self.is_discarding = False  # the body is not needed
        self.size = 0  # bytes of the body in memory
        self._head_size = 0

    @property
    def memory(self) -> int:
        """Return the approximate memory use of the response so far, in bytes."""
        return self.size + self._head_size

    @property
    def has_headers(self) -> bool:
        """Return whether the final status line and headers are complete."""
        return self._head is not None

    @property
    def status(self) -> int | None:
        """Return the final status code, or None before the headers are complete."""
        return None if self._head is None else self._head.status

    def feed(self, data: bytes | OSError) -> BufferedResponse | None:
        """Process *data*; return the response if it is complete.

        Empty *data* means that the connection was closed. Raises NetworkError for a malformed or truncated response.
        """
        try:
            response = self._feed(data)
        except NetworkError:
            if not self.is_discarding:
                raise
            return self.without_body()
        return (
            self.without_body() if response is None and self.size > MAX_DISCARDED and self.is_discarding else response
        )

    def without_body(self) -> BufferedResponse:
        """Return the response without its body, which is not needed."""
        assert self._head is not None  # noqa: S101 - is_discarding
        return BufferedResponse(self._head, b"", persists=False)

    def _feed(self, data: bytes | OSError) -> BufferedResponse | None:
        if self._parser is not None:
            return self._parse(data)
        if isinstance(data, OSError) or not data:
            return self._parse_from_start(data)
        self.has_started = True
        return self._continue_body(data) if self._head is not None else self._parse_start(data)

    def _parse_start(self, data: bytes) -> BufferedResponse | None:
        end = data.find(_HEADERS_END) + len(_HEADERS_END)
        text = data[:end]
        head = (_parsed_heads.get(text) or _parse_common_head(text)) if end >= len(_HEADERS_END) else None
        if head is None or head.length is None:
            return self._parse_from_start(data)
        has_none = self._has_no_body(head)
        length = 0 if has_none else head.length
        size = len(data) - end
        if size >= length:
            persists = head.persists and not (has_none and declares_body(self._method, head.status, head.headers))
            return BufferedResponse(head, data[end : end + length], persists=persists, has_surplus=size > length)
        self._set_head(head, length)
        self.size, self._missing = size, length - size
        self._buffer = bytearray(data)  # later data is appended in place
        return None

    def _continue_body(self, data: bytes) -> BufferedResponse | None:
        assert self._head is not None  # noqa: S101 - for the type checker
        assert isinstance(self._buffer, bytearray)  # noqa: S101 - the same
        self._buffer += data
        self.size += len(data)
        self._missing -= len(data)
        if self._missing > 0:
            return None
        body, self._buffer = self._buffer, b""  # it may be large, so it is edited in place instead of copied
        del body[len(body) + self._missing :]
        del body[: body.find(_HEADERS_END) + 4]
        return BufferedResponse(self._head, body, persists=self._head.persists, has_surplus=self._missing < 0)

    def _parse_from_start(self, data: bytes | OSError) -> BufferedResponse | None:
        """Pass the data buffered by the fast path, and *data*, to the parser."""
        protocol = new_protocol()
        protocol.send(h11.Request(method=self._method, target="/", headers=[("Host", "")]))
        protocol.send(h11.EndOfMessage())
        is_tls = self._connection.tls is not None
        self._parser = ResponseParser(protocol, str(self._connection.route), over_tls=is_tls)
        buffered, self._buffer = bytes(self._buffer), bytearray()
        self.size = 0
        if buffered:
            self._parse(buffered)
        return self._parse(data)

    def _parse(self, data: bytes | OSError) -> BufferedResponse | None:
        parser = self._parser
        assert parser is not None  # noqa: S101 - for the type checker
        assert isinstance(self._buffer, bytearray)  # noqa: S101 - the same
        if isinstance(data, OSError):
            raise parser.connection_error(data) from data
        self.has_started = self.has_started or bool(data)
        parser.receive(data)
        if parser.response is None:
            return None
        if self._head is None:
            head = ResponseHead(parser.response.status_code, parser.response.headers.raw_items())
            self._set_head(head, _declared_length(head))
        while block := parser.body():
            self._buffer += block
            self.size = len(self._buffer)
            if self.size > MAX_BODY:
                raise BodyTooLarge
        assert self._head is not None  # noqa: S101 - for the type checker
        if not parser.has_ended:
            return None
        persists = parser.allows_reuse and not declares_body(self._method, self._head.status, self._head.headers)
        return BufferedResponse(self._head, self._buffer, persists=persists, has_surplus=parser.has_surplus)

    def _set_head(self, head: ResponseHead, length: int) -> None:
        self._head = head
        self._head_size = sum(3 * (len(name) + len(value)) + _HEADER_OVERHEAD for name, value in head.raw)
        self.is_discarding = not self._needs_body(head)
        if length > MAX_BODY and not self._has_no_body(head):
            raise BodyTooLarge

    def _has_no_body(self, head: ResponseHead) -> bool:
        return self._method == "HEAD" or head.status in (204, 304)


_parsed_heads: dict[bytes, ResponseHead] = {}


def _parse_common_head(text: bytes) -> ResponseHead | None:
    """Parse *text* as a status line and headers; return None if the fast path does not support them."""
    status = _COMMON_STATUS.match(text)
    if status is None:
        return None
    raw = []
    at, end = status.end(), len(text) - 2
    while at < end:
        header = _COMMON_HEADER.match(text, at)
        if header is None:
            return None
        raw.append((header[1], header[2]))
        at = header.end()
    head = ResponseHead(int(status[1]), raw)
    if len(head.headers) != len(raw) and any(_count(raw, name) > 1 for name in (b"content-length", b"connection")):
        return None
    if b"transfer-encoding" in head.headers or not _set_length(head):
        return None
    connection = head.headers.get(b"connection", b"").lower()
    if connection not in (b"", b"keep-alive"):
        if connection != b"close":
            return None
        head.persists = False
    _cache_head(text, head)
    return head


def _set_length(head: ResponseHead) -> bool:
    length = head.headers.get(b"content-length")
    if length is None:
        head.length = 0 if head.status in (204, 304) else None
        return head.length is not None
    if not length.isdigit() or len(length) > 18:
        return False
    head.length = int(length)
    return True


def _cache_head(text: bytes, head: ResponseHead) -> None:
    if len(text) <= _MAX_CACHED_LENGTH:
        if len(_parsed_heads) >= _MAX_CACHED:
            _parsed_heads.clear()
        _parsed_heads[text] = head


def _count(raw: list[tuple[bytes, bytes]], wanted: bytes) -> int:
    return sum(name.lower() == wanted for name, _ in raw)


def _declared_length(head: ResponseHead) -> int:
    """Return the value of Content-Length, already validated by h11, or 0 if it is absent or does not apply."""
    return 0 if b"transfer-encoding" in head.headers else int(head.headers.get(b"content-length", b"0"))

"""Parse the requests of clients, strictly: what a server behind the proxy could read in another way is refused.

A request that two parsers delimit differently can hide another one (request smuggling, RFC 9112, section 11.2). So each
line ends with CRLF, a body has one Content-Length or is chunked, and nothing is repaired. h11 accepts more, such as
bare line feeds, and takes several times as long.
"""

import re
from typing import NamedTuple

from xapi_cli.http.header_syntax import FIELD_LINE, MAX_HEADER_SIZE, TLS_RECORDS, TOKEN

_REQUEST_LINE = re.compile(rb"(%b) ([\x21-\x7e]+) HTTP/1\.([01])\r\n" % TOKEN.encode())
_END = b"\r\n\r\n"
_MAX_METHOD = 32  # characters
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_MAX_CHUNK_LINE = 4096  # bytes
_MAX_TRAILERS = 16_384  # bytes
_SINGLE = (b"host", b"content-length", b"transfer-encoding", b"expect", b"authorization", b"content-type")
_MAX_CACHED, _MAX_CACHED_LENGTH = 256, 2048  # request heads, and their bytes: a client sends many identical ones


class InvalidRequest(Exception):
    """The request is not valid HTTP, or not supported: *status* is that of the response, and *reason* its message."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.reason, self.status = reason, status


class RequestHead(NamedTuple):
    """The request line and headers; *length* is None if the body is chunked. *persists* is whether more may follow.

    The names in *fields* are in lower case, and those in *names* as the client sent them.
    """

    method: str
    target: str
    fields: tuple[tuple[bytes, bytes], ...]
    names: tuple[bytes, ...]
    length: int | None
    persists: bool
    is_http_1_0: bool
    expects_continue: bool

    def get(self, name: bytes) -> str | None:
        """Return the first value of the header *name* (in lower case), or None."""
        return next((value.decode("latin-1") for each, value in self.fields if each == name), None)

    def listed(self, name: bytes) -> set[bytes]:
        """Return the elements, in lower case, of all headers *name* (in lower case), which are lists."""
        values = b",".join(value for each, value in self.fields if each == name)
        return {element.strip().lower() for element in values.split(b",")} - {b""}


_heads: dict[bytes, RequestHead] = {}


def take_head(buffer: bytearray) -> RequestHead | None:
    """Remove a complete request line with its headers from *buffer*, and return it; None if it is not complete.

    Raises InvalidRequest.
    """
    while buffer.startswith(b"\r\n"):  # RFC 9112, section 2.2
        del buffer[:2]
    end = buffer.find(_END)
    if end < 0:
        if len(buffer) > MAX_HEADER_SIZE:
            raise InvalidRequest("the request line and headers are too long", 431)
        _check_start(buffer)
        return None
    end += len(_END)
    if end > MAX_HEADER_SIZE:
        raise InvalidRequest("the request line and headers are too long", 431)
    text = bytes(buffer[:end])
    del buffer[:end]
    head = _heads.get(text)
    if head is None:
        head = _parse(text)
        if end <= _MAX_CACHED_LENGTH:
            if len(_heads) >= _MAX_CACHED:
                _heads.clear()
            _heads[text] = head
    return head


def _check_start(buffer: bytearray) -> None:
    """Raise InvalidRequest if *buffer*, which is not complete, cannot become a valid request."""
    if buffer.startswith(TLS_RECORDS):
        raise InvalidRequest("the request line is not valid; the proxy serves http, not https")
    line_end = buffer.find(b"\n")
    if b"\n\n" in buffer or (line_end >= 0 and not buffer.endswith(b"\r", 0, line_end)):
        raise InvalidRequest("a line feed without a carriage return")
    if line_end >= 0 and not _REQUEST_LINE.match(buffer):
        raise InvalidRequest("the request line is not valid")


def _parse(text: bytes) -> RequestHead:
    line = _REQUEST_LINE.match(text)
    if line is None or len(line[1]) > _MAX_METHOD:
        raise InvalidRequest("the request line is not valid")
    fields, names = [], []
    at, end = line.end(), len(text) - 2
    while at < end:
        field = FIELD_LINE.match(text, at)
        if field is None:
            raise InvalidRequest("a header line is not valid")
        names.append(field[1])
        fields.append((field[1].lower(), field[2]))
        at = field.end()
    if any(b"_" in name and name.replace(b"_", b"-") in _SINGLE for name, _ in fields):
        raise InvalidRequest("a header name has an underscore that a server may read as a hyphen")
    for name in _SINGLE:
        if sum(each == name for each, _ in fields) > 1:
            raise InvalidRequest(f"the header {name.decode('ascii').title()} is repeated")
    values = dict(fields)
    if b"host" not in values:
        raise InvalidRequest("the header Host is missing")
    is_http_1_0 = line[3] == b"0"
    connection = {each.strip().lower() for name, value in fields if name == b"connection" for each in value.split(b",")}
    return RequestHead(
        line[1].decode("ascii"),
        line[2].decode("ascii"),
        tuple(fields),
        tuple(names),
        _length(values, is_http_1_0=is_http_1_0),
        b"close" not in connection and (not is_http_1_0 or b"keep-alive" in connection),
        is_http_1_0,
        _expects_continue(values, is_http_1_0=is_http_1_0),
    )


def _length(values: dict[bytes, bytes], *, is_http_1_0: bool) -> int | None:
    """Return the length of the body, None if it is chunked (RFC 9112, section 6)."""
    length, coding = values.get(b"content-length"), values.get(b"transfer-encoding")
    if coding is not None:
        if length is not None:
            raise InvalidRequest("the request has Content-Length and Transfer-Encoding")
        if is_http_1_0:
            raise InvalidRequest("an HTTP/1.0 request has a Transfer-Encoding")
        if coding.lower() != b"chunked":
            raise InvalidRequest("the Transfer-Encoding is not supported", 501)
        return None
    if length is None:
        return 0
    if not length.isdigit() or len(length) > 18:
        raise InvalidRequest("the Content-Length is not valid")
    return int(length)


def _expects_continue(values: dict[bytes, bytes], *, is_http_1_0: bool) -> bool:
    expectation = values.get(b"expect")
    if expectation is None or is_http_1_0:
        return False
    if expectation.lower() != b"100-continue":
        raise InvalidRequest("the expectation is not supported", 417)
    return True


class LengthBody:
    """Take the body of a request with *length* bytes from a buffer."""

    def __init__(self, length: int) -> None:
        self._missing = length

    @property
    def has_ended(self) -> bool:
        """Whether all of the body was taken."""
        return not self._missing

    def take(self, buffer: bytearray) -> bytes:
        """Remove what belongs to the body from *buffer*, and return it."""
        part = bytes(buffer[: self._missing])
        del buffer[: len(part)]
        self._missing -= len(part)
        return part


class ChunkedBody:
    """Take a chunked body from a buffer; extensions and trailers are discarded (RFC 9112, section 7.1)."""

    has_ended = False
    _missing = 0  # bytes of the chunk, then of the CRLF after it
    _has_last_chunk = False
    _trailers = 0  # bytes

    def take(self, buffer: bytearray) -> bytes:
        """Remove what belongs to the body from *buffer*, and return its data; raises InvalidRequest."""
        parts = []
        while not self.has_ended:
            if self._missing > 2:
                part = bytes(buffer[: self._missing - 2])
                if not part:
                    break
                parts.append(part)
                del buffer[: len(part)]
                self._missing -= len(part)
            elif self._missing:
                if not b"\r\n".startswith(bytes(buffer[:2])):
                    raise InvalidRequest("a chunk does not end with CRLF")
                if len(buffer) < 2:
                    break
                del buffer[:2]
                self._missing = 0
            elif not self._take_line(buffer):
                break
        return b"".join(parts)

    def _take_line(self, buffer: bytearray) -> bool:
        """Take the line before a chunk, or a trailer; return whether there was one."""
        end = buffer.find(b"\n") + 1
        limit = _MAX_TRAILERS - self._trailers if self._has_last_chunk else _MAX_CHUNK_LINE
        if (end or len(buffer)) > limit:
            raise InvalidRequest("a line between chunks is too long", 431 if self._has_last_chunk else 400)
        if not end:
            return False
        line = bytes(buffer[:end])
        del buffer[:end]
        if self._has_last_chunk:
            self._trailers += end
            self.has_ended = line == b"\r\n"
            if not self.has_ended and not FIELD_LINE.fullmatch(line):
                raise InvalidRequest("a trailer is not valid")
            return True
        chunk = _CHUNK_LINE.fullmatch(line)
        if chunk is None:
            raise InvalidRequest("the length of a chunk is not valid")
        size = int(chunk[1], 16)
        if size:
            self._missing = size + 2
        else:
            self._has_last_chunk = True
        return True

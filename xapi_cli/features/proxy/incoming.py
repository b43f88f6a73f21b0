"""The requests of clients: their heads, parsed strictly, and their bodies, which can be sent again.

A request that two parsers delimit differently can hide another one (request smuggling, RFC 9112, section 11.2). So what
a server behind the proxy could read in another way is refused: each line ends with CRLF, a body has one Content-Length
or is chunked, and nothing is repaired.
"""

import re
import select
import socket
import time
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from xapi_cli.errors import NetworkError, OutputError
from xapi_cli.http.header_syntax import FIELD_LINE, MAX_HEADER_SIZE, TLS_RECORDS, TOKEN
from xapi_cli.request.body.spool import Body, Spool

BLOCK = 65_536
_REQUEST_LINE = re.compile(rb"(%b) ([\x21-\x7e]+) HTTP/1\.([01])\r\n" % TOKEN.encode())
_END = b"\r\n\r\n"
_MAX_METHOD = 32  # characters
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_MAX_CHUNK_LINE = 4096  # bytes
_MAX_TRAILERS = 16_384  # bytes
_MAX_KEPT = 2**30  # bytes; a longer body cannot be sent again
_PAUSE = 0.05  # seconds without data after which the sender of a body may look for an early response
_SINGLE = (b"host", b"content-length", b"transfer-encoding", b"expect", b"authorization", b"content-type")


class InvalidRequest(Exception):
    """The request is not valid HTTP, or not supported: *status* is that of the response, and *reason* its message."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.reason, self.status = reason, status


class ClientLeft(Exception):
    """The client has closed the connection before its response was complete."""


class RequestHead(NamedTuple):
    """The request line and headers; *length* is None if the body is chunked. *persists* is whether more may follow.

    The names in *fields* are as the client sent them.
    """

    method: str
    target: str
    fields: tuple[tuple[bytes, bytes], ...]
    length: int | None
    persists: bool
    is_http_1_0: bool
    expects_continue: bool

    def get(self, name: bytes) -> str | None:
        """Return the first value of the header *name* (in lower case), or None."""
        return next((value.decode("latin-1") for each, value in self.fields if each.lower() == name), None)

    def listed(self, name: bytes) -> set[bytes]:
        """Return the elements, in lower case, of all headers *name* (in lower case), which are lists."""
        return _elements(value for each, value in self.fields if each.lower() == name)


class Input:
    """What the client on *sock* sends; *timeout*, in seconds, limits the time for one request line with its headers."""

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        self._socket, self._timeout = sock, timeout
        self.buffer = bytearray()

    def head(self) -> RequestHead | None:
        """Return the next request line with its headers, None at the end; raises InvalidRequest."""
        expires = None  # the wait for a request is not limited
        while True:
            while self.buffer.startswith(b"\r\n"):  # RFC 9112, section 2.2
                del self.buffer[:2]
            if (end := self.buffer.find(_END, 0, MAX_HEADER_SIZE)) >= 0:
                text = bytes(self.buffer[: end + len(_END)])
                del self.buffer[: len(text)]
                return _parsed(text)
            if len(self.buffer) > MAX_HEADER_SIZE:
                raise InvalidRequest("the request line and headers are too long", 431)
            _check_start(self.buffer)
            if self.buffer and expires is None:
                expires = time.monotonic() + self._timeout
            if not self._receive(None if expires is None else expires - time.monotonic()):
                raise InvalidRequest(f"the headers of the request were not complete within {self._timeout:g} s", 408)
            if not self.buffer:
                return None

    def more(self) -> bool:
        """Append more data to the buffer; return False if there is none at the moment.

        Raises ClientLeft at the end of the input.
        """
        size = len(self.buffer)
        if not self._receive(_PAUSE):
            return False
        if len(self.buffer) == size:
            raise ClientLeft
        return True

    def has_ended(self) -> bool:
        """Return whether the client has closed the connection; call it when the socket is readable."""
        return not self.buffer and not self._socket.recv(1, socket.MSG_PEEK)

    def drain(self, limit: int, seconds: float) -> None:
        """Discard what the client still sends until it closes the connection, for *seconds* and up to *limit* bytes."""
        expires = time.monotonic() + seconds
        while limit > 0 and (left := expires - time.monotonic()) > 0:
            self.buffer.clear()
            if not self._receive(left) or not self.buffer:
                return
            limit -= len(self.buffer)

    def _receive(self, seconds: float | None) -> bool:
        """Append what arrives, nothing at the end of the input; return False after *seconds* without data."""
        if seconds is not None and not _is_readable(self._socket, max(seconds, 0.0)):
            return False
        self.buffer += self._socket.recv(BLOCK)
        return True


def _is_readable(sock: socket.socket, seconds: float) -> bool:
    """Return whether *sock* is readable within *seconds*; with at most 256 clients, descriptors are below 1024."""
    return bool(select.select([sock], [], [], seconds)[0])


def _check_start(buffer: bytearray) -> None:
    """Raise InvalidRequest if *buffer*, which is not complete, cannot become a valid request."""
    if buffer.startswith(TLS_RECORDS):
        raise InvalidRequest("the request line is not valid; the proxy serves http, not https")
    line_end = buffer.find(b"\n")
    if b"\n\n" in buffer or (line_end >= 0 and not buffer.endswith(b"\r", 0, line_end)):
        raise InvalidRequest("a line feed without a carriage return")
    if line_end >= 0 and not _REQUEST_LINE.match(buffer):
        raise InvalidRequest("the request line is not valid")


def _parsed(text: bytes) -> RequestHead:
    line = _REQUEST_LINE.match(text)
    if line is None or len(line[1]) > _MAX_METHOD:
        raise InvalidRequest("the request line is not valid")
    fields = []
    at, end = line.end(), len(text) - 2
    while at < end:
        field = FIELD_LINE.match(text, at)
        if field is None:
            raise InvalidRequest("a header line is not valid")
        fields.append((field[1], field[2]))
        at = field.end()
    names = [name.lower() for name, _ in fields]
    if any(b"_" in name and name.replace(b"_", b"-") in _SINGLE for name in names):
        raise InvalidRequest("a header name has an underscore that a server may read as a hyphen")
    for name in _SINGLE:
        if names.count(name) > 1:
            raise InvalidRequest(f"the header {name.decode('ascii').title()} is repeated")
    values = dict(zip(names, (value for _, value in fields), strict=True))
    if b"host" not in values:
        raise InvalidRequest("the header Host is missing")
    is_http_1_0 = line[3] == b"0"
    connection = _elements(value for name, value in fields if name.lower() == b"connection")
    return RequestHead(
        line[1].decode("ascii"),
        line[2].decode("ascii"),
        tuple(fields),
        _length(values, is_http_1_0=is_http_1_0),
        b"close" not in connection and (not is_http_1_0 or b"keep-alive" in connection),
        is_http_1_0,
        _expects_continue(values, is_http_1_0=is_http_1_0),
    )


def _elements(values: Iterator[bytes]) -> set[bytes]:
    return {element.strip().lower() for value in values for element in value.split(b",")} - {b""}


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


class Upload(Body):
    """The body of a request, read from *source* while it is sent, with a copy that can be sent again after a 401.

    *length* is None for a chunked body. *on_begin* is called before the first data is read. Iteration yields b"" while
    the client pauses; it raises ClientLeft, InvalidRequest, or NetworkError if the body is too large to be sent again.
    """

    def __init__(self, source: Input, length: int | None, on_begin: Callable[[], None]) -> None:
        super().__init__(length or 0)
        self.is_chunked = length is None
        self._source, self._on_begin = source, on_begin
        self._parts = _chunks(source) if length is None else _parts(source, length)
        self._copy: Spool | None = Spool(())
        self.has_begun = self.has_ended = False

    def __iter__(self) -> Iterator[bytes]:
        if self._copy is None:
            raise NetworkError(
                "the token was rejected, and the body is too large to be sent again", hint="send it again"
            )
        yield from self._copy
        if not self.has_begun:
            self.has_begun = True
            self._on_begin()
        for part in self._parts:
            self._keep(part)
            yield part
        self.has_ended = True

    def close(self) -> None:
        """Delete the copy."""
        if self._copy is not None:
            self._copy.close()

    def _keep(self, part: bytes) -> None:
        if self._copy is None or not part:
            return
        try:
            if self._copy.length + len(part) <= _MAX_KEPT:
                self._copy.append(part)
                return
        except OutputError:  # there is no space for the copy; the request goes on
            pass
        self._copy.close()
        self._copy = None


def _parts(source: Input, missing: int) -> Iterator[bytes]:
    """Yield the next *missing* bytes of *source*."""
    while missing:
        if not source.buffer and not source.more():
            yield b""
            continue
        part = bytes(source.buffer[:missing])
        del source.buffer[: len(part)]
        missing -= len(part)
        yield part


def _chunks(source: Input) -> Iterator[bytes]:
    """Yield the data of the chunked body in *source*; extensions and trailers are discarded (RFC 9112, section 7.1)."""
    while True:
        line = yield from _line(source, _MAX_CHUNK_LINE, "a line between chunks is too long", 400)
        found = _CHUNK_LINE.fullmatch(line)
        if found is None:
            raise InvalidRequest("the length of a chunk is not valid")
        size = int(found[1], 16)
        if not size:
            break
        yield from _parts(source, size)
        if (yield from _line(source, 2, "a chunk does not end with CRLF", 400)) != b"\r\n":
            raise InvalidRequest("a chunk does not end with CRLF")
    left = _MAX_TRAILERS
    while (line := (yield from _line(source, left, "the trailers are too long", 431))) != b"\r\n":
        left -= len(line)
        if not FIELD_LINE.fullmatch(line):
            raise InvalidRequest("a trailer is not valid")


def _line(source: Input, limit: int, reason: str, status: int) -> Generator[bytes, None, bytes]:
    """Take a line of at most *limit* bytes from *source*; yield b"" while it is not complete."""
    while not (end := source.buffer.find(b"\n", 0, limit) + 1):
        if len(source.buffer) >= limit:
            raise InvalidRequest(reason, status)
        if not source.more():
            yield b""
    line = bytes(source.buffer[:end])
    del source.buffer[:end]
    return line

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
from xapi_cli.http.messages import Body
from xapi_cli.request.body.spool import Spool

BLOCK = 65_536
_REQUEST_LINE = re.compile(rb"(%b) ([\x21-\x7e]+) HTTP/1\.([01])\r\n" % TOKEN.encode())
_END = b"\r\n\r\n"
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_MAX_LINE = 4096  # bytes of a line between chunks, or of a trailer
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
    """The request line and headers; *length* is None if the body is chunked.

    The names in *fields* are as the client sent them.
    """

    method: str
    target: str
    fields: tuple[tuple[bytes, bytes], ...]
    length: int | None
    is_http_1_0: bool  # such a client, as nginx and ab are by default, gets each response on a connection of its own

    @property
    def persists(self) -> bool:
        """Whether another request may follow on the connection."""
        return not self.is_http_1_0 and b"close" not in self.listed(b"connection")

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for 100 Continue before it sends the body."""
        return (self.get(b"expect") or "").lower() == "100-continue"

    def get(self, name: bytes) -> str | None:
        """Return the first value of the header *name* (in lower case), or None."""
        return next((value.decode("latin-1") for each, value in self.fields if each.lower() == name), None)

    def listed(self, name: bytes) -> set[bytes]:
        """Return the elements, in lower case, of all headers *name* (in lower case), which are lists."""
        values = [value for each, value in self.fields if each.lower() == name]
        return {element.strip().lower() for value in values for element in value.split(b",")} - {b""}


class Input:
    """What the client on *sock* sends; *timeout*, in seconds, limits the time for one request line with its headers."""

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        self._socket, self._timeout = sock, timeout
        self.buffer = bytearray()

    def head(self) -> RequestHead | None:
        """Return the next request line with its headers, None at the end of the input; raises InvalidRequest."""
        expires = None  # the wait for a request is not limited
        while (end := self.buffer.find(_END, 0, MAX_HEADER_SIZE)) < 0:
            size = len(self.buffer)
            if size > MAX_HEADER_SIZE:
                raise InvalidRequest("the request line and headers are too long", 431)
            if self.buffer.startswith(TLS_RECORDS):
                raise InvalidRequest("the request line is not valid; the proxy serves http, not https")
            if b"\n\n" in self.buffer:
                raise InvalidRequest("a line does not end with CRLF")
            if size and expires is None:
                expires = time.monotonic() + self._timeout
            if not self._receive(None if expires is None else expires - time.monotonic()):
                raise InvalidRequest(f"the headers of the request were not complete within {self._timeout:g} s", 408)
            if len(self.buffer) == size:
                return None
        text = bytes(self.buffer[: end + len(_END)])
        del self.buffer[: len(text)]
        return _parsed(text)

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
        # With at most 256 clients, descriptors are below 1024.
        if seconds is not None and not select.select([self._socket], [], [], max(seconds, 0.0))[0]:
            return False
        self.buffer += self._socket.recv(BLOCK)
        return True


def _parsed(text: bytes) -> RequestHead:
    line = _REQUEST_LINE.match(text)
    if line is None:
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
    method, target, is_http_1_0 = line[1].decode("ascii"), line[2].decode("ascii"), line[3] == b"0"
    if is_http_1_0 and b"transfer-encoding" in values:
        raise InvalidRequest("an HTTP/1.0 request has a Transfer-Encoding")
    return RequestHead(method, target, tuple(fields), _length(values), is_http_1_0)


def _length(values: dict[bytes, bytes]) -> int | None:
    """Return the length of the body, None if it is chunked (RFC 9112, section 6)."""
    length, coding = values.get(b"content-length"), values.get(b"transfer-encoding")
    if coding is not None:
        if length is not None:
            raise InvalidRequest("the request has Content-Length and Transfer-Encoding")
        if coding.lower() != b"chunked":
            raise InvalidRequest("the Transfer-Encoding is not supported", 501)
        return None
    if length is None:
        return 0
    if not length.isdigit() or len(length) > 18:
        raise InvalidRequest("the Content-Length is not valid")
    return int(length)


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
        found = _CHUNK_LINE.fullmatch((yield from _line(source)))
        if found is None:
            raise InvalidRequest("the length of a chunk is not valid")
        size = int(found[1], 16)
        if not size:
            break
        yield from _parts(source, size)
        if (yield from _line(source)) != b"\r\n":
            raise InvalidRequest("a chunk does not end with CRLF")
    while (line := (yield from _line(source))) != b"\r\n":
        if not FIELD_LINE.fullmatch(line):
            raise InvalidRequest("a trailer is not valid")


def _line(source: Input) -> Generator[bytes, None, bytes]:
    """Take a line from *source*; yield b"" while it is not complete."""
    while not (end := source.buffer.find(b"\n", 0, _MAX_LINE) + 1):
        if len(source.buffer) >= _MAX_LINE:
            raise InvalidRequest("a line between chunks is too long")
        if not source.more():
            yield b""
    line = bytes(source.buffer[:end])
    del source.buffer[:end]
    return line

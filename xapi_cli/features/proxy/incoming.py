"""The requests of clients, parsed with h11 and stricter rules, and their bodies, which can be sent again.

A request that two parsers delimit differently can hide another one (request smuggling, RFC 9112, section 11.2). h11
repairs some of them: lines that end with LF, folded lines, control characters, and more than one length. So what a
server behind the proxy could read in another way is refused here, before h11 gets it.
"""

import re
import select
import socket
import time
from collections.abc import Iterator
from typing import NamedTuple

import h11

from xapi_cli.errors import NetworkError, OutputError
from xapi_cli.http.header_syntax import MAX_HEADER_SIZE, TLS_RECORDS
from xapi_cli.http.messages import Body, Headers
from xapi_cli.http.responses import BLANK_LINE, ChunkFraming
from xapi_cli.request.body.spool import Spool

_BLOCK = 65_536
_HEAD = re.compile(rb"[\x20-\x7e]+ HTTP/1\.[01]\r\n(?:[\x21-\x7e][\t\x20-\x7e\x80-\xff]*\r\n)*\r\n")
_FRAMING = re.compile(rb"\n((?:content[-_]length|transfer[-_]encoding):[^\r]*)", re.IGNORECASE)  # CGI reads _ as -
_VALID_FRAMING = re.compile(
    rb"(?:content-length:[ \t]*[0-9]{1,18}|transfer-encoding:[ \t]*chunked)[ \t]*", re.IGNORECASE
)
_CHUNK_HEADER = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_MAX_KEPT = 2**30  # bytes; a longer body cannot be sent again
_PAUSE = 0.05  # seconds without data after which the sender of a body may look for an early response


class Refusal(Exception):
    """The request is not forwarded; *status* is that of the response, *kind* and *message* are its content."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


class ClientLeft(Exception):
    """The client has closed the connection before its response was complete."""


class RequestHead(NamedTuple):
    """The request line and headers, with names as the client sent them; *length* is None if the body is chunked."""

    method: str
    target: str
    headers: Headers
    length: int | None
    is_http_1_0: bool  # such a client, as nginx and ab are by default, gets each response on a connection of its own


class Input:
    """What the client on *sock* sends; *timeout*, in seconds, limits the time for one request line with its headers."""

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        self._socket, self._timeout = sock, timeout
        self._protocol: h11.Connection  # for one request
        self._chunks: ChunkFraming | None = None
        self.buffer = bytearray()

    def head(self) -> RequestHead | None:
        """Return the next request line with its headers, None at the end of the input; raises Refusal."""
        self._protocol = h11.Connection(h11.SERVER)
        size, expires = 0, None  # the wait for a request is not limited
        while not (blank := BLANK_LINE.search(self.buffer, max(size - 2, 0), MAX_HEADER_SIZE)):
            size = len(self.buffer)
            if size >= MAX_HEADER_SIZE:
                raise Refusal(431, "request", "the request line and headers are too long")
            if self.buffer.startswith(TLS_RECORDS):
                raise Refusal(400, "request", "the request line is not valid; the proxy serves http, not https")
            if size and expires is None:
                expires = time.monotonic() + self._timeout
            if not self._receive(None if expires is None else expires - time.monotonic()):
                raise Refusal(
                    408, "request", f"the headers of the request were not complete within {self._timeout:g} s"
                )
            if len(self.buffer) == size:
                return None
        text = bytes(self.buffer[: blank.end()])
        del self.buffer[: len(text)]
        return self._parse(text)

    def _parse(self, text: bytes) -> RequestHead:
        if not _HEAD.fullmatch(text):
            raise Refusal(400, "request", "a line of the headers is not valid, or does not end with CRLF")
        framing = _FRAMING.findall(text)
        if len(framing) > 1 or (framing and not _VALID_FRAMING.fullmatch(framing[0])):
            raise Refusal(400, "request", "the length of the body is ambiguous, not valid, or not supported")
        self._protocol.receive_data(text)
        try:
            request = self._protocol.next_event()
        except h11.RemoteProtocolError as error:
            raise _refusal(error) from None
        assert isinstance(request, h11.Request)  # noqa: S101 - h11 returns no other event for complete headers
        headers = Headers(request.headers.raw_items())
        is_chunked, is_http_1_0 = "Transfer-Encoding" in headers, request.http_version == b"1.0"
        if is_chunked and is_http_1_0:
            raise Refusal(400, "request", "an HTTP/1.0 request has a Transfer-Encoding")
        self._chunks = ChunkFraming(_CHUNK_HEADER) if is_chunked else None
        length = None if is_chunked else int(headers.get("Content-Length", "0"))
        if length == 0:
            self._protocol.next_event()  # the end of the request
        return RequestHead(request.method.decode(), request.target.decode(), headers, length, is_http_1_0)

    @property
    def allows_next(self) -> bool:
        """Whether another request may follow: the last one is valid and complete, and its connection persists."""
        return self._protocol.their_state not in (h11.IDLE, h11.SEND_BODY, h11.MUST_CLOSE, h11.ERROR)

    def body(self) -> Iterator[bytes]:
        """Yield the body of the request as it arrives, and b"" while the client pauses.

        Raises ClientLeft, or Refusal.
        """
        if self._protocol.they_are_waiting_for_100_continue and not self.buffer:
            self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            while not isinstance(event := self._protocol.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Data):
                    yield bytes(event.data)
                elif self._chunks is not None and self._chunks.error:
                    raise Refusal(400, "request", self._chunks.error)
                elif self.buffer or self._receive_more():
                    self._parse_body()
                else:
                    yield b""
        except h11.RemoteProtocolError as error:
            raise _refusal(error) from None
        self.buffer[:0] = self._protocol.trailing_data[0]

    def _parse_body(self) -> None:
        data = bytes(self.buffer)
        self.buffer.clear()
        if self._chunks is not None:
            data = self._chunks.for_h11(data)
        if data:
            self._protocol.receive_data(data)

    def _receive_more(self) -> bool:
        """Append more data to the buffer; return False if there is none at the moment.

        Raises ClientLeft at the end of the input.
        """
        if not self._receive(_PAUSE):
            return False
        if not self.buffer:
            raise ClientLeft
        return True

    def has_ended(self) -> bool:
        """Return whether the client has closed the connection; call it when the socket is readable."""
        return not self.buffer and not self._socket.recv(1, socket.MSG_PEEK)

    def drain(self, limit: int, seconds: float) -> None:
        """Discard what the client still sends of an incomplete request, for *seconds* and up to *limit* bytes."""
        if self._protocol.their_state is h11.MUST_CLOSE:
            return
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
        self.buffer += self._socket.recv(_BLOCK)
        return True


def _refusal(error: h11.RemoteProtocolError) -> Refusal:
    """Return the refusal of a request because of *error*, without the data that h11 quotes."""
    error.with_traceback(None)  # its frame in h11 refers to it, and to all callers, which have the request
    return Refusal(400, "request", f"the request is not valid HTTP ({str(error).partition(': b')[0]})")


class Upload(Body):
    """The body of a request, read from *source* while it is sent, with a copy that can be sent again after a 401.

    *length* is None for a chunked body. Iteration yields b"" while the client pauses; it raises ClientLeft,
    Refusal, or NetworkError if the body is too large to be sent again.
    """

    def __init__(self, source: Input, length: int | None) -> None:
        super().__init__(length or 0)
        self.is_chunked = length is None
        self._parts = source.body()
        self._copy: Spool | None = Spool(())

    def __iter__(self) -> Iterator[bytes]:
        if self._copy is None:
            raise NetworkError(
                "the token was rejected, and the body is too large to be sent again", hint="send it again"
            )
        yield from self._copy
        for part in self._parts:
            self._keep(part)
            yield part

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

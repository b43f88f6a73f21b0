"""Parse one response from bytes, without I/O, with h11 and the stricter rules that it leaves to its user.

What h11 does not do, and what therefore stands here:

- It waits for more where no HTTP/1 response can follow: after the banner of an SSH or SMTP server, or of HTTP/2. So the
  start of each status line is checked, including after an informational response.
- Its size limit does not count informational responses and headers that are complete. So the bytes are counted here.
- Its pattern for the header of a chunk takes quadratic time, it waits for a CRLF after a bare LF, and it takes 6 µs for
  a chunk of any length. So the framing of chunks is read here; h11 gets the data of each block as one chunk, and the
  trailers, in which it detects all errors.
- Its messages quote the server. So they are cut at the colon.
"""

import re

import h11

from xapi_cli.errors import RESEND, NetworkError
from xapi_cli.http.header_syntax import MAX_HEADER_SIZE, TLS_RECORDS

CLOSED = "connection closed by the server"
BLANK_LINE = re.compile(rb"\n\r?\n")
_VERSIONS = (b"HTTP/1.1 ", b"HTTP/1.0 ")
_VERSION_LENGTH = len(_VERSIONS[0])
_HTTP2 = (b"\x00", b"\x00\x00")  # how a server begins that supports only HTTP/2: with the length of a frame
_CHUNK_HEADER = re.compile(rb"([0-9A-Fa-f]{1,20})[ \t]*(?:;[^\r\n]*)?\r\n")  # int() also accepts a sign and underscores
_DESCRIPTIONS = {  # better ones than the messages of h11
    "Received server _SWITCH_UPGRADE event without a pending proposal": "a switch to another protocol",
    "Only Transfer-Encoding": "an unknown transfer coding",
    "illegal request line": "illegal status line",
    "InformationalResponse status_code": "a status under 100",
}


class ResponseHead:
    """The status line and headers of a response."""

    def __init__(self, event: h11.Response) -> None:
        self.status, self.raw_headers = event.status_code, event.headers.raw_items()
        self.reason, self.version = bytes(event.reason), bytes(event.http_version)
        self.headers = dict(event.headers)  # by lowercase name, the last one of each


class ResponseParser:
    """Parse the response to *request*; *sender* names the server or proxy in messages.

    `request_head` is what is sent of the request before its body. Without *over_tls*, a TLS record in place of a
    response is detected.
    """

    def __init__(self, request: h11.Request, sender: object, *, over_tls: bool) -> None:
        self.head: ResponseHead | None = None
        self.has_started = self.has_ended = False
        self.size = 0  # bytes of the body returned so far
        self._method, self._sender, self._over_tls = request.method, sender, over_tls
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEADER_SIZE)
        self.request_head = self._protocol.send(request) or b""
        self._buffer = bytearray()  # of the status line and headers
        self._searched = 0  # the buffer has no blank line before this position
        self._header_size = 0
        self._chunks: ChunkFraming | None = None
        self._end: str | None = None  # why no more data will arrive
        self._error: str | None = None  # what is invalid in the body

    def receive(self, data: bytes) -> None:
        """Process *data*; raises NetworkError if the status line and headers are not valid."""
        if self.head is None:
            data = self._receive_headers(data)
        if self._chunks and data:
            data = self._chunks.for_h11(data)
        if data:
            self._protocol.receive_data(data)

    def close(self, reason: str = CLOSED, *, is_clean: bool = True) -> None:
        """Process the end of the connection; without *is_clean*, it broke, or TLS did not end with close_notify.

        Raises NetworkError if the status line and headers are not complete.
        """
        self._end = reason
        if self.head is None:
            how = "in the middle of its response" if self.has_started else "without a response"
            raise NetworkError(f"{self._sender} closed the connection {how}")
        if is_clean:
            self._protocol.receive_data(b"")
        else:
            self._error = self._error or reason

    def body(self) -> bytes:
        """Return the body data received since the last call, and record the end of the body.

        Raises NetworkError if the body is truncated or not valid, after all valid data was returned.
        """
        parts: list[bytes] = []
        while not self.has_ended:
            try:
                event = self._protocol.next_event()
            except h11.RemoteProtocolError as error:
                self._error = self._end or _describe(str(error))
                break
            if event is h11.NEED_DATA:
                self._error = self._error or (self._chunks.error if self._chunks else None)
                break
            if isinstance(event, h11.Data):
                parts.append(event.data)
            else:
                self.has_ended = True
        if self._error and not parts and not self.has_ended:  # the data before the error is returned first
            raise self._truncated(self._error)
        block = b"".join(parts)
        self.size += len(block)
        return block

    def _truncated(self, reason: str) -> NetworkError:
        problem = f"the body from {self._sender} was truncated after {self.size:,} bytes ({reason})"
        error = NetworkError(problem, headers_received=True)
        error.default_hint = RESEND
        headers = self.head.headers if self.head else {}
        error.may_be_complete = not (self._chunks or b"content-length" in headers)
        return error

    @property
    def has_surplus(self) -> bool:
        """Whether bytes arrived after the end of the response."""
        return bool(self._protocol.trailing_data[0])

    @property
    def allows_reuse(self) -> bool:
        """Whether the connection may carry another request: the response is complete, without surplus bytes.

        A response that must not have a body, but declares one, does not allow it: the server may send it anyway. Nor
        does one with both Content-Length and Transfer-Encoding, which is ambiguous (RFC 9112, section 6.3).
        """
        if self.head is None or not self.has_ended or self.has_surplus:
            return False
        if self._protocol.their_state is not h11.DONE:  # the connection ends with the response
            return False
        length = self.head.headers.get(b"content-length")
        is_chunked = b"transfer-encoding" in self.head.headers
        if self._method == b"HEAD" or self.head.status in (204, 304):
            return not is_chunked and length in (None, b"0")
        return not (is_chunked and length is not None) and not (self._chunks and self._chunks.error)

    def _receive_headers(self, data: bytes) -> bytes:
        """Parse status lines and headers in *data*; return the bytes after those of the final response."""
        self._over_tls = self._over_tls or self.has_started  # a TLS record is detected by its first byte only
        self.has_started = True
        self._buffer += data
        while self.head is None:
            self._check_start()
            blank = BLANK_LINE.search(self._buffer, self._searched)
            size = self._header_size + (blank.end() if blank else len(self._buffer) + 1)
            if size > MAX_HEADER_SIZE:
                raise self._invalid(f"status line and headers of more than {MAX_HEADER_SIZE:,} bytes")
            if blank is None:
                self._searched = max(0, len(self._buffer) - 2)
                return b""
            self._header_size = size
            self._parse(bytes(self._buffer[: blank.end()]))
            del self._buffer[: blank.end()]
            self._searched = 0
        rest, self._buffer = bytes(self._buffer), bytearray()
        return rest

    def _check_start(self) -> None:
        """Reject another protocol or version at its first bytes, because the end of its headers cannot be detected."""
        start = bytes(self._buffer[:_VERSION_LENGTH])
        if any(version.startswith(start) for version in _VERSIONS):
            return
        if start.startswith(b"HTTP/"):
            raise self._invalid("an HTTP version other than 1.0 and 1.1")
        if start[:2] in _HTTP2:
            raise self._invalid("HTTP/2", hint="xapi needs a server or gateway that supports HTTP/1.1")
        is_tls = not self._over_tls and start.startswith(TLS_RECORDS)
        raise self._invalid("illegal status line", hint="use https in the base URL" if is_tls else None)

    def _parse(self, head: bytes) -> None:
        """Parse *head*, a complete status line with headers."""
        self._protocol.receive_data(head)
        try:
            event = self._protocol.next_event()
        except h11.RemoteProtocolError as error:
            error.with_traceback(None)  # its frame in h11 refers to it, and to all callers
            raise self._invalid(_describe(str(error))) from error
        if isinstance(event, h11.InformationalResponse):
            if event.status_code == 101:
                raise self._invalid("a switch to another protocol")
            return
        assert isinstance(event, h11.Response)  # noqa: S101 - h11 returns no other event for complete headers
        self.head = ResponseHead(event)
        if b"transfer-encoding" in self.head.headers:
            self._chunks = ChunkFraming()

    def _invalid(self, error: str, hint: str | None = None) -> NetworkError:
        problem = f"the response from {self._sender} is not valid HTTP ({error})"
        return NetworkError(problem, hint=hint or "check the host and port of the base URL", headers_received=True)


class ChunkFraming:
    """Read the framing of a chunked body: the data of each block becomes one chunk, and trailers stay as they are.

    *header* matches the line before a chunk, and its first group the length.
    """

    def __init__(self, header: re.Pattern[bytes] = _CHUNK_HEADER) -> None:
        self.error: str | None = None
        self._header = header
        self._line = bytearray()  # an incomplete chunk header or trailer
        self._chunk_rest = 0  # bytes of the chunk that have not arrived
        self._chunk_end = b""  # bytes that must follow it
        self._trailers: int | None = None  # their size in bytes, None before the last chunk
        self._has_ended = False

    def for_h11(self, data: bytes) -> bytes:
        """Return what h11 receives in place of *data*, up to the first invalid or incomplete line."""
        content: list[bytes] = []
        lines: list[bytes] = []
        at = 0
        while at < len(data) and self.error is None:
            if self._chunk_rest:
                content.append(data[at : at + self._chunk_rest])
                at += len(content[-1])
                self._chunk_rest -= len(content[-1])
            elif self._chunk_end:
                at += self._end_chunk(data[at : at + len(self._chunk_end)])
            elif self._has_ended:
                lines.append(data[at:])
                break
            else:
                at = self._read_line(data, at, lines)
        if chunk := b"".join(content):
            lines.insert(0, b"%x\r\n%s\r\n" % (len(chunk), chunk))
        return b"".join(lines)

    def _end_chunk(self, found: bytes) -> int:
        """Check that *found* is the CRLF after the chunk, or a part of it; return its length."""
        if not self._chunk_end.startswith(found):
            self.error = "malformed chunk footer"
        self._chunk_end = self._chunk_end[len(found) :]
        return len(found)

    def _read_line(self, data: bytes, at: int, lines: list[bytes]) -> int:
        """Process the line at *at*, add what h11 receives in its place to *lines*, and return where it ends."""
        header = None if self._line or self._trailers is not None else self._header.match(data, at)
        if header is not None and header.end() - at <= MAX_HEADER_SIZE and self._begin_chunk(header):
            return header.end()
        end = data.find(b"\n", at) + 1 or len(data)
        self._line += data[at:end]
        self.error = self._line_error()
        if self.error is None and self._line.endswith(b"\n"):
            lines.append(self._end_line(bytes(self._line)))
            self._line.clear()
        return end

    def _line_error(self) -> str | None:
        if len(self._line) + (self._trailers or 0) > MAX_HEADER_SIZE:
            return "a line that is too long"
        if self._line.endswith(b"\n") and not self._line.endswith(b"\r\n"):
            return "a line feed without a carriage return between chunks"
        return None

    def _end_line(self, line: bytes) -> bytes:
        """Process the complete *line*, and return what h11 receives in its place."""
        if self._trailers is not None:
            self._trailers += len(line)
            self._has_ended = line == b"\r\n"
            return line
        header = self._header.fullmatch(line)
        if header is None:
            self.error = "illegal chunk header"
        elif not self._begin_chunk(header):
            self._trailers = 0
            return b"0\r\n"
        return b""

    def _begin_chunk(self, header: re.Match[bytes]) -> bool:
        """Begin the chunk after *header*; return whether it is not the last one."""
        self._chunk_rest = int(header[1], 16)
        self._chunk_end = b"\r\n" if self._chunk_rest else b""
        return bool(self._chunk_rest)


def _describe(error: str) -> str:
    """Return a description of h11's *error*, without the data from the server that h11 quotes after a colon."""
    error = error.partition(":")[0]
    descriptions = [text for start, text in _DESCRIPTIONS.items() if error.startswith(start)]
    return descriptions[0] if descriptions else error[:1].lower() + error[1:]

"""The body of a request to the test server, which http.server leaves to be read (RFC 9112, section 6)."""

import time
from collections.abc import Callable, Iterator
from email.message import Message
from io import BufferedIOBase

_CHUNK = 64 * 1024  # bytes
_LINE = 1024  # bytes
_DISCARD_TIME = 5  # seconds


class InvalidBody(Exception):
    """The request body is truncated, too large or incorrectly framed; the connection cannot be reused."""


class RequestBody:
    """Reads the body of the request with *headers* from *file*, at most once.

    *send_continue* sends 100 Continue; it is None if the client does not wait for it (RFC 9110, section 10.1.1).
    """

    def __init__(self, file: BufferedIOBase, headers: Message, send_continue: Callable[[], None] | None) -> None:
        self.was_read = False
        self._file, self._headers, self._send_continue = file, headers, send_continue

    def chunks(self, limit: int | None = None) -> Iterator[bytes]:
        """Yield the body in chunks; raises InvalidBody, even if it has more than *limit* bytes."""
        if self._send_continue is not None:
            self._send_continue()
        self.was_read = True
        length = 0
        for chunk in self._framed():
            length += len(chunk)
            if limit is not None and length > limit:
                raise InvalidBody(f"the body is larger than {limit} bytes")
            yield chunk

    def discard(self) -> None:
        """Read and ignore an unread body for a limited time; raises InvalidBody."""
        self.was_read = True
        end = time.monotonic() + _DISCARD_TIME
        for _ in self._framed():
            if time.monotonic() > end:
                break

    @property
    def is_expected(self) -> bool:
        """Return whether the client waits for 100 Continue before it sends the body."""
        return self._send_continue is not None

    @property
    def is_small(self) -> bool:
        """Return whether the body is known to be so short that it can be discarded quickly."""
        length = self._headers.get("Content-Length", "0")
        known = "Transfer-Encoding" not in self._headers and length.isascii() and length.isdigit()
        return known and int(length) <= (0 if self.is_expected else _CHUNK)

    def _framed(self) -> Iterator[bytes]:
        coding, length = self._headers.get("Transfer-Encoding"), self._headers.get("Content-Length")
        if coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise InvalidBody("the length of the body is ambiguous")
            yield from self._chunked()
        elif length is not None:
            if not (length.isascii() and length.isdigit()) or len(self._headers.get_all("Content-Length", [])) > 1:
                raise InvalidBody("Content-Length is not a valid number")
            yield from self._exactly(int(length))

    def _chunked(self) -> Iterator[bytes]:
        while size := self._chunk_size():
            yield from self._exactly(size)
            if self._file.readline(3) != b"\r\n":
                raise InvalidBody("a chunk is longer than its size")
        while self._file.readline(_LINE) not in {b"\r\n", b"\n", b""}:
            pass  # trailers

    def _chunk_size(self) -> int:
        digits = self._file.readline(_LINE).split(b";")[0].strip()
        if not digits or digits.strip(b"0123456789abcdefABCDEF"):
            raise InvalidBody("the size of a chunk is not a valid number")
        return int(digits, 16)

    def _exactly(self, length: int) -> Iterator[bytes]:
        while length:
            data = self._file.read(min(length, _CHUNK))
            if not data:
                raise InvalidBody("the body is truncated")
            length -= len(data)
            yield data

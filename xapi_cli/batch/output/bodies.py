"""Convert the body of a response to a member of an output line: JSON unchanged, else text, else base64.

A short body is converted immediately. A long one is examined in small steps, so that
other work can be interleaved, and written in chunks: neither its decoded form nor its
JSON form, which may be thousands of times as large, is usually ever completely in memory.
The exception is the decoded form of a body that takes many steps to decode, however few
bytes it has: it is decoded once, because writing it cannot be interleaved.
"""

import codecs
import json
import re
from base64 import b64encode
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import lru_cache

from xapi_cli.batch.responses import MAX_BODY, BufferedResponse, body_too_large
from xapi_cli.http.content_coding import decode_steps
from xapi_cli.http.response_parser import ResponseHead
from xapi_cli.request.json.syntax import check, encode_string, validated

_JSON_TYPE = re.compile(r"application/(?:[\w!#$&^.+-]+\+)?json|text/json", re.ASCII)
_TEXT_TYPE = re.compile(
    r"text/.*|(?:.*[/+])(?:json|xml|javascript|x-www-form-urlencoded|yaml|x-ndjson|graphql|csv)|", re.ASCII
)
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([\w.:+-]+)", re.ASCII | re.IGNORECASE)
_REJECTED_CODECS = {
    "idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs", "oem",
    "utf-7",  # incremental decoding takes quadratic time, and it is not a web encoding (encoding.spec.whatwg.org)
}  # fmt: skip
_SHORT = 64 * 1024  # bytes, both before and after content decoding
_MAX_SHORT_STEPS = 100  # decoding steps; 100 responses may be ready at the same time, and a usual one takes 4
_STEP_SIZE = 8 * 1024  # bytes; the slowest check processes them in a few milliseconds
_MAX_PARSED = 1024 * 1024  # characters; a larger text is checked in chunks, which is slower but saves memory
_MAX_PARSED_BYTES = 4 * _MAX_PARSED
_MAX_STEPS = 1000  # decoding steps in one pass without other work; a usual body of MAX_BODY bytes has 320
_WHITESPACE = b" \t\r\n"
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")

JSON_KEY = b'"json": '  # the first chunk of the member for a body that is JSON

Chunks = Iterator[bytes]


def short_member(response: BufferedResponse) -> bytes | None:
    """Return the output member for the body of *response*, or None if that may take long.

    Raises NetworkError if the body cannot be decoded.
    """
    if len(response.body) > _SHORT:
        return None
    is_coded = response.body and b"content-encoding" in response.head.headers
    body = _decoded_short(response) if is_coded else response.body
    if body is None:
        return None
    content_type = _content_type(response.head.headers.get(b"content-type", b""))
    try:
        if body and content_type.is_json and (text := _json(body)) is not None:
            return JSON_KEY + text
    except RecursionError:  # it takes long to check that many levels
        return None
    if (content_type.is_text or not body) and (quoted := _quoted(body, content_type.charset)) is not None:
        return b'"text": ' + quoted
    return b'"base64": "%s"' % b64encode(body)


def long_member(response: BufferedResponse) -> Generator[int | None, None, Callable[[], Chunks]]:
    """Examine the body of *response* in small steps; return a function that generates its member in chunks.

    A step yields the bytes of memory that the next steps need, in addition to the body, if there are any; the number is
    negative if they are needed no longer. A body that takes many steps to decode is replaced by its decoded form.
    Raises NetworkError if the body cannot be decoded or is too large after decoding.
    """
    return (yield from _LongBody(response).member())


class _ContentType:
    """The type and charset of a body, from the Content-Type header."""

    def __init__(self, value: bytes) -> None:
        content_type = value.decode("latin-1").strip()
        media_type = content_type.partition(";")[0].strip().lower()
        found = _CHARSET.search(content_type)
        self.charset = found[1] if found else "utf-8"
        self.is_json = _JSON_TYPE.fullmatch(media_type) is not None
        self.is_text = found is not None or _TEXT_TYPE.fullmatch(media_type) is not None


_content_type = lru_cache(maxsize=16)(_ContentType)  # a server sends few different ones


def _coding(head: ResponseHead) -> str:
    if b"content-encoding" not in head.headers:
        return ""
    return ", ".join(value.decode("latin-1") for name, value in head.raw_headers if name.lower() == b"content-encoding")


# short bodies


def _decoded_short(response: BufferedResponse) -> bytearray | None:
    """Return the decoded body of *response*, or None if it is not short."""
    body = bytearray()
    for step, block in enumerate(decode_steps([bytes(response.body)], _coding(response.head))):
        body += block
        if len(body) > _SHORT or step == _MAX_SHORT_STEPS:
            return None
    return body


def _json(body: bytes | bytearray) -> bytes | None:
    """Return *body* as JSON on one line, with all values unchanged, or None if it is not valid JSON.

    Raises RecursionError for more levels than a decoder supports.
    """
    try:
        text = body.removeprefix(codecs.BOM_UTF8).decode()  # ten times as fast as the codec utf-8-sig
        check(text)
    except ValueError:  # also raised for invalid UTF-8
        return None
    return text.strip().replace("\r", " ").replace("\n", " ").encode()  # only outside strings, as whitespace


def _quoted(body: bytes | bytearray, charset: str) -> bytes | None:
    """Return *body*, decoded with *charset*, as a JSON string, or None if it cannot be decoded."""
    try:
        if codecs.lookup(charset).name in _REJECTED_CODECS:
            return None
        return json.dumps(body.decode(charset), ensure_ascii=False).encode()  # raises ValueError for a lone surrogate
    except (LookupError, ValueError):
        return None


# long bodies


class _LongBody:
    """The long body of *response*; each pass over it decodes it again, unless that takes many steps."""

    def __init__(self, response: BufferedResponse) -> None:
        self._response = response
        self._body, self._coding, self._content_type = (
            response.body,
            _coding(response.head),
            _content_type(response.head.headers.get(b"content-type", b"")),
        )
        self._size = 0  # of the decoded body

    def member(self) -> Generator[int | None, None, Callable[[], Chunks]]:
        if (yield from self._takes_many_steps()):
            yield from self._decode()
        if self._content_type.is_json and (yield from self._is_json()):
            start, end = yield from self._inner()
            return lambda: self._json(start, end)
        if (self._content_type.is_text or not self._size) and (yield from self._is_text()):
            return self._text
        return self._base64

    def _blocks(self) -> Chunks:
        """Yield the decoded body in blocks; some are empty, so that no step takes long."""
        return decode_steps(self._raw(), self._coding) if self._coding else self._raw()

    def _raw(self) -> Chunks:
        view = memoryview(self._body)
        for at in range(0, len(view), _SHORT):
            yield bytes(view[at : at + _SHORT])

    def _texts(self, charset: str) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder(charset)()
        for block in self._blocks():
            for at in range(0, len(block) or 1, _STEP_SIZE):
                yield decoder.decode(block[at : at + _STEP_SIZE])
        yield decoder.decode(b"", final=True)

    def _utf8(self) -> Chunks:
        """Yield the body as UTF-8, without a byte order mark."""
        for text in self._texts("utf-8-sig"):
            yield text.encode()

    # steps

    def _takes_many_steps(self) -> Generator[None, None, bool]:
        """Return whether the body takes many steps to decode; otherwise, measure it."""
        for step, block in enumerate(self._blocks()):
            if step == _MAX_STEPS:
                return True
            self._add_size(len(block))
            yield
        return False

    def _decode(self) -> Iterator[int | None]:
        """Replace the body by its decoded form."""
        yield MAX_BODY
        self._size = 0
        body = bytearray()
        for block in self._blocks():
            self._add_size(len(block))
            body += block
            yield None
        unneeded = MAX_BODY - len(body) + len(self._body)
        self._response.body = self._body = body
        self._coding = ""
        yield -unneeded

    def _add_size(self, size: int) -> None:
        self._size += size
        if self._size > MAX_BODY:
            raise body_too_large()

    def _is_json(self) -> Generator[None, None, bool]:
        try:
            if self._size <= _MAX_PARSED_BYTES:
                text = b"".join(self._blocks()).decode("utf-8-sig")
                with suppress(RecursionError):
                    if len(text) <= _MAX_PARSED:
                        check(text)
                        return True
                del text
            yield
            for _ in validated(self._texts("utf-8-sig")):
                yield
        except ValueError:  # InvalidJSON, or invalid UTF-8
            return False
        return True

    def _is_text(self) -> Generator[None, None, bool]:
        charset = self._content_type.charset
        try:
            if codecs.lookup(charset).name in _REJECTED_CODECS:
                return False
            b"0000".decode(charset, "ignore")  # raises LookupError for a codec that does not decode to text
            for text in self._texts(charset):
                text.encode()  # raises ValueError for a lone surrogate
                yield
        except (LookupError, ValueError):
            return False
        return True

    def _inner(self) -> Generator[None, None, tuple[int, int]]:
        """Return the start and end of the JSON text, without surrounding whitespace, in bytes."""
        start = end = at = 0
        for block in self._utf8():
            if not end:
                start = at + len(block) - len(block.lstrip(_WHITESPACE))
            if inner := block.rstrip(_WHITESPACE):
                end = at + len(inner)
            at += len(block)
            yield
        return start, end

    # output chunks

    def _json(self, start: int, end: int) -> Chunks:
        yield JSON_KEY
        at = 0
        for block in self._utf8():
            yield block[max(0, start - at) : max(0, end - at)].translate(_ONE_LINE)
            at += len(block)

    def _text(self) -> Chunks:
        yield b'"text": '
        for piece in encode_string(self._texts(self._content_type.charset)):
            yield piece.encode()

    def _base64(self) -> Chunks:
        yield b'"base64": "'
        rest = b""
        for block in self._blocks():
            data = rest + block
            whole = len(data) - len(data) % 3
            rest = data[whole:]
            yield b64encode(data[:whole])
        yield b64encode(rest) + b'"'

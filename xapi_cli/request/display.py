"""The display of a body: indented JSON; on a terminal, text without control sequences, or a note on binary data.

A terminal gets text only, and a single JSON document up to a limit is indented as a whole.
"""

import json
import re
from codecs import IncrementalDecoder, getincrementaldecoder, lookup
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from xapi_cli.errors import XapiError
from xapi_cli.request.jq.event_stream import is_record_stream
from xapi_cli.request.json.pretty import formatted, pretty
from xapi_cli.request.json.syntax import InvalidJSON, validated
from xapi_cli.system.render import escape_json, printable, size

MAX_INDENTED = 4 * 1024 * 1024  # bytes; a larger document is shown unformatted, as it arrives
_MAX_PROBED = 64 * 1024  # bytes; a body that is valid JSON up to here is treated as such
_KEPT_CHARACTERS = "\n\t"
_BINARY = re.compile(
    r"\s*(image/(?!svg)|audio/|video/|font/|application/(pdf|zip|gzip|x-(gzip|tar|bzip2?|xz|7z-compressed))\s*(;|$))",
    re.IGNORECASE,
)
_CHARSET = re.compile(r""";\s*charset\s*=\s*["']?([\w.:-]+)""", re.ASCII | re.IGNORECASE)
_CHARSETS = re.compile(
    r"iso-8859-\d+|latin-?[19]|windows-(125\d|874)|koi8-[ru]|macintosh|shift[_-]jis|euc-(jp|kr)|gb2312|gbk|gb18030|big5"
    r"|utf-(16|32)([lb]e)?"
)


def displayed(
    chunks: Iterable[bytes],
    *,
    colors: bool,
    note: Callable[[str], None],
    content_type: str = "",
    length: int | None = None,
) -> Iterator[str]:
    """Yield the text that a terminal shows for the body in *chunks*; report to *note* what is not shown.

    Text and JSON are detected from the bytes, unless *content_type* is that of a
    stream of records. Its charset is used only if the bytes are not valid UTF-8.
    A body that is not a single JSON document is shown as it arrives. Binary data,
    which a type such as image/png or the bytes show, is read no further; *length*
    is the size of the body, if it is known.
    """
    if _BINARY.match(content_type):
        note(_binary(length))
        return
    source, buffer = iter(chunks), bytearray()
    is_whole = False
    try:
        is_json = not is_record_stream(content_type) and _starts_as_json(source, buffer)
        if is_json:
            is_whole = _buffer_rest(source, buffer, MAX_INDENTED)
    except XapiError:  # the body is truncated: show what has arrived
        yield from _stream([bytes(buffer)], _charset(content_type), note, length)
        raise
    if is_json:
        shown = pretty(buffer.decode("utf-8-sig"), colors=colors) if is_whole and _is_text(buffer) else None
        if shown is not None:
            yield from shown
            yield "\n"
            return
    yield from _stream(chain([bytes(buffer)], source), _charset(content_type), note, length)


class Results:
    """The results of a filter, one JSON value for each line, as a terminal shows them.

    A result that is a string is shown without quotes.
    """

    def __init__(self, *, colors: bool) -> None:
        self._colors = colors

    def shown(self, lines: bytes) -> Iterator[str]:
        """Yield the text for complete *lines*."""
        for line in lines.decode("utf-8", "replace").split("\n")[:-1]:
            if line.startswith('"'):
                text: str = json.loads(line, strict=False)
                yield printable(text, keep=_KEPT_CHARACTERS)
            elif len(line) > MAX_INDENTED:
                yield escape_json(line)
            else:
                yield from formatted(line, colors=self._colors)
            yield "\n"


def _charset(content_type: str) -> str | None:
    """Return the codec for the charset that *content_type* names, or None if it is not one of the known charsets."""
    found = _CHARSET.search(content_type)
    name = found[1].lower() if found else ""
    if not _CHARSETS.fullmatch(name):  # Python also has codecs that are not charsets: idna, rot13
        return None
    try:
        return lookup(name).name
    except LookupError:
        return None


def _starts_as_json(source: Iterator[bytes], buffer: bytearray) -> bool:
    """Move data from *source* to *buffer*; return whether it starts a single JSON document."""
    decoder = getincrementaldecoder("utf-8-sig")()

    def texts() -> Iterator[str]:
        for chunk in source:
            buffer.extend(chunk)
            yield decoder.decode(chunk)

    try:
        for _ in validated(texts()):
            if b"\0" in buffer:
                return False
            if len(buffer) >= _MAX_PROBED:
                return True
    except (InvalidJSON, UnicodeDecodeError):
        return False
    return True


def _buffer_rest(source: Iterator[bytes], buffer: bytearray, limit: int) -> bool:
    """Move *source* to *buffer*, up to *limit* bytes; return whether *source* is exhausted."""
    while len(buffer) <= limit:
        chunk = next(source, None)
        if chunk is None:
            return True
        buffer.extend(chunk)
    return False


def _is_text(buffer: bytearray) -> bool:
    try:
        buffer.decode()
    except UnicodeDecodeError:
        return False
    return True


def _stream(
    chunks: Iterable[bytes], charset: str | None, note: Callable[[str], None], length: int | None
) -> Iterator[str]:
    text = _BodyText(charset)
    ended, held_back = True, ""
    for chunk in chunks:
        part = text.of(chunk)
        if part is None:
            if not ended:
                yield "\n"
            note(_binary(length))
            return
        part = held_back + part
        held_back = "\r" if part.endswith("\r") else ""  # possibly the first half of \r\n
        if part := _printable_text(part.removesuffix("\r")):
            yield part
            ended = part.endswith("\n")
    if last := _printable_text(held_back + text.end()):
        yield last
        ended = False
    if text.is_truncated:
        note("the body ends in the middle of a character")
    if not ended:
        yield "\n"


def _binary(length: int | None) -> str:
    amount = "" if length is None else f"{size(length)}, "
    return f"binary body, {amount}not shown; use -o FILE, or a pipe"


class _BodyText:
    """Decode a body as UTF-8; from the first invalid chunk on, use *charset*, if there is one."""

    def __init__(self, charset: str | None) -> None:
        self._charset = charset
        self._decoder: IncrementalDecoder = getincrementaldecoder("utf-8-sig")()
        self._is_wide = False  # UTF-16 or UTF-32: characters may contain NUL bytes

    def of(self, chunk: bytes) -> str | None:
        """Return the text of the next *chunk*, or None if it is binary."""
        text = None if b"\0" in chunk and not self._is_wide else _decoded(self._decoder.decode, chunk)
        if text is not None and "\0" not in text:
            return text
        buffer = self._decoder.getstate()[0]
        return self.of(buffer + chunk) if self._switch_to_declared_charset() else None

    def end(self) -> str:
        """Return the text of trailing bytes that are an incomplete UTF-8 character but valid in the charset."""
        buffer = self._decoder.getstate()[0]
        return (self.of(buffer) or "") if buffer and self._switch_to_declared_charset() else ""

    @property
    def is_truncated(self) -> bool:
        """Whether the body ends with an incomplete character."""
        return bool(self._decoder.getstate()[0])

    def _switch_to_declared_charset(self) -> bool:
        if self._charset is None:
            return False
        self._decoder = getincrementaldecoder(self._charset)()
        self._is_wide = self._charset.startswith(("utf-16", "utf-32"))
        self._charset = None
        return True


def _decoded(decode: Callable[[bytes], str], chunk: bytes) -> str | None:
    try:
        return decode(chunk)
    except UnicodeError:  # UTF-16 without a byte order mark raises UnicodeError
        return None


def _printable_text(text: str) -> str:
    return printable(text.replace("\r\n", "\n"), keep=_KEPT_CHARACTERS)

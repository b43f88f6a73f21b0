"""The display of a body: indented JSON; on a terminal, text without control sequences, or a note on binary data.

A terminal gets text only, and a single JSON document up to a limit is indented as a whole.
"""

import json
import re
from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from xapi_cli.errors import XapiError
from xapi_cli.request.json.pretty import formatted, pretty
from xapi_cli.request.media_types import codec_of, is_record_stream
from xapi_cli.system.render import escape_json, printable, size

MAX_INDENTED = 4 * 1024 * 1024  # bytes; a larger document is shown unformatted, as it arrives
_MAX_PROBED = 64 * 1024  # bytes; a body that is valid JSON up to here is treated as such
_KEPT_CHARACTERS = "\n\t"
_BINARY = re.compile(
    r"\s*(image/(?!svg)|audio/|video/|font/|application/(pdf|zip|gzip|x-(gzip|tar|bzip2?|xz|7z-compressed))\s*(;|$))",
    re.IGNORECASE,
)
# The beginning of a literal, of a part of a number or of an escape, at which a decoder reports an error.
_BEGINNING = re.compile(r"\s*(?:|t|tr|tru|f|fa|fal|fals|n|nu|nul|[-.]|[eE][+-]?|[\\u0-9a-fA-F]{0,10})\s*")


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
        yield from _stream([bytes(buffer)], codec_of(content_type), note, length)
        raise
    if is_json:
        shown = pretty(buffer.decode("utf-8-sig"), colors=colors) if is_whole and _is_text(buffer) else None
        if not is_whole:
            note(f"JSON of more than {size(MAX_INDENTED)} is not indented; pipe it into jq")
        if shown is not None:
            yield from shown
            yield "\n"
            return
    yield from _stream(chain([bytes(buffer)], source), codec_of(content_type), note, length)


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


def _starts_as_json(source: Iterator[bytes], buffer: bytearray) -> bool:
    """Move data from *source* to *buffer*; return whether it may be the beginning of a single JSON document."""
    decode, text = getincrementaldecoder("utf-8-sig")().decode, ""
    checked = 0  # characters; the next check is at twice as many, because a body may arrive in very small parts
    for chunk in source:
        buffer.extend(chunk)
        if (part := _decoded(decode, chunk)) is None:
            return False
        text += part
        if len(text) >= 2 * checked:
            checked = len(text)
            if "\0" in text or not _may_continue(text):
                return False
        if len(buffer) >= _MAX_PROBED:
            break
    return True


def _may_continue(text: str) -> bool:
    """Return whether *text* is a JSON document or the beginning of one."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.msg.startswith("Unterminated") or bool(_BEGINNING.fullmatch(text, error.pos))
    except (ValueError, RecursionError):
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

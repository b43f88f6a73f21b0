"""The display of a body: indented JSON; on a terminal, text without control sequences, or a note on binary data.

A terminal gets text only, and a single JSON document up to a limit is indented as a whole. Elsewhere, JSON is formatted
as it arrives, if the user asks for it, and anything else stays as it is.
"""

import json
import re
from codecs import IncrementalDecoder, getincrementaldecoder, lookup
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from xapi_cli.errors import NetworkError, XapiError
from xapi_cli.request.jq.event_stream import is_record_stream
from xapi_cli.request.json.pretty import Formatter, formatted, pretty, with_sorted_names
from xapi_cli.request.json.syntax import InvalidJSON, validated
from xapi_cli.request.options import Look
from xapi_cli.system.render import escape_json, printable, size

MAX_INDENTED = 4 * 1024 * 1024  # bytes; a larger document is shown unformatted, as it arrives
MAX_SORTED = 16 * 1024 * 1024  # bytes; a document takes about 20 times its size while its names are sorted
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
    look: Look,
    *,
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
    limit, is_whole = MAX_SORTED if look.sorts else MAX_INDENTED, False
    try:
        is_json = not (look.is_plain or is_record_stream(content_type)) and _starts_as_json(source, buffer)
        if is_json:
            is_whole = _buffer_rest(source, buffer, limit)
    except XapiError:  # the body is truncated: show what has arrived
        yield from _stream([bytes(buffer)], _charset(content_type), note, length)
        raise
    if is_json:
        if look.sorts and not is_whole:
            raise _too_large()
        shown = _document(buffer, look) if is_whole and _is_text(buffer) else None
        if shown is not None:
            yield from shown
            yield "\n"
            return
    yield from _stream(chain([bytes(buffer)], source), _charset(content_type), note, length)


def reformatted(chunks: Iterable[bytes], look: Look, content_type: str = "") -> Iterator[bytes]:
    """Yield the body in *chunks* with *look*, as it arrives, if it is a single JSON document, and else unchanged.

    Raises NetworkError if its names are to be sorted and it is too large.
    """
    source, buffer = iter(chunks), bytearray()
    try:
        is_json = not is_record_stream(content_type) and _starts_as_json(source, buffer)
        is_whole = is_json and look.sorts and _buffer_rest(source, buffer, MAX_SORTED)
    except XapiError:  # the body is truncated: write what has arrived
        yield bytes(buffer)
        raise
    if not is_json:
        yield from filter(None, chain([bytes(buffer)], source))
    elif not look.sorts:
        yield from _as_it_arrives(chain([bytes(buffer)], source), look)
    elif not is_whole:
        raise _too_large()
    else:
        shown = _document(buffer, look) if _is_text(buffer) else None
        yield from [bytes(buffer)] if shown is None else (text.encode() for text in chain(shown, ["\n"]))


def _document(buffer: bytearray, look: Look) -> Iterator[str] | None:
    """Return the JSON document in *buffer* with *look*, None if it is not valid JSON."""
    text = buffer.decode("utf-8-sig")
    shown = pretty(text, colors=look.colors, indents=look.indents)
    if shown is None or not look.sorts:
        return shown
    return formatted("".join(sorted_names(text)), colors=look.colors, indents=look.indents)


def sorted_names(text: str) -> Iterator[str]:
    """Return the JSON document *text* with sorted names; raises NetworkError if it is too large."""
    if len(text) > MAX_SORTED:
        raise _too_large()
    return with_sorted_names(text)


def _as_it_arrives(chunks: Iterator[bytes], look: Look) -> Iterator[bytes]:
    """Yield the JSON document in *chunks*; from the first part on that is not valid, everything unchanged."""
    formatter = Formatter(colors=look.colors, indents=look.indents)
    decode = getincrementaldecoder("utf-8-sig")().decode
    current = b""

    def texts() -> Iterator[str]:
        nonlocal current
        for current in chunks:
            yield decode(current)
        current = b""
        yield decode(b"", final=True)

    try:
        for text in validated(texts()):
            if shown := formatter.feed(text):
                yield shown.encode()
    except (InvalidJSON, UnicodeDecodeError):
        yield formatter.abandon().encode() + current
        yield from chunks
        return
    except XapiError:
        yield formatter.abandon().encode()
        raise
    yield (formatter.end() + ("\n" if look.indents else "")).encode()


def _too_large() -> NetworkError:
    return NetworkError(
        f"the body contains a document larger than {size(MAX_SORTED)}, the limit of --sort-keys",
        hint="omit --sort-keys, and pipe the body to `jq -S`",
        sent=True,
        headers_received=True,
    )


class Results:
    """The results of a filter, one JSON value for each line, with *look*; *is_safe* if a terminal shows them.

    A result that is a string is shown without quotes.
    """

    def __init__(self, look: Look, *, is_safe: bool) -> None:
        self._look, self._is_safe = look, is_safe

    def shown(self, lines: bytes) -> Iterator[str]:
        """Yield the text for complete *lines*."""
        for line in lines.decode("utf-8", "replace").split("\n")[:-1]:
            if line.startswith('"'):
                text: str = json.loads(line, strict=False)
                yield printable(text, keep=_KEPT_CHARACTERS) if self._is_safe else text
            elif self._is_safe and len(line) > MAX_INDENTED:
                yield escape_json(line)
            else:
                document = "".join(sorted_names(line)) if self._look.sorts else line
                yield from formatted(document, colors=self._look.colors, indents=self._look.indents)
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

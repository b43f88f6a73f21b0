"""The positions of values in JSON text of any depth, so that numbers and strings stay as they were written.

A document from a server is a string with one character for each byte (Latin-1). All structural characters of JSON are
ASCII, so a part is found without decoding, and its bytes are those that the server sent. Functions that decode names
or write bytes read such documents; the others read any text. The patterns take milliseconds to compile, so the module
is imported where it is used.
"""

import json
import re
from codecs import BOM_UTF8, getincrementaldecoder
from collections.abc import Iterator

from xapi_cli.request.json.syntax import InvalidJSON, validated

_BLOCK = 32 * 1024  # bytes; the validation of larger blocks is slower
_SHORT = 64 * 1024  # bytes
_IN_STRING = r'"(?:[^"\\]++|\\.)*+"'
_STRING = re.compile(_IN_STRING)
_WHITESPACE = re.compile(r"[ \t\r\n]*+")
_LITERAL = re.compile(r"[^ \t\r\n,\]}]++")
_UP_TO_BRACKET = re.compile(rf'(?:[^"\[\]{{}}]++|{_IN_STRING})*+([\[\]{{}}])')
_WITHOUT_WHITESPACE = re.compile(rf'(?:[^ \t\r\n"]++|{_IN_STRING})++')
_SOME_TOKENS = re.compile(rf'(?:[^"]{{1,64}}+|{_IN_STRING}){{1,1000}}+')  # at most 64 kB, without long strings
_NAME = re.compile(rf"({_IN_STRING})[ \t\r\n]*+:[ \t\r\n]*+")
_COMMA = re.compile(r"[ \t\r\n]*+(?:,[ \t\r\n]*+)?+")

Span = tuple[int, int]


def document(data: bytes | bytearray) -> str:
    """Return *data* as a document; raises InvalidJSON unless it is valid UTF-8 and a single JSON value."""
    decoder = getincrementaldecoder("utf-8")()
    first = len(BOM_UTF8) if data.startswith(BOM_UTF8) else 0

    def texts() -> Iterator[str]:
        for start in range(first, len(data), _BLOCK):
            yield decoder.decode(data[start : start + _BLOCK])
        yield decoder.decode(b"", final=True)

    try:
        for _ in validated(texts()):
            pass
    except UnicodeDecodeError:
        raise InvalidJSON("it is not valid UTF-8") from None
    return str(memoryview(data)[first:], "latin-1")


def whole(text: str) -> Span:
    """Return the span of the value of the document *text*, without the whitespace around it."""
    start = _skip(text, 0)
    return start, _end(text, start)


def elements(text: str, span: Span) -> Iterator[Span]:
    """Yield the span of each element of the array at *span* of *text*."""
    at = _skip(text, span[0] + 1)
    while text[at] != "]":
        end = _end(text, at)
        yield at, end
        at = _after_comma(text, end)


def members(text: str, span: Span) -> Iterator[tuple[Span, Span]]:
    """Yield the spans of the name and of the value of each member of the object at *span* of *text*."""
    at = _skip(text, span[0] + 1)
    while text[at] != "}":
        name = _NAME.match(text, at)
        assert name is not None  # noqa: S101 - the document is valid
        start, end = name.end(), _end(text, name.end())
        yield name.span(1), (start, end)
        at = _after_comma(text, end)


def field(text: str, span: Span, path: str) -> Span | None:
    """Return the span of the field *path* of the object at *span* of *text*, None if there is none.

    *path* contains the names of nested objects, separated by dots. A name can contain dots. If an object has a name
    twice, the last one applies.
    """
    if text[span[0]] != "{":
        return None
    named = ((string(text, name), value) for name, value in members(text, span))
    values = {name: value for name, value in named if path == name or path.startswith(f"{name}.")}
    for name in sorted(values, key=len, reverse=True):
        found = values[name] if name == path else field(text, values[name], path[len(name) + 1 :])
        if found is not None:
            return found
    return None


def names(text: str, span: Span) -> Iterator[str]:
    """Yield the names of the fields of the object at *span* of *text*."""
    return (string(text, name) for name, _ in members(text, span))


def end_of_container(text: str, start: int) -> int | None:
    """Return the position after the object or array at *start* of *text*, which may not be valid; None without an end.

    Only brackets are checked.
    """
    depth, at = 0, start
    while found := _UP_TO_BRACKET.match(text, at):
        at = found.end()
        depth += 1 if found[1] in "[{" else -1
        if not depth:
            return at
    return None


def is_array(text: str, span: Span) -> bool:
    """Return whether the value at *span* of *text* is an array."""
    return text[span[0]] == "["


def is_object(text: str, span: Span) -> bool:
    """Return whether the value at *span* of *text* is an object."""
    return text[span[0]] == "{"


def compact(text: str, span: Span) -> Iterator[bytes]:
    """Yield the value at *span* of *text* without whitespace between its tokens, in blocks of about 64 KiB."""
    at, end = span
    while at < end:
        start, at = at, _SOME_TOKENS.match(text, at, end).end()  # type: ignore[union-attr]  # the document is valid
        if at - start <= _SHORT:
            yield "".join(_WITHOUT_WHITESPACE.findall(text, start, at)).encode("latin-1")
        else:
            yield from _blocks(text, start, at)


def _blocks(text: str, start: int, end: int) -> Iterator[bytes]:
    for run in _WITHOUT_WHITESPACE.finditer(text, start, end):
        for at in range(run.start(), run.end(), _SHORT):
            yield text[at : min(at + _SHORT, run.end())].encode("latin-1")


def string(text: str, span: Span) -> str:
    """Return the decoded string at *span* of *text*."""
    plain = text[span[0] + 1 : span[1] - 1]
    if plain.isascii() and "\\" not in plain:
        return plain
    decoded: str = json.loads(f'"{plain}"'.encode("latin-1"))
    return decoded


def _skip(text: str, at: int) -> int:
    """Return the position of the first character from *at* on that is not whitespace."""
    return _WHITESPACE.match(text, at).end()  # type: ignore[union-attr]  # it also matches nothing


def _after_comma(text: str, at: int) -> int:
    return _COMMA.match(text, at).end()  # type: ignore[union-attr]  # it also matches nothing


def _end(text: str, at: int) -> int:
    if text[at] not in "[{":
        pattern = _STRING if text[at] == '"' else _LITERAL
        return pattern.match(text, at).end()  # type: ignore[union-attr]  # the document is valid
    end = end_of_container(text, at)
    assert end is not None  # noqa: S101 - the document is valid
    return end

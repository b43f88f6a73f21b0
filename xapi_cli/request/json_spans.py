"""The positions of values in a JSON document, so that numbers and strings stay as they were sent.

A document is a string with one character for each byte (Latin-1). All structural characters of JSON are ASCII, so a
part is found without decoding, and its bytes are those that the server sent.
"""

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Iterator

from xapi_cli.request.json_stream import InvalidJSON, validated

_BLOCK = 32 * 1024  # bytes; the validation of larger blocks is slower
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_IN_STRING = r'"(?:[^"\\]++|\\.)*+"'
_STRING = re.compile(_IN_STRING)
_WHITESPACE = re.compile(r"[ \t\r\n]*+")
_LITERAL = re.compile(r"[^ \t\r\n,\]}]++")
_UP_TO_BRACKET = re.compile(rf'(?:[^"\[\]{{}}]++|{_IN_STRING})*+([\[\]{{}}])')
_WITHOUT_WHITESPACE = re.compile(rf'(?:[^ \t\r\n"]++|{_IN_STRING})++')

Span = tuple[int, int]


def document(data: bytes | bytearray) -> str:
    """Return *data* as a document; raises InvalidJSON unless it is valid UTF-8 and a single JSON value."""
    decoder = getincrementaldecoder("utf-8")()
    first = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0

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


def field(text: str, span: Span, path: str) -> Span | None:
    """Return the span of the field *path* of the object at *span* of *text*, None if there is none.

    *path* contains the names of nested objects, separated by dots. A name can contain dots. If an object has a name
    twice, the last one applies.
    """
    if text[span[0]] != "{":
        return None
    members = {name: value for name, value in _members(text, span) if path == name or path.startswith(f"{name}.")}
    for name in sorted(members, key=len, reverse=True):
        found = members[name] if name == path else field(text, members[name], path[len(name) + 1 :])
        if found is not None:
            return found
    return None


def names(text: str, span: Span) -> list[str]:
    """Return the names of the fields of the object at *span* of *text*."""
    return [name for name, _ in _members(text, span)]


def is_array(text: str, span: Span) -> bool:
    """Return whether the value at *span* of *text* is an array."""
    return text[span[0]] == "["


def is_object(text: str, span: Span) -> bool:
    """Return whether the value at *span* of *text* is an object."""
    return text[span[0]] == "{"


def compact(text: str, span: Span) -> bytes:
    """Return the value at *span* of *text* without whitespace between its tokens."""
    return "".join(_WITHOUT_WHITESPACE.findall(text, *span)).encode("latin-1")


def string(text: str, span: Span) -> str:
    """Return the decoded string at *span* of *text*."""
    decoded: str = json.loads(compact(text, span))
    return decoded


def _members(text: str, span: Span) -> Iterator[tuple[str, Span]]:
    at = _skip(text, span[0] + 1)
    while text[at] != "}":
        end = _end(text, at)
        name = string(text, (at, end))
        start = _skip(text, _skip(text, end) + 1)  # after the colon
        end = _end(text, start)
        yield name, (start, end)
        at = _after_comma(text, end)


def _skip(text: str, at: int) -> int:
    """Return the position of the first character from *at* on that is not whitespace."""
    return _WHITESPACE.match(text, at).end()  # type: ignore[union-attr]  # it also matches nothing


def _after_comma(text: str, at: int) -> int:
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at


def _end(text: str, at: int) -> int:
    """Return the end of the value that starts at *at*."""
    if text[at] not in "[{":
        pattern = _STRING if text[at] == '"' else _LITERAL
        return pattern.match(text, at).end()  # type: ignore[union-attr]  # the document is valid
    depth = 0
    while True:
        found = _UP_TO_BRACKET.match(text, at)
        assert found is not None  # noqa: S101 - the document is valid
        at = found.end()
        depth += 1 if found[1] in "[{" else -1
        if not depth:
            return at

"""The positions of values in JSON text, so that numbers and strings stay as they were written."""

import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]  # public name, missing in typeshed

from xapi_cli.request.json.syntax import InvalidJSON, check

MAX_VALUES = 5_000_000  # of a document; in memory, each takes up to 60 bytes more than in the text
_BLANK = re.compile(r"[ \t\r\n]*+")
_STRING = r'"(?:[^"\\]++|\\.)*+"'
_BLANK_OR_STRING = re.compile(rf"[ \t\r\n]++|({_STRING})")
_SCALAR = re.compile(rf"{_STRING}|[^ \t\r\n,\]}}]++")
_UP_TO_BRACKET = re.compile(rf'(?:[^"\[\]{{}}]++|{_STRING})*+([\[\]{{}}])')

Span = tuple[int, int]


def check_document(text: str) -> None:
    """Raise InvalidJSON unless *text* is a single JSON value that takes a limited amount of memory."""
    if sum(map(text.count, "[{,")) > MAX_VALUES:
        raise InvalidJSON(f"it has more than {MAX_VALUES:,} values")
    check(text)


def whole(text: str) -> Span:
    """Return the span of the value of the valid *text*, without the whitespace around it."""
    start = _skip(text, 0)
    return start, _end(text, start)


def elements(text: str, span: Span) -> Iterator[Span]:
    """Yield the span of each element of the array at *span* of *text*."""
    at = _skip(text, span[0] + 1)
    while text[at] != "]":
        end = _end(text, at)
        yield at, end
        at = _after_comma(text, end)


def members(text: str, span: Span) -> Iterator[tuple[str, Span]]:
    """Yield the name, and the span of the value, of each member of the object at *span* of *text*."""
    at = _skip(text, span[0] + 1)
    while text[at] != "}":
        name, end = scanstring(text, at + 1)
        start = _skip(text, _skip(text, end) + 1)  # after the colon
        end = _end(text, start)
        yield name, (start, end)
        at = _after_comma(text, end)


def field(text: str, span: Span, path: str) -> Span | None:
    """Return the span of the field *path* of the object at *span* of *text*, None if there is none.

    *path* contains the names of nested objects, separated by dots. A name can contain dots. If an object has a name
    twice, the last one applies.
    """
    if text[span[0]] != "{":
        return None
    values = {name: value for name, value in members(text, span) if path == name or path.startswith(f"{name}.")}
    for name in sorted(values, key=len, reverse=True):
        found = values[name] if name == path else field(text, values[name], path[len(name) + 1 :])
        if found is not None:
            return found
    return None


def compact(text: str, span: Span) -> str:
    """Return the value at *span* of *text* without whitespace between its tokens."""
    return _BLANK_OR_STRING.sub(lambda found: found[1] or "", text[slice(*span)])


def string(text: str, span: Span) -> str:
    """Return the decoded string at *span* of *text*."""
    decoded: str = scanstring(text, span[0] + 1)[0]
    return decoded


def _end(text: str, start: int) -> int:
    """Return the position after the value at *start* of the valid *text*; a decoder would limit its levels."""
    if text[start] not in "[{":
        return _SCALAR.match(text, start).end()  # type: ignore[union-attr]  # the text is valid
    depth, at = 0, start
    while found := _UP_TO_BRACKET.match(text, at):
        at = found.end()
        depth += 1 if found[1] in "[{" else -1
        if not depth:
            break
    return at


def _skip(text: str, at: int) -> int:
    """Return the position of the first character from *at* on that is not whitespace."""
    return _BLANK.match(text, at).end()  # type: ignore[union-attr]  # it also matches nothing


def _after_comma(text: str, at: int) -> int:
    at = _skip(text, at)
    return _skip(text, at + 1) if text.startswith(",", at) else at

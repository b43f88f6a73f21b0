"""Check that a line of the output of a batch is complete: one JSON object with one member `line`."""

import re

from xapi_cli.request.json import Number, strict

_MAX_PARSED = 1024 * 1024  # bytes; parsing a longer line would take too much memory
_NUMBER = rb"[1-9]\d{0,14}"
_TOKEN = re.compile(rb'"[^"\\\0-\x1f]*+(?:\\[^\0-\x1f][^"\\\0-\x1f]*+)*+"|[\[{]|[\]}]|["\0-\x08\x0a-\x1f]')
_VALUE = re.compile(rb"\s*:\s*(%s)\s*[,}]" % _NUMBER)
_TRACE = re.compile(rb'^\s*\{\s*"id"|"line"\s*:\s*%s' % _NUMBER)  # of a line that was output of a batch


class NotOutput(Exception):
    """The line is not output of a batch, whether damaged or not."""


_DECODER = strict(Number, object_pairs_hook=tuple)


def number_in(line: bytes) -> int | None:
    """Return the value of the member `line` of the JSON object in *line*, or None if *line* is damaged.

    A line of more than 1 MiB is checked for complete strings and balanced brackets only. Raises NotOutput.
    """
    text = line.strip(b" \t\r\n")
    try:
        values = _scanned(text) if len(text) > _MAX_PARSED else _parsed(text.decode())
    except RecursionError:
        values = _scanned(text)
    except ValueError:
        values = None
    if values is None:
        if _TRACE.search(text):
            return None
        raise NotOutput
    if len(values) > 1:
        return None
    if not values or not values[0]:
        raise NotOutput
    return values[0]


def _parsed(text: str) -> list[int]:
    """Return the values of the members `line` of the object *text*, 0 for an invalid one; raises ValueError."""
    members = _DECODER.decode(text)
    if not isinstance(members, tuple):  # an object, because an array is a list
        return []
    return [_valid(value) for name, value in members if name == "line"]


def _valid(value: object) -> int:
    return int(value) if isinstance(value, Number) and re.fullmatch(_NUMBER.decode(), value) else 0


def _scanned(text: bytes) -> list[int] | None:
    """Return the values as `_parsed` does, or None if *text* is not balanced or contains control characters."""
    values, depth, end = list[int](), 0, len(text)
    if not text.startswith(b"{"):
        return None
    for token in _TOKEN.finditer(text):
        first = token[0][:1]
        if first in b"[{":
            depth += 1
        elif first in b"]}":
            depth -= 1
            if depth < 1 and token.end() < end:
                return None
        elif first != b'"' or token[0] == b'"':
            return None
        elif depth == 1 and token[0] == b'"line"' and (found := _VALUE.match(text, token.end())) is not None:
            values.append(int(found[1]))
    return values if depth == 0 and text.endswith(b"}") else None

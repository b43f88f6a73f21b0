"""Find the parts of JSON text, of any depth and without converting them: the notation of numbers is preserved."""

import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]  # public name, missing in typeshed

_STRUCTURE = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{},:"]', re.DOTALL)
_WHITESPACE = " \t\r\n"


def end_of_container(text: str, start: int) -> int | None:
    """Return the position after the object or array at *start*, or None if it is not closed; checks brackets only."""
    depth = 0
    for match in _STRUCTURE.finditer(text, start):
        token = match[0]
        if token == '"':
            return None
        if token in "{[":
            depth += 1
        elif token in "}]":
            depth -= 1
        if depth == 0:
            return match.end()
    return None


def elements(text: str) -> list[str]:
    """Return the text of each element of the valid JSON array *text*."""
    return [part for _, part in _parts(text)]


def members(text: str) -> list[tuple[str, str]]:
    """Return the name and the text of each member of the valid JSON object *text*; a name may occur repeatedly."""
    return [(scanstring(name, 1)[0], part) for name, part in _parts(text)]


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name (empty in an array) and the text of each part of the object or array *text*."""
    depth, name, start = 0, "", 0
    for match in _STRUCTURE.finditer(text):
        token = match[0]
        if token in "}]":
            depth -= 1
        if depth == 0 and token in "{[":
            start = match.end()
        elif depth == 1 and token == ":":
            name, start = text[start : match.start()].strip(_WHITESPACE), match.end()
        elif depth < 2 and token in ",}]" and (depth == 0 or token == ","):
            part = text[start : match.start()].strip(_WHITESPACE)
            if part:
                yield name, part
            start = match.end()
        if token in "{[":
            depth += 1

"""Indent and color JSON: numbers, the order of names and duplicate names do not change.

A Formatter takes the text in parts and keeps only its place: one byte for each level, and a token that is incomplete.
It does not check the text, which MUST be valid as far as it is passed on.
"""

import json
import re
from collections.abc import Iterator

from xapi_cli.request.json.syntax import check
from xapi_cli.system.render import escape_json, is_readable

_RESET, _KEY, _STRING, _NUMBER, _WORD = "\x1b[0m", "\x1b[1;34m", "\x1b[32m", "\x1b[36m", "\x1b[35m"
_MAX_INDENT = 40  # levels; without a limit, deeply nested JSON would grow to many times its size
_PART = 64 * 1024  # characters formatted at a time
_HIGH = r"\\u[dD][89abAB][0-9a-fA-F]{2}"  # the first half of a surrogate pair
# The content of a string that is complete: the first half of a pair only if it is known what follows.
_CONTENT = re.compile(
    rf"(?:[^\"\\]++|\\u(?![dD][89abAB])[0-9a-fA-F]{{4}}|\\[^u]|{_HIGH}(?=[^\\]|\\[^u]|\\u.{{4}}))*+", re.DOTALL
)
_ESCAPE = re.compile(rf"{_HIGH}\\u[dD][c-fC-F][0-9a-fA-F]{{2}}|\\u[0-9a-fA-F]{{4}}|\\.", re.DOTALL)
_STRING_TOKEN, _OTHER_TOKEN = r'"(?:[^"\\]++|\\.)*+"', r'[^\s{}\[\]:,"]+'
_PART_OF_DOCUMENT = re.compile(rf'({_STRING_TOKEN})|([{{}}\[\]:,])|({_OTHER_TOKEN})|(\s+)|(")', re.DOTALL)
_PUNCTUATION, _LITERAL, _WHITESPACE, _OPEN_STRING = range(2, 6)  # its groups


def pretty(text: str, *, colors: bool) -> Iterator[str] | None:
    """Return an iterator over the JSON document *text* with indentation and colors, or None if it is not valid JSON."""
    try:
        check(text)
    except (ValueError, RecursionError):
        return None
    return formatted(text, colors=colors)


def formatted(text: str, *, colors: bool) -> Iterator[str]:
    """Yield the valid JSON document *text* with indentation and colors."""
    formatter = Formatter(colors=colors)
    for start in range(0, len(text), _PART):
        yield formatter.feed(text[start : start + _PART])
    yield formatter.end()


class Formatter:
    """Format JSON that arrives in parts.

    Control characters become JSON escapes, and escapes of readable characters become these characters.
    """

    def __init__(self, *, colors: bool) -> None:
        self._colors = colors
        self._levels = bytearray()  # an open { or [ for each level
        self._expects_name = False  # in an object: the next string is a name
        self._has_opened = False  # the last token opened an object or array, whose line break is not written yet
        self._in_string = False
        self._rest = ""  # a token, or a part of a string, that is incomplete

    def feed(self, text: str) -> str:
        """Return the formatted *text*, up to its last complete token."""
        return self._formatted(self._rest + text, is_last=False)

    def end(self) -> str:
        """Return the rest, at the end of the document."""
        return self._formatted(self._rest, is_last=True)

    def _formatted(self, text: str, *, is_last: bool) -> str:
        out: list[str] = []
        self._rest = ""
        at = self._string_part(text, 0, out) if self._in_string else 0
        for found in _PART_OF_DOCUMENT.finditer(text, at):
            token, kind = found[0], found.lastindex
            if kind == _PUNCTUATION:
                self._punctuation(token, out)
            elif kind == _WHITESPACE:
                pass
            elif kind == _OPEN_STRING:
                self._begin_value(out)
                self._begin_string(out)
                self._string_part(text, found.start() + 1, out)
                break
            elif kind == _LITERAL and found.end() == len(text) and not is_last:
                self._rest = token  # it may continue
            else:
                self._begin_value(out)
                self._scalar(token, out)
        if is_last:
            out.append(escape_json(self._rest))
            self._rest = ""
        return "".join(out)

    def _string_part(self, text: str, at: int, out: list[str]) -> int:
        """Add the content of a string from *at* on; return the position after it, or keep what is incomplete of it."""
        end = _CONTENT.match(text, at).end()  # type: ignore[union-attr]  # it also matches nothing
        out.append(_readable(text[at:end]))
        if text[end : end + 1] == '"':
            self._end_string(out)
            return end + 1
        self._rest = text[end:]
        return len(text)

    def _begin_value(self, out: list[str]) -> None:
        if self._has_opened:
            self._has_opened = False
            self._break_line(out)

    def _begin_string(self, out: list[str]) -> None:
        if self._colors:
            out.append(_KEY if self._expects_name else _STRING)
        out.append('"')
        self._in_string = True

    def _end_string(self, out: list[str]) -> None:
        out.append('"' + _RESET if self._colors else '"')
        self._in_string = False
        self._expects_name = False

    def _scalar(self, token: str, out: list[str]) -> None:
        shown = _readable(token)
        if self._colors:
            of_literal = _WORD if token[0] in "tfn" else _NUMBER
            color = of_literal if token[0] != '"' else _KEY if self._expects_name else _STRING
            shown = f"{color}{shown}{_RESET}"
        out.append(shown)
        self._expects_name = False

    def _punctuation(self, character: str, out: list[str]) -> None:
        if character in "{[":
            self._begin_value(out)
            out.append(character)
            self._levels += character.encode()
            self._has_opened, self._expects_name = True, character == "{"
        elif character in "}]":
            del self._levels[-1:]
            if not self._has_opened:
                self._break_line(out)
            self._has_opened = False
            out.append(character)
        elif character == ",":
            out.append(",")
            self._break_line(out)
            self._expects_name = self._levels[-1:] == b"{"
        else:
            out.append(": ")

    def _break_line(self, out: list[str]) -> None:
        out.append("\n" + "  " * min(len(self._levels), _MAX_INDENT))


def _readable(text: str) -> str:
    """Return a JSON string, or a part of it, with readable characters decoded and control characters escaped."""
    return escape_json(_ESCAPE.sub(_decoded, text) if "\\" in text else text)


def _decoded(escape: re.Match[str]) -> str:
    """Return the character of *escape* if it is readable and need not be escaped."""
    if escape[0][1] != "u":
        return "/" if escape[0] == "\\/" else escape[0]
    character: str = json.loads(f'"{escape[0]}"')
    return character if len(character) == 1 and is_readable(character) and character not in '"\\' else escape[0]

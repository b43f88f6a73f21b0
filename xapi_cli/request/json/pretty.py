"""Indent and color JSON for a terminal: numbers, the order of names and duplicate names do not change.

Control characters become JSON escapes, and escapes of readable characters become these characters.
"""

import json
import re
from collections.abc import Iterator

from xapi_cli.request.json.syntax import InvalidJSON, check
from xapi_cli.system.render import escape_json, is_readable

_RESET, _KEY, _STRING, _NUMBER, _WORD = "\x1b[0m", "\x1b[1;34m", "\x1b[32m", "\x1b[36m", "\x1b[35m"
_MAX_INDENT = 40  # levels; without a limit, deeply nested JSON would grow to many times its size
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL)


def pretty(text: str, *, colors: bool) -> Iterator[str] | None:
    """Return an iterator over the JSON document *text* with indentation and colors, or None if it is not valid JSON."""
    try:
        check(text)
    except InvalidJSON:
        return None
    return formatted(text, colors=colors)


def formatted(text: str, *, colors: bool) -> Iterator[str]:
    """Yield the valid JSON document *text* with indentation and colors, in many parts."""
    levels: list[str] = []  # an open { or [ for each level
    expects_name = has_opened = False  # in an object, the next string is a name; the last token was { or [
    for found in _TOKEN.finditer(text):
        token = found[0]
        if has_opened and token not in "}]":
            yield _line_break(levels)
        if token in "{[":
            levels.append(token)
            yield token
        elif token in "}]":
            levels.pop()
            yield token if has_opened else _line_break(levels) + token
        elif token == ",":
            yield "," + _line_break(levels)
        elif token == ":":
            yield ": "
        else:
            yield _scalar(token, is_name=expects_name, colors=colors)
        has_opened = token in "{["
        expects_name = token == "{" or (token == "," and levels[-1] == "{")


def _line_break(levels: list[str]) -> str:
    return "\n" + "  " * min(len(levels), _MAX_INDENT)


def _scalar(token: str, *, is_name: bool, colors: bool) -> str:
    shown = escape_json(_ESCAPE.sub(_decoded, token) if "\\" in token else token)
    if not colors:
        return shown
    color = _KEY if is_name else _STRING if token[0] == '"' else _WORD if token[0] in "tfn" else _NUMBER
    return f"{color}{shown}{_RESET}"


def _decoded(escape: re.Match[str]) -> str:
    """Return the character of *escape* if it is readable and need not be escaped."""
    if escape[0][1] != "u":
        return "/" if escape[0] == "\\/" else escape[0]
    character: str = json.loads(f'"{escape[0]}"')
    return character if len(character) == 1 and is_readable(character) and character not in '"\\' else escape[0]

"""Indent JSON for a terminal: numbers, escapes, the order of names and duplicate names do not change."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

from xapi_cli.request.json import check
from xapi_cli.system.render import escape_json

_RESET, _KEY, _STRING, _NUMBER, _WORD = "\x1b[0m", "\x1b[1;34m", "\x1b[32m", "\x1b[36m", "\x1b[35m"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_MAX_INDENT = 40  # levels; without a limit, deeply nested JSON would grow to many times its size


def pretty(text: str, *, colors: bool) -> Iterator[str] | None:
    """Return an iterator over the indented JSON document *text*, or None if it is not valid JSON.

    Control characters become JSON escapes. *colors* adds color.
    """
    try:
        check(text)
    except (ValueError, RecursionError):
        return None
    return _indented((match[0] for match in _TOKEN.finditer(text)), colors)


def _indented(tokens: Iterable[str], colors: bool) -> Iterator[str]:
    depth, previous = 0, ""
    for token, following in pairwise(chain(tokens, [""])):
        if token in ("{", "["):
            yield token
            if following not in ("}", "]"):
                depth += 1
                yield _line_break(depth)
        elif token in ("}", "]"):
            if previous not in ("{", "["):
                depth -= 1
                yield _line_break(depth)
            yield token
        elif token == ",":
            yield "," + _line_break(depth)
        elif token == ":":
            yield ": "
        else:
            yield _scalar(token, is_key=following == ":", colors=colors)
        previous = token


def _line_break(depth: int) -> str:
    return "\n" + "  " * min(depth, _MAX_INDENT)


def _scalar(token: str, *, is_key: bool, colors: bool) -> str:
    shown = escape_json(token)
    if not colors:
        return shown
    color = _KEY if is_key else _STRING if token[0] == '"' else _WORD if token[0] in "tfn" else _NUMBER
    return f"{color}{shown}{_RESET}"

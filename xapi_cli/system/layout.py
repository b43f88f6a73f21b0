"""Arrange printable text on a terminal: wrapped lines and tables that fit its width; this module prints nothing."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from xapi_cli.system.render import printable
from xapi_cli.system.style import Name, Style

_MIN_WIDTH = 20  # columns; on a narrower terminal, lines are not wrapped
# A word and the spaces before it. A command in backticks is one word: a shell would run the first line of a copy with a
# line break as a complete command. The terminal itself breaks a long one without adding a line break to the copy.
_WORD = re.compile(r"( *)((?:`[^`]{1,200}`|[^ ])+)")
_GAP = "  "
_PLAIN = Style(enabled=False)


class Cell(NamedTuple):
    """A cell of a table: *text*, which may contain control characters, and its color."""

    text: str
    color: Name | None = None


def width_of(text: str) -> int:
    """Return the number of columns that *text* takes on a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def wrapped(text: str, width: int, *, indent: str = "  ") -> str:
    """Return *text* in lines of up to *width* columns, broken between words; later lines begin with *indent*.

    A word that is longer, such as a URL, is not broken.
    """
    if width < _MIN_WIDTH or width_of(text) <= width:
        return text
    lines, used = [""], 0
    for gap, word in _WORD.findall(text):
        length = width_of(word)
        if used and used + len(gap) + length > width and lines[-1].strip():
            lines.append(indent + word)
            used = len(indent) + length
        else:
            lines[-1] += gap + word
            used += len(gap) + length
    return "\n".join(lines)


def table(rows: Sequence[tuple[str, str | Cell]], style: Style = _PLAIN) -> str:
    """Return *rows* of name and value as text, with the values aligned in one column."""
    width = max((width_of(name) for name, _ in rows), default=0)
    return "\n".join(_row((Cell(name, "faint"), _cell(value)), (width, 0), style) for name, value in rows)


def columns(
    rows: Sequence[Sequence[Cell]], style: Style = _PLAIN, *, header: Sequence[str] = (), width: int | None = None
) -> str:
    """Return *rows*, below *header* in capitals if there is one, with each column as wide as its widest cell.

    If that is wider than *width*, return one small table for each row instead. Its title consists of the cells up to
    the first one that has a name in *header*.
    """
    lines = [[Cell(name.upper(), "strong") for name in header], *rows] if header else list(rows)
    widths = [max(width_of(printable(cell.text)) for cell in column) for column in zip(*lines, strict=True)]
    if width is not None and sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        return "\n".join(_stacked(header, row, style) for row in rows)
    return "\n".join(_row(line, widths, style) for line in lines)


def _stacked(header: Sequence[str], row: Sequence[Cell], style: Style) -> str:
    """Return *row* as a title and, indented, its named cells."""
    named = next(index for index, name in enumerate(header) if name) + 1
    title = " ".join(style(cell.color or "strong", printable(cell.text)) for cell in row[:named])
    cells = table([(name, cell) for name, cell in zip(header[named:], row[named:], strict=True)], style)
    return "\n".join((title, *(f"    {line}" for line in cells.split("\n"))))


def _row(cells: Sequence[Cell], widths: Sequence[int], style: Style) -> str:
    """Return *cells*, each but the last padded to its width."""
    shown = [(printable(cell.text), cell.color) for cell in cells]
    while shown and not shown[-1][0]:
        shown.pop()
    padded = [
        style(color, text) + " " * (width - width_of(text) if index < len(shown) - 1 else 0)
        for index, ((text, color), width) in enumerate(zip(shown, widths, strict=False))
    ]
    return _GAP.join(padded).rstrip()


def _cell(value: str | Cell) -> Cell:
    return value if isinstance(value, Cell) else Cell(value)

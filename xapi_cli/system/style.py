"""Text for users on a terminal: colors, lines that are wrapped, and tables; this module prints nothing.

There are only the 16 colors of the terminal's own palette, which its user chose.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from xapi_cli.system.render import printable

Name = Literal["good", "caution", "bad", "error", "warning", "faint", "strong", "name", "heading"]

_CODES: Mapping[Name, str] = {
    "good": "32",  # green: a state or status that needs no action
    "caution": "33",  # yellow: a state or status to look at
    "bad": "31",  # red: a failed state or status
    "error": "1;31",
    "warning": "1;33",
    "faint": "2",  # notes, and what is less important than the rest of its line
    "strong": "1",
    "name": "36",  # cyan: what can be typed: commands and options; also the names of headers
    "heading": "1;4",
}
_MIN_WIDTH = 20  # columns; on a narrower terminal, lines are not wrapped
# A word and the spaces before it. A command in backticks is one word: a shell would run the first line of a copy with a
# line break as a complete command. The terminal itself breaks a long one without adding a line break to the copy.
_WORD = re.compile(r"( *)((?:`[^`]{1,200}`|[^ ])+)")
_GAP = "  "


class Style:
    """Adds colors to text if *enabled*, otherwise returns it unchanged.

    The text MUST be printable already: escape codes are added, and none are removed.
    """

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled

    def __call__(self, name: Name | None, text: str) -> str:
        """Return *text* in the color *name*."""
        return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if self.enabled and name and text else text

    def commands(self, text: str) -> str:
        """Return *text* with the commands in it, which are in backticks, set off."""
        return re.sub(r"`[^`]+`", lambda found: self("name", found[0]), text) if self.enabled else text


def color_of_status(status: int) -> Name:
    """Return the color of the HTTP *status*."""
    return "good" if status < 300 else "caution" if status < 400 else "bad"


def color_of_state(state: str) -> Name:
    """Return the color of the *state* of a token."""
    return "good" if state == "valid" else "bad" if state in ("expired", "rejected") else "caution"


class Cell(NamedTuple):
    """A cell of a table: *text*, which may contain control characters, and its color."""

    text: str
    color: Name | None = None


def width_of(text: str) -> int:
    """Return the number of columns that *text* takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


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


def table(rows: Sequence[tuple[str, str | Cell]], style: Style) -> str:
    """Return *rows* of name and value as text, with the values aligned in one column."""
    cells = [(Cell(name, "faint"), value if isinstance(value, Cell) else Cell(value)) for name, value in rows]
    return columns(cells, style)


def columns(rows: Sequence[Sequence[Cell]], style: Style, *, header: Sequence[str] = ()) -> str:
    """Return *rows*, below *header* in capitals if there is one, with each column as wide as its widest cell."""
    lines = [[Cell(name.upper(), "strong") for name in header], *rows] if header else list(rows)
    shown = [[(printable(cell.text), cell.color) for cell in line] for line in lines]
    widths = [max(width_of(text) for text, _ in column) for column in zip(*shown, strict=True)]
    padded = (
        [style(color, text) + " " * (width - width_of(text)) for (text, color), width in zip(line, widths, strict=True)]
        for line in shown
    )
    return "\n".join(_GAP.join(cells).rstrip() for cells in padded)

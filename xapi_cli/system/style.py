"""Colors for text that people read; only the 16 of the terminal's own palette, which its user chose."""

import re
from collections.abc import Mapping
from typing import Literal

Name = Literal["good", "caution", "bad", "error", "warning", "faint", "strong", "name", "heading", "protocol"]

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
    "protocol": "34",  # blue: the protocol in a start line
}


def is_wanted(environ: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Return whether text has colors on a stream that *is_terminal*: unless NO_COLOR is set or TERM is dumb."""
    return is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


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

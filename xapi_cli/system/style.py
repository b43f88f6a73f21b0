"""Colors for text that people read: when to use them, and their escape codes.

Only the 16 colors of the terminal's own palette are used, which its user chose to be readable on its background.
"""

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
_OFF = frozenset({"0", "false", "no", "off"})
_COMMAND = r"`[^`]+`"  # compiled only on a terminal


def is_wanted(environ: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Return whether text for users has colors, on a stream that *is_terminal* or not.

    NO_COLOR (https://no-color.org) disables them. CLICOLOR_FORCE and FORCE_COLOR enable them even if the stream is not
    a terminal (https://bixense.com/clicolors). Otherwise, a terminal has colors unless CLICOLOR is 0 or TERM is dumb.
    """
    forced = environ.get("FORCE_COLOR", "").lower()
    if environ.get("NO_COLOR") or forced in _OFF:
        return False
    if forced or environ.get("CLICOLOR_FORCE", "").lower() not in _OFF | {""}:
        return True
    return is_terminal and environ.get("CLICOLOR") != "0" and environ.get("TERM") != "dumb"


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
        return re.sub(_COMMAND, lambda found: self("name", found[0]), text) if self.enabled else text


def color_of_status(status: int) -> Name:
    """Return the color of the HTTP *status*."""
    return "good" if status < 300 else "caution" if status < 400 else "bad"


def color_of_state(state: str) -> Name:
    """Return the color of the *state* of a token."""
    return "good" if state == "valid" else "bad" if state in ("expired", "rejected") else "caution"

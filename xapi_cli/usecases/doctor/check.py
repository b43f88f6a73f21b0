"""The result of one check, and its text for scripts and for terminals."""

from dataclasses import dataclass
from typing import Literal

from xapi_cli.errors import XapiError
from xapi_cli.system.render import printable

Status = Literal["pass", "warn", "fail"]

_COLORS: dict[Status, str] = {"pass": "\x1b[1;32m", "warn": "\x1b[1;33m", "fail": "\x1b[1;31m"}
_INDENT = " " * 16  # width of the status and name columns


@dataclass(frozen=True)
class Check:
    """The result of a check, and a hint for the user."""

    name: str
    status: Status
    message: str
    hint: str | None = None

    def line(self) -> str:
        """Return the result as one line, for scripts."""
        hint = f"; {self.hint}" if self.hint else ""
        return printable(f"{self.status}  {self.name:<8}  {self.message}{hint}")

    def wrapped(self, columns: int, *, colors: bool) -> str:
        """Return the result for a terminal, wrapped to *columns* where the length of the words allows it."""
        from textwrap import fill

        paragraphs = [(f"{self.status}  {self.name:<8}  ", self.message)]
        if self.hint:
            paragraphs.append((_INDENT, self.hint if self.status == "pass" else f"To do: {self.hint}"))
        text = "\n".join(
            fill(
                printable(paragraph),
                max(columns, 40),
                initial_indent=indent,
                subsequent_indent=_INDENT,
                break_long_words=False,
                break_on_hyphens=False,
            )
            for indent, paragraph in paragraphs
        )
        return f"{_COLORS[self.status]}{text[:4]}\x1b[0m{text[4:]}" if colors else text


class NotChecked(XapiError):
    """A check cannot run because the check named *see* has failed."""

    def __init__(self, why: str, see: str) -> None:
        super().__init__(f"not checked: {why}", hint=f"see {see}")

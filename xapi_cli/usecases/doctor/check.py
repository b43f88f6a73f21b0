"""The result of one check, and its text for scripts and for terminals."""

from dataclasses import dataclass
from typing import Literal

from xapi_cli.errors import XapiError
from xapi_cli.system.layout import wrapped
from xapi_cli.system.render import printable
from xapi_cli.system.style import Name, Style

Status = Literal["pass", "warn", "fail", "skip"]

_COLORS: dict[Status, Name] = {"pass": "good", "warn": "warning", "fail": "error", "skip": "faint"}
_INDENT = " " * 16  # width of the status and name columns


@dataclass(frozen=True)
class Check:
    """The result of a check, and a hint for the user; *depends_on* is the failed check without which it cannot run."""

    name: str
    status: Status
    message: str
    hint: str | None = None
    depends_on: str | None = None

    def as_json(self) -> dict[str, str | None]:
        """Return the result for scripts."""
        return {"name": self.name, "status": self.status, "message": self.message, "hint": self.hint}

    def line(self, style: Style) -> str:
        """Return the result as one line, for scripts."""
        return self._colored(self._line, style)

    def wrapped(self, columns: int, style: Style) -> str:
        """Return the result for a terminal, wrapped to *columns* where the length of the words allows it."""
        is_problem = self.hint and self.status != "pass"
        first = printable(f"{self.status}  {self.name:<8}  {self.message}") if is_problem else self._line
        text = wrapped(first, columns, indent=_INDENT)
        if is_problem:
            text += f"\n{wrapped(_INDENT + printable(f'To do: {self.hint}'), columns, indent=_INDENT)}"
        return self._colored(text, style)

    @property
    def _line(self) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        return printable(f"{self.status}  {self.name:<8}  {self.message}{hint}")

    def _colored(self, text: str, style: Style) -> str:
        length = len(self.status)
        return style(_COLORS[self.status], text[:length]) + style.commands(text[length:])


class NotChecked(XapiError):
    """A check cannot run because the check *cause* has failed."""

    def __init__(self, why: str, cause: str) -> None:
        super().__init__(f"not checked: {why}", hint=f"see {cause}")
        self.cause = cause

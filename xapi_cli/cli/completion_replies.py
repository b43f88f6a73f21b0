"""What the program replies to a completion script: Typer's format, and what the shell completes itself.

The reply for a `Native` completion is a line `:KIND NUMBER` in bash and fish, and code in zsh, which evaluates it.
After an empty reply, the shell completes the word as a file. A value that is not a file gets another reply: the metavar
of its option determines that, or the completer.
"""

import os
import re
from typing import Any

from typer import _completion_classes as typers
from typer._click.core import Parameter
from typer._click.shell_completion import (
    CompletionItem,
    _resolve_context,
    _resolve_incomplete,
    add_completion_class,
    split_arg_string,
)

from xapi_cli.cli.completers import Native, Word
from xapi_cli.settings.table import SETTINGS
from xapi_cli.system.render import shell_quoted

_FILE = re.compile(r"\b(?:FILE|PATH|CMD)\b")  # in a metavar
_OFF_FLAGS = {row.off_flag: row.off_help for row in SETTINGS.values() if row.off_flag}


class _Completions:
    """A mixin for Typer's classes, which remembers the native completion, if any."""

    cli: Any
    ctx_args: Any
    prog_name: str
    native: Native | None = None
    values: tuple[str, ...] = ()

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        context = _resolve_context(self.cli, self.ctx_args, self.prog_name, args)
        of, incomplete = _resolve_incomplete(context, args, incomplete)
        found: list[CompletionItem] = of.shell_complete(context, incomplete)
        if not found and isinstance(of, Parameter) and not _is_file(of):
            found = [CompletionItem(Native(incomplete, "nothing"))]
        self.native = next((item.value for item in found if isinstance(item.value, Native)), None)
        found = [item for item in found if not isinstance(item.value, Native)]
        for item in found:
            item.help = _OFF_FLAGS.get(item.value, item.help)
        self.values = tuple(item.value for item in found)
        return found

    def complete(self) -> str:
        reply: str = super().complete()  # type: ignore[misc]  # of Typer's class
        is_whole_file = self.native is not None and (self.native.kind, self.native.number) == ("files", 0)
        return reply if self.native is None or is_whole_file else self.native_reply(self.native)

    def native_reply(self, native: Native) -> str:
        return f":{native.kind} {native.number}"


class _Bash(_Completions, typers.BashComplete):
    pass


class _Fish(_Completions, typers.FishComplete):
    pass


class _Zsh(_Completions, typers.ZshComplete):
    def complete(self) -> str:
        reply = super().complete()
        if not any(isinstance(value, Word) for value in self.values):
            return reply
        complete = [value for value in self.values if Word(value).is_complete]
        others = [value for value in self.values if not Word(value).is_complete]
        return "\n".join(
            f"compadd {options} -- {' '.join(map(shell_quoted, each))}"
            for options, each in (("", complete), ("-S ''", others))
            if each
        )

    def native_reply(self, native: Native) -> str:
        if native.kind == "files":
            return f"compset -p {native.number}; _files"
        if native.kind == "command" and native.number:
            return f"shift $((CURRENT - {native.number + 1})) words; ((CURRENT = {native.number + 1})); _normal"
        return "_command_names -e" if native.kind == "command" else ":"


class _PowerShell(_Completions, typers.PowerShellComplete):
    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one at the cursor, and that word; the script passes all words, also later ones.

        If the cursor is in a word that occurs twice, the last one counts. Before a space, it is at the end.
        """
        args, incomplete = super().get_completion_args()
        words = split_arg_string(os.environ.get("_TYPER_COMPLETE_ARGS", ""))[1:]
        if incomplete not in words or words[-1] == incomplete:
            return args, incomplete
        at = len(words) - 1 - words[::-1].index(incomplete)
        return words[:at], incomplete

    def native_reply(self, native: Native) -> str:
        return ""


def _is_file(parameter: Any) -> bool:
    """Return whether *parameter* has a file as its value: without a completer, its metavar says so."""
    has_completer = parameter._custom_shell_complete is not None  # noqa: SLF001 - there is no method for it
    return not has_completer and bool(_FILE.search(parameter.metavar or ""))


def _description(text: str) -> str:
    """Return the help *text* of an option or a command in one line, without its notes in brackets.

    Typer would take them for markup of rich, which it imports for that, and would leave the blanks around them.
    """
    return re.sub(r"\s*\[[^\]]*\]", "", " ".join(text.split()))


def register() -> None:
    """Make Typer reply in these formats."""
    typers._sanitize_help_text = _description  # noqa: SLF001 - the classes have no method for it
    classes: dict[str, Any] = {
        "bash": _Bash,
        "zsh": _Zsh,
        "fish": _Fish,
        "powershell": _PowerShell,
        "pwsh": _PowerShell,
    }
    for shell, class_ in classes.items():
        add_completion_class(class_, shell)

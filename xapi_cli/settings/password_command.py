"""The text of a password command: split into arguments, and checked for syntax that only a shell understands."""

import re
import sys
from collections.abc import Sequence

from xapi_cli.errors import UsageError

if sys.platform == "win32":
    from xapi_cli.system import windows

_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
_EXPANSION = re.compile(r"(?<!\\)(?:\$[\w({]|`)")
_SHELL_SYNTAX = re.compile(r"&&|\|\||[|<>;`]|\$(?=[\w({])|(?<=\s)(?:~|&(?=\s|$))")
_UNEXPANDED = re.compile(r"(~|&&|\|\|?|>>?|<|;|&(?=$))|.*?(\$(?=[\w({])|`)", re.DOTALL)
_RUNS_SHELL = re.compile(r"(\S*/)?(ba|da|z|k|fi)?sh\s")


def split(text: str) -> list[str]:
    """Return the arguments in *text*, split as a POSIX shell splits them, on Windows as its programs do.

    Raises UsageError for an unclosed quote or an empty command.
    """
    import shlex

    try:
        if sys.platform == "win32":
            arguments = windows.split_command(text)
        else:
            arguments = shlex.split(text)
    except ValueError as error:
        raise UsageError("a quote is not closed", hint="quote it as for a shell") from error
    if not arguments or not arguments[0]:
        raise UsageError("the command is empty", hint="give the command that prints the password")
    return arguments


def shell_syntax_warning(name: str, command: str) -> str | None:
    """Return a warning if *command*, set by the option or key *name*, contains shell syntax; otherwise None."""
    found = shell_syntax(command)
    return found and (
        f"{name}: {found} is shell syntax, but the command runs without a shell; to use a shell, write sh -c 'COMMAND'"
    )


def unexpanded(command: Sequence[str]) -> str | None:
    """Return the first part of an argument in *command* that a shell would have interpreted, or None; none ran it."""
    program, *arguments = command
    if _RUNS_SHELL.match(f"{program} "):
        return None
    found = (_UNEXPANDED.match(argument) for argument in arguments)
    return next((match[1] or match[2] for match in found if match), None)


def shell_syntax(command: str) -> str | None:
    """Return the first part of *command* that only a shell understands, or None."""
    runs_shell = _RUNS_SHELL.match(command) is not None

    def without_quotes(match: re.Match[str]) -> str:
        return "" if runs_shell or match[0][0] != '"' else " ".join(_EXPANSION.findall(match[0]))

    found = _SHELL_SYNTAX.search(_QUOTED.sub(without_quotes, command))
    return found[0] if found else None

"""The installed shells, on a terminal where a test types a line and the Tab key."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.program import Environ, OnTerminal, Xapi
from tests.tools.documents import COMPLETIONS, ROOT

SHELLS = {
    # The arguments that start it without configuration files, and the command to run before the user types.
    "bash": (["--norc", "--noprofile", "-i"], "source {script}"),
    "zsh": (["-f", "-i"], "autoload -Uz compinit; compinit -D -u; source {script}"),
    "fish": (["--no-config", "-i"], "source {script}"),
}

in_each_shell = pytest.mark.parametrize("shell", SHELLS)
Complete = Callable[[str], str]


def require(shell: str) -> str:
    """Return the path of *shell*, or skip the test if it is not installed."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    return path


@contextmanager
def shell_of(
    xapi: Xapi,
    shell: str,
    *,
    arguments: list[str] | None = None,
    prepare: str | None = None,
    env: Environ | None = None,
) -> Iterator[Complete]:
    """Start *shell* and yield a function that types a line and Tab, and returns the words of the completed line.

    Without *arguments* and *prepare*, the shell reads no configuration files and sources the script in completions/.
    """
    alone, source = SHELLS[shell]
    shown = source.format(script=ROOT / "completions" / COMPLETIONS[shell]) if prepare is None else prepare
    environ = {"PS1": "$ ", **(env or {})}
    with xapi.on_terminal(*(arguments or alone), program=require(shell), env=environ, columns=200) as terminal:
        terminal.type(f"{shown}\n")
        terminal.type("printf '<%s>' ready\n")
        terminal.expect("<ready>", timeout=30)
        yield lambda line: _completed(terminal, line)


def _completed(terminal: OnTerminal, line: str) -> str:
    """Type *line* and Tab, then let the shell print the words instead of running them."""
    terminal.type(f"{line}\t")
    terminal.type("\x05\x01printf '<%s>' \x05 end\n")  # to the end, to the start, to the end again
    shown = terminal.expect("<end>", timeout=30)
    assert "rror" not in shown, shown  # errors must not appear in the line that the user types
    assert "Traceback" not in shown, shown
    return "".join(re.findall(r"<[^<>\x1b]*>", re.split(r"[\r\n]", shown)[-1])).removesuffix("<end>")

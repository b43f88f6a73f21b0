"""The papers that are made from the program: `make docs`, `man` and `completions` write them, tests compare them."""

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.manual import manual
from tests.program import PROGRAM
from xapi_cli.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
COMMANDS_PAGE = ROOT / "docs" / "commands.md"
MANUAL = ROOT / "docs" / "man"

# The names under which shells look for completions.
COMPLETIONS = {"bash": "xapi.bash", "zsh": "_xapi", "fish": "xapi.fish", "powershell": "xapi.ps1"}

_INTRODUCTION = """\
# Commands

This page contains the output of `xapi COMMAND --help` for each command. `make docs` generates it, and a test checks
that it is current.

You can give each setting as a flag, as an environment variable or in a profile. See [Settings](settings.md) and [Exit
codes](exit-codes.md).
"""


def invocations() -> Iterator[tuple[str, ...]]:
    """Yield the words before `--help`, for everything that has a help text."""
    yield ()
    for command, verbs in COMMANDS.items():
        yield (command,)
        yield from ((command, verb) for verb in verbs)


@cache
def help_of(*words: str) -> str:
    """Return what the program prints for *words* and `--help`, 80 columns wide."""
    told = subprocess.run(
        [PROGRAM, *words, "--help"], capture_output=True, text=True, check=True, timeout=30, env={"LANG": "C.UTF-8"}
    )
    return told.stdout


def commands_page() -> str:
    """Return the text of `docs/commands.md`."""
    titles = {words: " ".join(("xapi", *words)) for words in invocations()}
    contents = "".join(f"- [`{title}`](#{title.replace(' ', '-')})\n" for title in titles.values())
    sections = [f"## {title}\n\n```text\n{help_of(*words)}```\n" for words, title in titles.items()]
    return "\n".join([_INTRODUCTION, contents, *sections])


def completion(shell: str) -> str:
    """Return the script that the program prints for *shell*."""
    told = subprocess.run(
        [PROGRAM, "--show-completion", shell],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={"LANG": "C.UTF-8", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},  # else it goes by its parent
    )
    return told.stdout


def write_docs() -> None:
    """Make `docs/commands.md` anew."""
    COMMANDS_PAGE.write_text(commands_page())


def write_completions() -> None:
    """Make the scripts in `completions/` anew."""
    for shell, name in COMPLETIONS.items():
        (ROOT / "completions" / name).write_text(completion(shell))


def write_man() -> None:
    """Make the man pages in `docs/man/` anew."""
    MANUAL.mkdir(exist_ok=True)
    for old in MANUAL.iterdir():
        old.unlink()
    for name, text in manual().items():
        (MANUAL / name).write_text(text)


if __name__ == "__main__":
    {"docs": write_docs, "man": write_man, "completions": write_completions}[sys.argv[1]]()

"""What a shell shows beside a command or an option that it offers: its summary, without the notes of the help page."""

import re

import pytest

from tests.support.program import Xapi
from xapi_cli.cli.main import COMMANDS

COMPLETED = [(), *((name,) for name in COMMANDS), *((name, sub) for name, subs in COMMANDS.items() for sub in subs)]
# The variables of the completion script, besides _XAPI_COMPLETE; and a value with its description in a reply.
SHELLS = {
    "zsh": ({}, r'"([^"]+)":"([^"]*)"'),
    "fish": ({"_TYPER_COMPLETE_FISH_ACTION": "get-args"}, r"(?m)^(\S+)\t(.*)$"),
    "powershell": ({"_TYPER_COMPLETE_WORD_TO_COMPLETE": "{word}"}, r"(?m)^(\S+):::(.*)$"),
}


def described(xapi: Xapi, shell: str, command: tuple[str, ...], word: str) -> list[tuple[str, str]]:
    """Return the words after *command* that begin with *word*, and their descriptions, as *shell* receives them."""
    variables, pattern = SHELLS[shell]
    env = {name: value.format(word=word) for name, value in variables.items()}
    line = " ".join(("xapi", *command, word))
    reply = xapi(env={**env, "_XAPI_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line})
    return re.findall(pattern, reply.out)


@pytest.mark.parametrize(
    ("command", "shell"),
    [
        pytest.param(command, shell, marks=[pytest.mark.slow] if command and shell != "fish" else [])
        for command in COMPLETED
        for shell in SHELLS
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_description_is_a_complete_sentence(xapi: Xapi, command: tuple[str, ...], shell: str) -> None:
    found = described(xapi, shell, command, "--")
    if not command or (COMMANDS.get(command[0]) and len(command) == 1):
        commands = described(xapi, shell, command, "")
        assert {name for name, _ in commands} == set(COMMANDS[command[0]] if command else COMMANDS)
        found += commands

    assert "--help" in dict(found)
    assert [text for _, text in found if not re.fullmatch(r"[A-Z](?:\S| (?=\S))*(?<![ .])\.", text)] == []
    assert [text for _, text in found if "[" in text] == []


def test_the_words_of_a_summary_are_complete(xapi: Xapi) -> None:
    assert dict(described(xapi, "fish", (), "logo")) == {"logout": "Delete the stored token and password."}
    assert dict(described(xapi, "fish", ("request",), "--wri")) == {
        "--write": "Send any method, even in read-only mode."
    }
    assert dict(described(xapi, "fish", ("request",), "--error-b")) == {
        "--error-body": "Where to write the body of a 3xx, 4xx or 5xx response."
    }

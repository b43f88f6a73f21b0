"""Completion works in the shells that are here, driven as a person would: on a terminal, with the Tab key."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.documents import COMPLETIONS, ROOT, completion
from tests.program import OnTerminal, Xapi

SHELLS = {
    # How to start it without anybody's settings, and what to tell it before a person types.
    "bash": (["--norc", "--noprofile", "-i"], "source {script}"),
    "zsh": (["-f", "-i"], "autoload -Uz compinit; compinit -D -u; source {script}"),
    "fish": (["--no-config", "-i"], "source {script}"),
}
CONFIG = """\
[profiles.staging]
base_url = "https://staging.example.com"

[profiles.production]
base_url = "https://api.example.com"
"""

in_each_shell = pytest.mark.parametrize("shell", SHELLS)
Complete = Callable[[str], str]


def require(shell: str) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"there is no {shell} here")
    return path


def shell_of(xapi: Xapi, shell: str) -> AbstractContextManager[Complete]:
    return _shell(xapi, shell)


@contextmanager
def _shell(xapi: Xapi, shell: str) -> Iterator[Complete]:
    """Give what types a line and Tab into *shell*, and tells the words that the line then has."""
    words, prepare = SHELLS[shell]
    with xapi.on_terminal(*words, program=require(shell), env={"PS1": "$ "}, columns=200) as terminal:
        terminal.type(prepare.format(script=ROOT / "completions" / COMPLETIONS[shell]) + "\n")
        terminal.type("printf '<%s>' ready\n")
        terminal.expect("<ready>")
        yield lambda line: _completed(terminal, line)


def _completed(terminal: OnTerminal, line: str) -> str:
    """Type *line* and Tab, then let the shell print the words instead of running them."""
    terminal.type(f"{line}\t")
    terminal.type("\x05\x01printf '<%s>' \x05 end\n")  # to the end, to the start, to the end again
    told = terminal.expect("<end>", timeout=20)
    return told[told.rindex("<xapi>") :].removesuffix("<end>")


# the scripts


def test_there_is_a_script_for_each_shell() -> None:
    assert {path.name for path in (ROOT / "completions").iterdir()} == set(COMPLETIONS.values())


@pytest.mark.parametrize("shell", COMPLETIONS)
def test_a_script_is_what_the_program_prints(shell: str) -> None:
    assert (ROOT / "completions" / COMPLETIONS[shell]).read_text() == completion(shell), "run `make completions`"


@in_each_shell
def test_the_program_prints_the_script_for_the_shell_that_called_it(xapi: Xapi, shell: str) -> None:
    told = subprocess.run(
        [require(shell), "-c", "xapi --show-completion; true"],  # `; true` keeps the shell from becoming the program
        env=xapi.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert (told.stdout, told.stderr) == ((ROOT / "completions" / COMPLETIONS[shell]).read_text(), "")


# in the shells


@in_each_shell
def test_commands_flags_values_and_profiles_complete(xapi: Xapi, shell: str) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text(CONFIG)

    with shell_of(xapi, shell) as complete:
        told = [
            complete("xapi logo"),
            complete("xapi profile rem"),
            complete("xapi request --no-chec"),
            complete("xapi token show --format exec"),
            complete("xapi token status -p stag"),
            complete("xapi profile use prod"),
            complete("xapi profile set max_t"),
        ]

    assert told == [
        "<xapi><logout>",
        "<xapi><profile><remove>",
        "<xapi><request><--no-check-status>",
        "<xapi><token><show><--format><exec-credential>",
        "<xapi><token><status><-p><staging>",
        "<xapi><profile><use><production>",
        "<xapi><profile><set><max_time>",
    ]


@in_each_shell
@pytest.mark.parametrize("trouble", ["broken TOML", "unknown key", "a folder", "not UTF-8"])
def test_a_broken_config_does_not_break_completion(xapi: Xapi, shell: str, trouble: str) -> None:
    xapi.config.mkdir()
    file = xapi.config / "config.toml"
    if trouble == "a folder":
        file.mkdir()
    else:
        file.write_bytes(
            {"broken TOML": b"[profiles", "unknown key": b"colour = 1\n", "not UTF-8": b"\xff\xfe"}[trouble]
        )

    with shell_of(xapi, shell) as complete:
        assert complete("xapi logo") == "<xapi><logout>"
        assert complete("xapi token status -p stag") == "<xapi><token><status><-p><stag>"


def test_a_broken_config_leaves_completion_without_profiles_and_without_a_word(xapi: Xapi) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("[profiles")
    asked = {"_XAPI_COMPLETE": "complete_bash", "COMP_WORDS": "xapi token status -p ", "COMP_CWORD": "4"}

    told = xapi(env=asked)

    assert (told.code, told.out.strip(), told.err) == (0, "", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_a_profile_name_that_a_shell_would_run_is_not_offered(xapi: Xapi, shell: str) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("[profiles.'\\$(touch pwned)']\n[profiles.'a`b`']\n[profiles.good]\n")
    asked = {
        "_XAPI_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "xapi profile use ",
        "COMP_CWORD": "3",
        "_TYPER_COMPLETE_ARGS": "xapi profile use ",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }

    told = xapi(env=asked)

    assert (told.code, told.err) == (0, "")
    assert "good" in told.out
    assert not {"$", "`"} & set(told.out)


def test_no_keyring_is_asked_and_none_needed(xapi: Xapi) -> None:
    asked = {"_XAPI_COMPLETE": "complete_bash", "COMP_WORDS": "xapi lo", "COMP_CWORD": "1"}
    broken = {"PYTHON_KEYRING_BACKEND": "no.such.Backend", "XAPI_STORAGE": "keyring", "XAPI_STATE_DIR": "/dev/null/x"}

    told = xapi(env=asked | broken)

    assert (told.code, told.out.split(), told.err) == (0, ["login", "logout"], "")

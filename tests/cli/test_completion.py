"""Completion: what the program replies to a shell, and what a user sees in the installed shells at the Tab key."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.features.openapi.test_description import openapi
from tests.support.program import Environ, OnTerminal, Xapi
from tests.tools.documents import COMPLETIONS, ROOT, completion
from xapi_cli.app import COMMANDS

SHELLS = {
    # The arguments that start it without configuration files, and the command to run before the user types.
    "bash": (["--norc", "--noprofile", "-i"], "source {script}"),
    "zsh": (["-f", "-i"], "autoload -Uz compinit; compinit -D -u; source {script}"),
    "fish": (["--no-config", "-i"], "source {script}"),
}
CONFIG = """\
[profiles.staging]
base_url = "https://staging.example.com"
[profiles.'\\$(touch pwned)']
[profiles.production]
"""


@pytest.fixture
def with_profiles(xapi: Xapi) -> Xapi:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text(CONFIG)
    return xapi


def words(xapi: Xapi, line: str, env: Environ | None = None) -> list[str]:
    """Return what the program replies to bash for *line*; it never fails, and prints no error."""
    request = {"_XAPI_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(re.split(" +", line)) - 1)}
    shown = xapi(env={**(env or {}), **request})
    assert (shown.code, shown.err) == (0, "")
    return shown.out.split()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("xapi ", sorted(COMMANDS)),
        ("xapi lo", ["login", "logout"]),
        ("xapi token ", ["show", "status"]),
        ("xapi request --no-ch", ["--no-check-status"]),
        ("xapi request --wri", ["--write"]),
        ("xapi token show --format ", ["env", "header", "json", "token"]),
        ("xapi token status -p stag", ["staging"]),
        ("xapi -p ", ["production", "staging"]),  # without the name that a shell would evaluate
        ("xapi -p staging logo", ["logout"]),
        ("xapi profile use prod", ["production"]),
        ("xapi profile set max", ["max_time"]),
        ("xapi profile set storage key", ["keyring"]),
        ("xapi login --storage f", ["file"]),
        ("xapi request PA", ["PATCH"]),
        ("xapi request -o ", []),  # the shell offers files
    ],
)
def test_the_words_that_are_offered(with_profiles: Xapi, line: str, found: list[str]) -> None:
    assert sorted(words(with_profiles, line)) == found


def test_paths_and_query_parameters_are_those_of_the_description_of_the_profile(xapi: Xapi) -> None:
    parameters = [{"name": "status", "in": "query", "schema": {"enum": ["active", "archived"]}}]
    (xapi.home / "api.json").write_text(
        json.dumps(openapi({"/things": {"get": {"parameters": parameters}}, "/a;b": {"get": {}}}))
    )
    assert xapi("api", "load", str(xapi.home / "api.json"), "-p", "default").code == 0

    assert words(xapi, "xapi request GET /") == ["/things"]  # without the path that a shell would evaluate
    assert words(xapi, "xapi -p other request GET /") == []
    assert words(xapi, "xapi request /things st") == ["status=="]
    assert words(xapi, "xapi request /things status==a") == ["status==active", "status==archived"]


def test_an_invalid_config_file_offers_no_profiles(xapi: Xapi) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_bytes(b"\xff\xfe")

    assert words(xapi, "xapi token status -p ") == []
    assert words(xapi, "xapi logo", {"PYTHON_KEYRING_BACKEND": "no.such", "XAPI_STATE_DIR": "/dev/null/x"}) == [
        "logout"
    ]


@pytest.mark.parametrize("shell", COMPLETIONS)
def test_a_script_in_completions_is_the_one_that_the_program_prints(shell: str) -> None:
    assert (ROOT / "completions" / COMPLETIONS[shell]).read_text() == completion(shell), "run `make completions`"


@contextmanager
def shell_of(xapi: Xapi, shell: str, arguments: list[str], prepare: str) -> Iterator[Callable[[str], str]]:
    """Start *shell*; yield a function that types a line and Tab, and returns the words of the completed line."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    with xapi.on_terminal(*arguments, program=path, env={"PS1": "$ "}, columns=200) as terminal:
        terminal.type(f"{prepare}\nprintf '<%s>' ready\n")
        terminal.expect("<ready>")
        yield lambda line: _completed(terminal, line)


def _completed(terminal: OnTerminal, line: str) -> str:
    terminal.type(f"{line}\t")
    terminal.type("\x05\x01printf '<%s>' \x05 end\n")  # the shell prints the words instead of running them
    shown = terminal.expect("<end>")
    assert "rror" not in shown, shown  # nothing else may appear in the line that the user types
    return "".join(re.findall(r"<[^<>\x1b]*>", re.split(r"[\r\n]", shown)[-1])).removesuffix("<end>")


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_words_complete_in_a_shell(with_profiles: Xapi, shell: str) -> None:
    xapi = with_profiles
    (xapi.home / "body.json").write_text("{}")
    document = openapi({"/x-api/me": {"get": {"parameters": [{"name": "q", "in": "query"}]}}})
    (xapi.home / "api.json").write_text(json.dumps(document))
    assert xapi("api", "load", str(xapi.home / "api.json")).code == 0
    arguments, prepare = SHELLS[shell]
    script = ROOT / "completions" / COMPLETIONS[shell]

    with shell_of(xapi, shell, arguments, prepare.format(script=script)) as complete:
        assert complete("xapi logo") == "<xapi><logout>"
        assert complete("xapi -p stag") == "<xapi><-p><staging>"
        assert complete("xapi token show --format hea") == "<xapi><token><show><--format><header>"
        assert complete("xapi request /x-a") == "<xapi><request></x-api/me>"
        assert complete("xapi request -o bod") == "<xapi><request><-o><body.json>"
        assert complete("xapi request --base-url http://a.test /x-a").endswith("<http://a.test></x-a>")
        if shell != "zsh":  # Typer's script for zsh adds a space
            assert complete("xapi request /x-api/me ") == "<xapi><request></x-api/me><q==>"


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_the_installed_script_completes_in_the_next_shell(xapi: Xapi, shell: str) -> None:
    (xapi.home / ".zshenv").write_text("fpath=(${fpath:#/usr/local/*})\n")  # whose owners could cause a prompt
    arguments, _ = SHELLS[shell]
    with shell_of(xapi, shell, arguments, "xapi --install-completion; true"):
        pass

    with shell_of(xapi, shell, ["-i"], "") as complete:
        complete("xapi logo")  # zsh loads the script at the first Tab
        assert complete("xapi logo") == "<xapi><logout>"
    assert Path(xapi.home, ".config").exists() or shell != "fish"

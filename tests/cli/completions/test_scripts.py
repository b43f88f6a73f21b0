"""The completion scripts, and where shells find them after installation."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.completions.shells import in_each_shell, require, shell_of
from tests.support.program import Outcome, Xapi
from tests.tools.documents import COMPLETIONS, ROOT, completion

pytestmark = pytest.mark.slow  # shells


def test_there_is_a_script_for_each_shell() -> None:
    assert {path.name for path in (ROOT / "completions").iterdir()} == set(COMPLETIONS.values())


@pytest.mark.parametrize("shell", COMPLETIONS)
def test_a_script_is_the_one_that_the_program_prints(shell: str) -> None:
    assert (ROOT / "completions" / COMPLETIONS[shell]).read_text() == completion(shell), "run `make docs`"


@in_each_shell
def test_the_program_prints_the_script_for_the_shell_that_called_it(xapi: Xapi, shell: str) -> None:
    shown = subprocess.run(
        [require(shell), "-c", "xapi --show-completion; true"],  # `; true` keeps the shell from becoming the program
        env=xapi.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert (shown.stdout, shown.stderr) == ((ROOT / "completions" / COMPLETIONS[shell]).read_text(), "")


@pytest.mark.parametrize("form", ["--show-completion {}", "--show-completion={}"])
@pytest.mark.parametrize("shell", COMPLETIONS)
def test_the_program_prints_the_script_for_the_shell_that_is_named(xapi: Xapi, shell: str, form: str) -> None:
    outcome = xapi(*form.format(shell).split())

    assert outcome == Outcome(0, (ROOT / "completions" / COMPLETIONS[shell]).read_text(), "")


@pytest.mark.parametrize("option", ["--show-completion", "--install-completion"])
def test_an_unknown_shell_is_a_usage_error(xapi: Xapi, option: str) -> None:
    error = f"xapi: error: {option}: 'tcsh' is not a valid value; use bash, zsh, fish, powershell or pwsh\n"

    assert xapi(option, "tcsh") == Outcome(2, "", error)


def test_the_script_is_installed_for_the_shell_that_is_named(xapi: Xapi) -> None:
    outcome = xapi("--install-completion", "fish")
    script = xapi.home / ".config" / "fish" / "completions" / "xapi.fish"

    assert (outcome.code, script.read_text()) == (0, (ROOT / "completions" / COMPLETIONS["fish"]).read_text())
    note = f"xapi: completion for fish is installed in {script}; open a new shell to use it\n"
    assert (outcome.out, outcome.err) == ("", note)


# installed


def test_in_zsh_the_first_tab_completes_if_the_script_is_autoloaded(xapi: Xapi) -> None:
    directory = ROOT / "completions"
    prepare = f"fpath=({directory} $fpath); autoload -Uz compinit; compinit -D -u"

    with shell_of(xapi, "zsh", prepare=prepare) as complete:
        for _ in range(2):  # zsh loads the script at the first, and only calls it at the second
            assert complete("xapi logo") == "<xapi><logout>"
        assert complete("xapi token show --format=hea") == "<xapi><token><show><--format=header>"


def test_bash_completion_finds_the_script_by_its_name(xapi: Xapi) -> None:
    """bash-completion sources files named like the command, from the directory of the user's scripts, when needed."""
    script = xapi.home / "xapi"
    shutil.copy(ROOT / "completions" / "xapi.bash", script)

    with shell_of(xapi, "bash", prepare=f"_load() {{ . {script} && return 124; }}; complete -D -F _load") as complete:
        assert complete("xapi logo") == "<xapi><logout>"


@in_each_shell
def test_the_installed_script_completes_in_the_next_shell(xapi: Xapi, shell: str, tmp_path: Path) -> None:
    (xapi.home / ".zshenv").write_text(
        "fpath=(${fpath:#/usr/local/*})\n"
    )  # compinit may prompt because of the owners of these directories
    for name in (".bashrc", ".zshrc"):
        (xapi.home / name).write_bytes(b"# \xff")  # not UTF-8, and without a line end
    request = [require(shell), "-c", "xapi --install-completion; true"]
    shown = subprocess.run(
        request, env=xapi.environment(), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert f"xapi: completion for {shell} is installed in {xapi.home}" in shown.stderr, shown
    where = {"bash": ".bash_completions/xapi.sh", "zsh": ".zfunc/_xapi", "fish": ".config/fish/completions/xapi.fish"}
    startup = {"bash": (".bashrc", f"source '{xapi.home}/.bash_completions/xapi.sh'")}
    startup["zsh"] = (".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit")
    if shell in startup:
        name, line = startup[shell]
        assert (xapi.home / name).read_bytes() == f"# \xff\n{line}\n".encode("latin-1")
        assert f"xapi: added to {xapi.home / name}: {line}\n" in shown.stderr
    installed = (xapi.home / where[shell]).read_text()
    assert installed.rstrip("\n") == completion(shell).rstrip("\n")

    with shell_of(xapi, shell, arguments=["-i"], prepare="") as complete:
        assert complete("xapi logo") == "<xapi><logout>"

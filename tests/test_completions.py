"""Completion in the installed shells, as a user triggers it: on a terminal, with the Tab key."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.documents import COMPLETIONS, ROOT, completion
from tests.openapi.documents import as_bytes, openapi
from tests.program import PROGRAM, Environ, OnTerminal, Xapi

pytestmark = pytest.mark.slow  # shells

SHELLS = {
    # The arguments that start it without configuration files, and the command to run before the user types.
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


# the scripts


def test_there_is_a_script_for_each_shell() -> None:
    assert {path.name for path in (ROOT / "completions").iterdir()} == set(COMPLETIONS.values())


@pytest.mark.parametrize("shell", COMPLETIONS)
def test_a_script_is_the_one_that_the_program_prints(shell: str) -> None:
    assert (ROOT / "completions" / COMPLETIONS[shell]).read_text() == completion(shell), "run `make completions`"


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


# in the shells


@in_each_shell
def test_commands_flags_values_and_profiles_complete(xapi: Xapi, shell: str) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text(CONFIG)

    with shell_of(xapi, shell) as complete:
        shown = [
            complete("xapi logo"),
            complete("xapi profile rem"),
            complete("xapi request --no-chec"),
            complete("xapi token show --format exec"),
            complete("xapi token status -p stag"),
            complete("xapi profile use prod"),
            complete("xapi profile set max_t"),
            complete("xapi login --storage keyr"),
            complete("xapi token show --format=exec"),
            complete("xapi token status --profile=prod"),
            complete("xapi login --base-url http://localhost:8080 --storage=fi"),
        ]

    assert shown == [
        "<xapi><logout>",
        "<xapi><profile><remove>",
        "<xapi><request><--no-check-status>",
        "<xapi><token><show><--format><exec-credential>",
        "<xapi><token><status><-p><staging>",
        "<xapi><profile><use><production>",
        "<xapi><profile><set><max_time>",
        "<xapi><login><--storage><keyring>",
        "<xapi><token><show><--format=exec-credential>",
        "<xapi><token><status><--profile=production>",
        "<xapi><login><--base-url><http://localhost:8080><--storage=file>",
    ]


@in_each_shell
def test_file_names_complete_for_an_option_that_takes_a_file(xapi: Xapi, shell: str) -> None:
    (xapi.home / "response.json").write_text("{}")

    with shell_of(xapi, shell) as complete:
        assert complete("xapi request /x-api/me -o resp") == "<xapi><request></x-api/me><-o><response.json>"
        assert complete("xapi request /x-api/me --output=resp") == "<xapi><request></x-api/me><--output=response.json>"


@in_each_shell
def test_topics_methods_and_values_of_settings_complete(xapi: Xapi, shell: str) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text(CONFIG)
    (xapi.home / "PATCHES").touch()
    (xapi.home / "keyring.txt").touch()

    with shell_of(xapi, shell) as complete:
        shown = [
            complete("xapi help exit"),
            complete("xapi help profile rena"),
            complete("xapi request PA"),
            complete("xapi request --form OPT"),
            complete("xapi profile set storage keyr"),
            complete("xapi profile set -p staging storage fil"),
            complete("xapi profile unset -p staging b"),
            complete("xapi profile rename prod"),
        ]

    assert shown == [
        "<xapi><help><exit-codes>",
        "<xapi><help><profile><rename>",
        "<xapi><request><PATCH>",
        "<xapi><request><--form><OPTIONS>",
        "<xapi><profile><set><storage><keyring>",
        "<xapi><profile><set><-p><staging><storage><file>",
        "<xapi><profile><unset><-p><staging><base_url>",
        "<xapi><profile><rename><production>",
    ]


@in_each_shell
def test_file_names_complete_after_an_at_sign(xapi: Xapi, shell: str) -> None:
    (xapi.home / "upload.json").write_text("{}")
    (xapi.home / "two words.txt").write_text("")
    (xapi.home / "a=b@c:d.txt").write_text("")
    (xapi.home / "folder").mkdir()
    (xapi.home / "folder" / "inside.txt").write_text("")

    with shell_of(xapi, shell) as complete:
        shown = [
            complete("xapi request /a -d @upl"),
            complete("xapi request /a --data @upl"),
            complete("xapi request /a --data=@upl"),
            complete("xapi request /a file@upl"),
            complete("xapi request POST /a name=@upl"),
            complete("xapi request POST /a name:=@upl"),
            complete("xapi request /a file@two"),
            complete("xapi request /a -d @folder/ins"),
            complete("xapi request /a file@fold"),
            complete("xapi request /a file@a=b@c"),
            complete("xapi request /a 'file@two"),
            complete('xapi request /a file@"two'),
        ]

    assert shown == [
        "<xapi><request></a><-d><@upload.json>",
        "<xapi><request></a><--data><@upload.json>",
        "<xapi><request></a><--data=@upload.json>",
        "<xapi><request></a><file@upload.json>",
        "<xapi><request><POST></a><name=@upload.json>",
        "<xapi><request><POST></a><name:=@upload.json>",
        "<xapi><request></a><file@two words.txt>",
        "<xapi><request></a><-d><@folder/inside.txt>",
        f"<xapi><request></a><file@folder{'' if shell == 'zsh' else '/'}>",  # zsh removes it after a word
        "<xapi><request></a><file@a=b@c:d.txt>",
        "<xapi><request></a><file@two words.txt>",
        "<xapi><request></a><file@two words.txt>",
    ]


@pytest.mark.parametrize("breaks", ["=:@", "=", "@", ":"])
def test_in_bash_words_complete_whatever_characters_split_them(xapi: Xapi, breaks: str) -> None:
    (xapi.home / "upload.json").write_text("{}")
    prepare = f"COMP_WORDBREAKS=${{COMP_WORDBREAKS//[{breaks}]}}; source {ROOT / 'completions' / 'xapi.bash'}"

    with shell_of(xapi, "bash", prepare=prepare) as complete:
        shown = [
            complete("xapi login --storage=keyr"),
            complete("xapi request /a --data=@upl"),
            complete("xapi request /a name:=@upl"),
            complete("xapi request a:b c==d e:=1 --no-chec"),
        ]

    assert shown == [
        "<xapi><login><--storage=keyring>",
        "<xapi><request></a><--data=@upload.json>",
        "<xapi><request></a><name:=@upload.json>",
        "<xapi><request><a:b><c==d><e:=1><--no-check-status>",
    ]


@in_each_shell
def test_paths_and_items_of_the_api_description_complete(xapi: Xapi, shell: str) -> None:
    status = {"name": "status", "in": "query", "schema": {"enum": ["active", "archived", "a:b"]}}
    node = {"parameters": [status, {"name": "X-Trace", "in": "header"}]}
    document = openapi({"/users/{id}/keys": {"get": node}, "/users/{id}": {"get": {}}, "/projects": {"get": node}})
    (xapi.home / "api.json").write_bytes(as_bytes(document))
    assert xapi("api", "load", "api.json").code == 0

    with shell_of(xapi, shell) as complete:
        assert complete("xapi request /pro") == "<xapi><request></projects>"
        assert complete("xapi request GET /users/7/") == "<xapi><request><GET></users/7/keys>"
        assert complete("xapi request /projects sta") == "<xapi><request></projects><status==>"
        assert complete("xapi request /projects status==act") == "<xapi><request></projects><status==active>"
        assert complete("xapi request /projects status==a:") == "<xapi><request></projects><status==a:b>"
        assert complete("xapi request /projects -q sta") == "<xapi><request></projects><-q><status=>"
        assert complete("xapi request /projects -q status=act") == "<xapi><request></projects><-q><status=active>"
        assert complete("xapi request /projects -H X-Tr") == "<xapi><request></projects><-H><X-Trace:>"


@pytest.mark.parametrize("shell", ["bash", "zsh"])  # fish does not show a completion what follows the cursor
def test_a_method_before_a_path_completes(xapi: Xapi, shell: str) -> None:
    user: dict[str, Any] = {"get": {}, "put": {}}
    (xapi.home / "api.json").write_bytes(as_bytes(openapi({"/users/{id}": user})))
    assert xapi("api", "load", "api.json").code == 0
    left = "\x02"

    with shell_of(xapi, shell) as complete:
        assert complete(f"xapi request P /users/7{left * 9}") == "<xapi><request><PUT></users/7>"
        assert complete(f"xapi request P '/users/7'{left * 11}") == "<xapi><request><PUT></users/7>"


@in_each_shell
def test_a_file_name_with_shell_syntax_is_quoted(xapi: Xapi, shell: str) -> None:
    (xapi.home / "folder").mkdir()
    (xapi.home / "folder" / "$(touch pwned)`touch pwned`;'\"").touch()

    with shell_of(xapi, shell) as complete:
        shown = complete("xapi request /a -d @folder/")

    assert shown == "<xapi><request></a><-d><@folder/$(touch pwned)`touch pwned`;'\">"
    assert not (xapi.home / "pwned").exists()


@in_each_shell
def test_a_word_that_is_neither_a_file_nor_known_is_not_completed(xapi: Xapi, shell: str) -> None:
    (xapi.home / "me.txt").touch()

    with shell_of(xapi, shell) as complete:
        for line in (
            "xapi request me",
            "xapi request /a me",
            "xapi request /a -d me",
            "xapi request /a -H me",
            "xapi login -u me",
            "xapi profile set username me",
        ):
            assert complete(line) == "".join(f"<{word}>" for word in line.split())
        assert complete("xapi profile set ca_bundle me") == "<xapi><profile><set><ca_bundle><me.txt>"


@in_each_shell
def test_the_command_of_exec_completes(xapi: Xapi, shell: str) -> None:
    programs = xapi.home / "programs"
    programs.mkdir()
    (programs / "canary-program").write_text("#!/bin/sh\n")
    (programs / "canary-program").chmod(0o755)
    (xapi.home / "canary-file").touch()
    (xapi.home / "other-file").touch()

    with shell_of(xapi, shell, env={"PATH": f"{programs}:{xapi.environ['PATH']}"}) as complete:
        assert complete("xapi exec -- canary-p") == "<xapi><exec><--><canary-program>"
        assert complete("xapi exec canary-p") == "<xapi><exec><canary-program>"
        assert complete("xapi exec ./programs/canary-p") == "<xapi><exec><./programs/canary-program>"
        assert complete("xapi exec --min-ttl 1h -- canary-program other-") == (
            "<xapi><exec><--min-ttl><1h><--><canary-program><other-file>"
        )


def test_in_bash_the_arguments_of_the_command_of_exec_complete_as_those_of_the_command(xapi: Xapi) -> None:
    prepare = (
        f"source {ROOT / 'completions' / 'xapi.bash'}; "
        '_command_offset() { COMPREPLY=("${COMP_WORDS[$1]}-argument"); }'  # the name in bash-completion
    )
    with shell_of(xapi, "bash", prepare=prepare) as complete:
        assert (
            complete("xapi exec --min-ttl=1h -- echo x=1 a")
            == "<xapi><exec><--min-ttl=1h><--><echo><x=1><echo-argument>"
        )


@pytest.mark.parametrize(
    ("shell", "prepare"),
    [
        ("zsh", "_toy() { compadd first-argument }; compdef _toy toy"),
        ("fish", "complete --command toy --no-files --arguments first-argument"),
    ],
)
def test_the_arguments_of_the_command_of_exec_complete_as_those_of_the_command(
    xapi: Xapi, shell: str, prepare: str
) -> None:
    source = SHELLS[shell][1].format(script=ROOT / "completions" / COMPLETIONS[shell])

    with shell_of(xapi, shell, prepare=f"{source}; {prepare}") as complete:
        assert complete("xapi exec -- toy fir") == "<xapi><exec><--><toy><first-argument>"
        assert complete("xapi exec -- toy a fir") == "<xapi><exec><--><toy><a><first-argument>"


@in_each_shell
def test_the_program_completes_when_called_by_its_path(xapi: Xapi, shell: str) -> None:
    (xapi.home / "bin").mkdir()
    (xapi.home / "bin" / "xapi").symlink_to(PROGRAM)

    with shell_of(xapi, shell) as complete:
        assert complete("~/bin/xapi logo") == f"<{xapi.home}/bin/xapi><logout>"


@in_each_shell
def test_an_invalid_or_incomplete_line_does_not_break_completion(xapi: Xapi, shell: str) -> None:
    with shell_of(xapi, shell) as complete:
        assert complete("xapi request a:b c==d e:=1 --no-chec") == "<xapi><request><a:b><c==d><e:=1><--no-check-status>"
        assert complete("xapi nonsense --no-chec") == "<xapi><nonsense><--no-chec>"
        assert complete("xapi request 'two words' --no-chec") == "<xapi><request><two words><--no-check-status>"


# installed


def test_in_zsh_the_first_tab_completes_if_the_script_is_autoloaded(xapi: Xapi) -> None:
    directory = ROOT / "completions"
    prepare = f"fpath=({directory} $fpath); autoload -Uz compinit; compinit -D -u"

    with shell_of(xapi, "zsh", prepare=prepare) as complete:
        for _ in range(2):  # zsh loads the script at the first, and only calls it at the second
            assert complete("xapi logo") == "<xapi><logout>"
        assert complete("xapi token show --format=exec") == "<xapi><token><show><--format=exec-credential>"


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
    assert f"{shell} completion installed in {xapi.home}" in shown.stdout, shown
    where = {"bash": ".bash_completions/xapi.sh", "zsh": ".zfunc/_xapi", "fish": ".config/fish/completions/xapi.fish"}
    startup = {"bash": (".bashrc", f"source '{xapi.home}/.bash_completions/xapi.sh'")}
    startup["zsh"] = (".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit")
    if shell in startup:
        name, line = startup[shell]
        assert (xapi.home / name).read_bytes() == f"# \xff\n{line}\n".encode("latin-1")
        assert f"added to {xapi.home / name}: {line}\n" in shown.stdout
    installed = (xapi.home / where[shell]).read_text()
    assert installed.rstrip("\n") == completion(shell).rstrip("\n")

    with shell_of(xapi, shell, arguments=["-i"], prepare="") as complete:
        assert complete("xapi logo") == "<xapi><logout>"


# failures


@pytest.mark.parametrize("trouble", ["broken TOML", "unknown key", "a directory", "not UTF-8"])
def test_with_an_invalid_config_file_completion_offers_no_profiles_and_prints_no_error(
    xapi: Xapi, trouble: str
) -> None:
    xapi.config.mkdir()
    file = xapi.config / "config.toml"
    if trouble == "a directory":
        file.mkdir()
    else:
        file.write_bytes(
            {"broken TOML": b"[profiles", "unknown key": b"color = 1\n", "not UTF-8": b"\xff\xfe"}[trouble]
        )

    for line, arguments in (("xapi logo", ["logout"]), ("xapi token status -p ", [])):
        request = {"_XAPI_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        shown = xapi(env=request)
        assert (shown.code, shown.out.split(), shown.err) == (0, arguments, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_a_profile_name_that_a_shell_would_evaluate_is_not_offered(xapi: Xapi, shell: str) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("[profiles.'\\$(touch pwned)']\n[profiles.'a`b`']\n[profiles.good]\n")
    request = {
        "_XAPI_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "xapi profile use ",
        "COMP_CWORD": "3",
        "_TYPER_COMPLETE_ARGS": "xapi profile use ",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }

    shown = xapi(env=request)

    assert (shown.code, shown.err) == (0, "")
    assert "good" in shown.out
    assert not {"$", "`"} & set(shown.out)


@in_each_shell
def test_completion_prints_no_errors_into_the_command_line(xapi: Xapi, shell: str) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("[profiles")
    broken = {
        "PYTHON_KEYRING_BACKEND": "no.such.Backend",
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere",
        "XAPI_STORAGE": "nonsense",
        "XAPI_STATE_DIR": "/dev/null/x",
        "XAPI_TIMEOUT": "soon",
    }

    with shell_of(xapi, shell, env=broken) as complete:
        assert complete("xapi logo") == "<xapi><logout>"
        assert complete("xapi token status -p stag") == "<xapi><token><status><-p><stag>"


@in_each_shell
def test_completion_prints_nothing_if_the_program_cannot_run(xapi: Xapi, shell: str) -> None:
    (xapi.home / "bin").mkdir()
    broken = xapi.home / "bin" / "xapi"
    broken.write_text("#!/bin/sh\necho 'Error: no such interpreter' >&2\nexit 127\n")
    broken.chmod(0o755)

    with shell_of(xapi, shell, env={"PATH": f"{broken.parent}:{xapi.environ['PATH']}"}) as complete:
        assert complete("xapi logo") == "<xapi><logo>"


def test_completion_does_not_use_the_keyring(xapi: Xapi) -> None:
    request = {"_XAPI_COMPLETE": "complete_bash", "COMP_WORDS": "xapi lo", "COMP_CWORD": "1"}
    broken = {"PYTHON_KEYRING_BACKEND": "no.such.Backend", "XAPI_STORAGE": "keyring", "XAPI_STATE_DIR": "/dev/null/x"}

    shown = xapi(env=request | broken)

    assert (shown.code, shown.out.split(), shown.err) == (0, ["login", "logout"], "")

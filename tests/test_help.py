"""Help fits, ends with examples that run, and a word that is wrong leads to the one that was meant."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.documents import invocations
from tests.program import PROGRAM, PYTHON, Outcome, Xapi
from xapi_cli import errors
from xapi_cli.cli import options, usage_errors
from xapi_cli.cli.help_topics import TOPICS
from xapi_cli.cli.main import _HEADINGS, COMMANDS
from xapi_cli.sandbox import MASTER, Sandbox

ROOT = Path(__file__).parent.parent
EVERYTHING = [words for words in invocations() if words]
PAGES = [("--help",), *((*words, "--help") for words in EVERYTHING), *(("help", topic) for topic in TOPICS)]
ENDLESS = {("sandbox",), ("demo",), ("login",)}  # their examples are tried one by one

every_page = pytest.mark.parametrize("words", PAGES, ids=" ".join)


def examples_of(xapi: Xapi, *words: str) -> str:
    return xapi(*words, "--help").out.partition("\nExamples:\n")[2].partition("\n\n")[0]


# how it looks


@every_page
@pytest.mark.parametrize("columns", [60, 80])
def test_a_page_fits_the_terminal(xapi: Xapi, words: tuple[str, ...], columns: int) -> None:
    shown = xapi(*words, env={"COLUMNS": str(columns)})

    assert (shown.code, shown.err) == (0, "")
    assert [line for line in shown.out.splitlines() if len(line) > columns] == []


@every_page
def test_a_page_in_a_pipe_is_plain_and_costs_no_heavy_import(words: tuple[str, ...]) -> None:
    told = subprocess.run(
        [PYTHON, "-X", "importtime", PROGRAM, *words], capture_output=True, text=True, check=True, timeout=30
    )

    loaded = set(re.findall(r"\| +(rich|httpx|keyring|ssl|tomlkit|filelock|pydantic)$", told.stderr, re.MULTILINE))
    assert loaded == set()
    assert "\x1b" not in told.stdout


@pytest.mark.parametrize(
    ("env", "styled"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)], ids=["xterm", "no", "dumb"]
)
@pytest.mark.parametrize("words", [("--help",), ("token", "--help"), ("help", "request"), ("help", "items")])
def test_a_terminal_gets_the_same_words_with_names_set_off(
    xapi: Xapi, words: tuple[str, ...], env: dict[str, str], styled: bool
) -> None:
    with xapi.on_terminal(*words, env=env) as terminal:
        assert terminal.wait() == 0
    seen = terminal.seen.decode().replace("\r\n", "\n")

    assert ("\x1b[1m" in seen, "\x1b[4m" in seen) == (styled, styled)
    assert re.sub(r"\x1b\[[014]m", "", seen) == xapi(*words).out


def test_every_command_has_its_place_and_its_line_on_the_first_page(xapi: Xapi) -> None:
    page = xapi("--help").out

    assert sorted(name for names in _HEADINGS.values() for name in names) == sorted(COMMANDS)
    for name in COMMANDS:
        assert re.search(rf"^  {name} +[A-Z].*\.$", page, re.MULTILINE), name


def test_every_topic_is_named_where_people_look(xapi: Xapi) -> None:
    for words in (("--help",), ("help", "help"), ("help",)):
        page = xapi(*words).out
        assert [topic for topic in TOPICS if topic not in page] == []


def test_help_is_what_the_commands_own_help_says(xapi: Xapi) -> None:
    assert xapi("help") == xapi("--help") == xapi()
    for words in EVERYTHING:
        assert xapi("help", *words) == xapi(*words, "--help")


# what topics say


def test_the_topic_of_exit_codes_has_every_code(xapi: Xapi) -> None:
    failures = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.XapiError)]
    codes = {"0", "130"} | {str(each.exit_code) for each in failures if each is not errors.Interrupted}

    assert [code for code, _ in TOPICS["exit-codes"].rows] == sorted(codes, key=int)


def test_the_topic_of_exit_codes_says_what_the_documents_say() -> None:
    page = (ROOT / "docs" / "exit-codes.md").read_text()

    for code, meaning in TOPICS["exit-codes"].rows:
        told = re.search(rf"^\| {code} \| (.*) \|$", page, re.MULTILINE)
        assert told is not None
        assert meaning.startswith(told[1])


def test_the_topic_of_the_environment_has_every_variable() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    topic = TOPICS["environment"]
    told = " ".join(f"{name} {meaning}" for name, meaning in topic.rows)

    variables = set(re.findall(r"\b[A-Z]+_[A-Z_]*[A-Z]\b", page))
    assert {name for name in variables if name not in told} == {"REQUEST_METHOD", "XDG_CONFIG_HOME"}
    flags = {f"--{name.replace('_', '-')}" for name in (*options.LOCAL, *options.WIRE)}
    assert flags == set(re.findall(r"--[a-z-]+", told))


# examples


@pytest.mark.slow
@pytest.mark.parametrize("words", [words for words in EVERYTHING if words not in ENDLESS], ids=" ".join)
def test_the_examples_of_a_page_work_when_pasted(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path, words: tuple[str, ...]
) -> None:
    examples = examples_of(xapi, *words)
    if words in {("token",), ("profile",)}:
        assert examples == ""
        return
    assert 1 <= len(re.findall(r"^ +(?:xapi|.*\| xapi)", examples, re.MULTILINE)) <= 6
    for profile in ("default", "staging"):
        assert xapi("login", "-p", profile, env=sandbox.settings).code == 0

    assert pasted(xapi, examples, sandbox, tmp_path) == 0


def test_the_examples_of_login_work_when_pasted(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    examples = examples_of(xapi, "login")

    assert len(examples.splitlines()) == 5
    assert pasted(xapi, examples, sandbox, tmp_path) == 0
    assert sandbox.logins == 5


def pasted(xapi: Xapi, examples: str, sandbox: Sandbox, folder: Path) -> int:
    """Run *examples* in a folder that has what they name, stopping at the first that fails; return its exit code."""
    stubs = folder / "bin"
    stubs.mkdir()
    for name, script in (("pass", f"echo '{MASTER.password}'"), ("deploy.sh", ":")):
        for place in (stubs, folder):
            (place / name).write_text(f"#!/bin/sh\n{script}\n")
            (place / name).chmod(0o755)
    (folder / "report.py").write_text("import os; assert os.environ['XAPI_TOKEN']\n")
    (folder / "project.json").write_text('{"name": "Demo"}')
    (folder / "requests.jsonl").write_text('{"path": "/x-api/me"}\n')
    path = f"{stubs}:{xapi.environment()['PATH']}"
    env = xapi.environment({"PATH": path, "XAPI_PASSWORD": MASTER.password, "XAPI_USERNAME": MASTER.email})
    script = examples.replace("https://api.example.com", sandbox.base_url)
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=env | {"XAPI_BASE_URL": sandbox.base_url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"xapi: error" not in ran.stderr, ran
    return ran.returncode


# typos


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("shw", "xapi token show"),
        ("get /x-api/me", "xapi request"),
        ("POST /x-api/echo", "xapi request"),
        ("/x-api/me", "xapi request PATH"),
        ("https://api.example.com/x-api/me", "xapi request PATH"),
        ("status", "xapi token status"),
        ("whoami", "xapi token status"),
        ("auth", "xapi login"),
        ("loginn", "xapi login"),
        ("log-in", "xapi login"),
        ("refresh", "xapi token show --fresh"),
        ("requst /x-api/me", "xapi request"),
        ("config", "xapi profile"),
        ("version", "xapi --version"),
        ("token shwo", "xapi token show"),
        ("token renew", "xapi token show --fresh"),
        ("profile ls", "xapi profile list"),
        ("profile delete staging", "xapi profile remove"),
        ("help exit", "xapi help exit-codes"),
        ("help token stat", "xapi help token status"),
    ],
)
def test_a_command_that_is_none_leads_to_the_one_that_was_meant(xapi: Xapi, words: str, meant: str) -> None:
    outcome = xapi(*words.split())

    assert outcome.code == 2
    assert outcome.err.endswith(f"; did you mean `{meant}`?\n")


def test_a_word_that_may_be_a_secret_is_not_repeated(xapi: Xapi) -> None:
    assert xapi("hunter2") == Outcome(2, "", "xapi: error: there is no such command; see `xapi --help`\n")
    assert "hunter2" not in xapi("token", "hunter2").err + xapi("help", "hunter2").err + xapi("login", "hunter2").err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("login --usrname me", "there is no option --usrname; did you mean --username?"),
        ("request /a --json {}", ("there is no option --json; fields are ITEMs: name=value, name:=JSON; "
         "-d takes a whole body")),
        ("request /a --insecure", ("there is no option --insecure; certificates are always verified: "
         "use --ca-bundle FILE")),
        ("token show -k", "there is no option -k; see `xapi token show --help`"),
        ("request /a --no-folow", "there is no option --no-folow; did you mean --no-follow?"),
        ("--profile work request /a", ("there is no option --profile; flags come after the command: "
         "`xapi COMMAND --profile`")),
        ("token --json show", "there is no option --json; flags come after the command: `xapi token COMMAND --json`"),
        ("sandbox --port", "--port needs a value; see `xapi sandbox --help`"),
        ("sandbox --port x", "--port: 'x' is no whole number; give a whole number from 0 to 65535"),
        ("sandbox --expires-in 0", "--expires-in: 0 is out of range; give a whole number from 1 on"),
        ("profile set timout 5", ("there is no setting 'timout'; did you mean timeout? Known are base_url, username, "
         "password_command, storage, timeout, max_time, ca_bundle")),
        ("profile set base-ulr x", ("there is no setting 'base-ulr'; did you mean base_url? Known are base_url, "
         "username, password_command, storage, timeout, max_time, ca_bundle")),
        ("token status -p stagging", ("there is no profile 'stagging'; did you mean staging? Known: staging; "
         "`xapi login --profile NAME` makes one")),
        ("token status --storage fil", "--storage: 'fil' is no storage; use auto, keyring, file or none"),
    ],
)  # fmt: skip
def test_a_typo_in_a_flag_key_or_profile_leads_to_what_was_meant(xapi: Xapi, words: str, told: str) -> None:
    xapi("profile", "set", "username", "me@example.com", "-p", "staging")

    assert xapi(*words.split()) == Outcome(2, "", f"xapi: error: {told}\n")


def test_a_typo_in_the_config_file_leads_to_the_key_that_was_meant(xapi: Xapi) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text('[profiles.default]\nbase-url = "https://api.example.com"\n')

    assert "unknown key profiles.default.base-url; did you mean base_url? " in xapi("token", "status").err


def test_what_is_called_differently_elsewhere_is_called_as_it_is_here() -> None:
    for path, called in usage_errors.CALLED_HERE.items():
        group = COMMANDS if path == "xapi" else COMMANDS[path.split()[1]]
        for word, name in called.items():
            assert word not in group
            words = name.split()
            assert words[0].startswith("--") or words[0] in group
            if path == "xapi" and len(words) > 1 and not words[1].startswith("--"):
                assert words[1] in COMMANDS[words[0]]


def test_what_comes_after_the_command_of_exec_is_its_own(xapi: Xapi) -> None:
    outcome = xapi("exec", "echo", "-u", "--profile", "--help", env={"XAPI_TOKEN": "abc"})

    assert outcome == Outcome(0, "-u --profile --help\n")

"""Help pages fit the terminal, name every option, and end with examples that work."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.program import Outcome, Xapi
from tests.tools.documents import help_of, invocations
from xapi_cli.app import COMMANDS, program
from xapi_cli.cli.command import summary
from xapi_cli.features.sandbox import MASTER, Sandbox, description
from xapi_cli.settings.table import SETTINGS, VARIABLES

PAGES = list(invocations())
ENDLESS = {("sandbox",), ("demo",), ("login",)}  # their examples are tested separately


@pytest.mark.parametrize("columns", [60, 80])
def test_the_pages_fit_the_terminal_and_no_word_is_broken_at_its_hyphen(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for args in PAGES:
        page = help_of.__wrapped__(*args)
        assert page.isascii()
        assert [line for line in page.splitlines() if len(line) > columns or re.search(r"\w-$", line)] == []
        assert page.rfind("\nExamples:\n") > page.rfind("Options:\n"), "the examples are at the end"


@pytest.mark.parametrize("args", [(), ("request",), ("token", "show")], ids=" ".join)
def test_the_command_help_prints_what_the_option_prints(xapi: Xapi, args: tuple[str, ...]) -> None:
    assert xapi(*args, "--help") == xapi("help", *args) == Outcome(0, help_of(*args))


def test_the_main_page_lists_every_command_and_describes_every_setting(xapi: Xapi) -> None:
    page = help_of()

    assert xapi() == Outcome(0, page)
    for name in COMMANDS:
        assert re.search(rf"^  {name} +[A-Z].*\.$", page, re.MULTILINE), name
    for row in (*SETTINGS.values(), *VARIABLES):
        if row.flags and row.commands == "login":
            continue
        names = (*row.flags, row.off_flag, *row.variables[:1])
        assert [name for name in names if name and name not in page] == []


def test_a_command_has_its_own_options_first_and_only_names_the_settings() -> None:
    page = " ".join(help_of("request").split())

    assert page.index("--header") < page.index("--retry N") < page.index("Settings, which `xapi --help` describes: ")
    assert page.count("--timeout") == 1
    assert page.count("XAPI_") == 1  # of --retry, which few commands have


def test_a_request_has_at_most_forty_options() -> None:
    assert len(program().get_command(None, "request").params) <= 40


def test_the_summaries_of_the_table_are_those_of_the_commands() -> None:
    for name, row in COMMANDS.items():
        assert row.summary == summary(program().get_command(None, name).help)


@pytest.mark.slow
@pytest.mark.parametrize("args", [args for args in PAGES if args and args not in ENDLESS], ids=" ".join)
def test_the_examples_of_a_page_work_when_pasted(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path, args: tuple[str, ...]
) -> None:
    examples = examples_of(*args)
    assert 1 <= len(re.findall(r"^ +(?:xapi|.*\| xapi)", examples, re.MULTILINE)) <= 6
    for profile in ("default", "staging"):
        assert xapi("login", "-p", profile, env=sandbox.settings).code == 0
    if args[:1] == ("api",):
        assert xapi("api", "load", "/openapi/v1.json", env=sandbox.settings).code == 0

    assert pasted(xapi, examples, sandbox, tmp_path) == 0


def test_the_examples_of_login_work_when_pasted(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    examples = examples_of("login")

    assert len(examples.splitlines()) == 5
    assert pasted(xapi, examples, sandbox, tmp_path) == 0
    assert sandbox.logins == 5


def examples_of(*args: str) -> str:
    return help_of(*args).partition("\nExamples:\n")[2]


def pasted(xapi: Xapi, examples: str, sandbox: Sandbox, directory: Path) -> int:
    """Run *examples* in a directory with the files that they name, until one fails; return the exit code."""
    stubs = directory / "bin"
    stubs.mkdir()
    for name, script in (("pass", f"echo '{MASTER.password}'"), ("deploy.sh", ":")):
        for place in (stubs, directory):
            (place / name).write_text(f"#!/bin/sh\n{script}\n")
            (place / name).chmod(0o755)
    (directory / "report.py").write_text("import os; assert os.environ['XAPI_TOKEN']\n")
    (directory / "project.json").write_text('{"name": "Demo"}')
    (directory / "openapi.json").write_text(json.dumps(description.DOCUMENT))
    (directory / "new.json").write_text(json.dumps(description.DOCUMENT))
    (directory / "rows.csv").write_text("id,name,teams\n1,Demo,[]\n")
    (directory / "requests.jsonl").write_text('{"path": "/x-api/me"}\n')
    path = f"{stubs}:{xapi.environment()['PATH']}"
    env = xapi.environment({"PATH": path, "XAPI_PASSWORD": MASTER.password, "XAPI_USERNAME": MASTER.email})
    script = examples.replace("https://api.example.com", sandbox.base_url)
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=directory,
        env=env | {"XAPI_BASE_URL": sandbox.base_url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"xapi: error" not in ran.stderr, ran
    return ran.returncode


# arguments


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ("hunter2", "unknown command; see `xapi --help`"),
        ("token hunter2", "unknown command; see `xapi token --help`"),
        ("help hunter2", "unknown command; see `xapi --help`"),
        ("login --usrname me", "unknown option --usrname; did you mean --storage or --username?"),
        ("--storage file request /a", "unknown option --storage; see `xapi --help`"),
        ("exec", "missing argument; usage: `xapi exec -- COMMAND [ARG]...`"),
        (
            "request /a --max-pages 0",
            "invalid value for '--max-pages': 0 is not in the range x>=1; see `xapi request --help`",
        ),
        (
            "request /a --max-pages x",
            "invalid value for '--max-pages': 'x' is not a valid whole number; see `xapi request --help`",
        ),
        ("profile unset a hunter2", "unexpected argument; usage: `xapi profile unset KEY`"),
        ("-p staging sandbox", "`xapi sandbox` does not use a profile; omit --profile"),
    ],
)
def test_invalid_usage_is_one_line_that_repeats_no_argument(xapi: Xapi, args: str, error: str) -> None:
    assert xapi(*args.split()) == Outcome(2, "", f"xapi: error: {error}\n")


def test_a_profile_can_precede_the_command(xapi: Xapi) -> None:
    assert xapi("profile", "set", "--profile", "one", "base_url", "http://127.0.0.1:9").code == 0
    expected = "http://127.0.0.1:9/x-api/me"
    assert expected in xapi("-p", "one", "request", "/x-api/me", "--curl").out
    assert expected in xapi("-p", "two", "request", "/x-api/me", "--curl", "-p", "one").out
    assert xapi("-p", "", "request", "/x-api/me").err == xapi("request", "/x-api/me", "-p", "").err


def test_options_after_the_command_of_exec_belong_to_it(xapi: Xapi) -> None:
    outcome = xapi("exec", "echo", "-u", "--profile", "--help", env={"XAPI_TOKEN": "abc"})

    assert outcome == Outcome(0, "-u --profile --help\n")

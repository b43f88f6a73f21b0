"""Help pages fit the terminal, their examples work, and mistyped arguments get a suggestion."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.program import PROGRAM, PYTHON, Outcome, Xapi
from tests.tools.documents import help_of, invocations
from xapi_cli import errors
from xapi_cli.cli import help_format, main, usage_errors
from xapi_cli.cli.help_topics import TOPICS
from xapi_cli.cli.main import COMMANDS
from xapi_cli.sandbox import MASTER, Sandbox, description
from xapi_cli.settings.table import SETTINGS
from xapi_cli.store import registry

ROOT = Path(__file__).parents[2]
EVERYTHING = [args for args in invocations() if args]
PAGES = [("--help",), *((*args, "--help") for args in EVERYTHING), *(("help", topic) for topic in TOPICS)]
ENDLESS = {("sandbox",), ("demo",), ("login",)}  # their examples are tested separately

every_page = pytest.mark.parametrize("args", PAGES, ids=" ".join)


def examples_of(xapi: Xapi, *args: str) -> str:
    return xapi(*args, "--help").out.partition("\nExamples:\n")[2].partition("\n\n")[0]


# format


@every_page
@pytest.mark.parametrize("columns", [60, 80, pytest.param(120, marks=pytest.mark.slow)])
def test_a_page_fits_the_terminal_and_no_word_is_broken_at_its_hyphen(
    xapi: Xapi, args: tuple[str, ...], columns: int
) -> None:
    shown = xapi(*args, env={"COLUMNS": str(columns)})

    assert (shown.code, shown.err, shown.out.isascii()) == (0, "", True)
    assert [line for line in shown.out.splitlines() if len(line) > columns or re.search(r"\w-$", line)] == []


def test_the_range_of_a_number_is_in_words(xapi: Xapi) -> None:
    request, batch = (" ".join(xapi(command, "--help").out.split()) for command in ("request", "batch"))

    assert "[at least 1]" in request
    assert "default: 0] [0 to 100]" in request
    assert "1 to 500]" in batch


def test_two_spaces_separate_a_text_from_its_default() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()

    assert "2s]" in page
    assert re.findall(r"\S \[(?:default|env): .*|\[default: [^]]*\]\.", page) == []


@pytest.mark.slow
@every_page
def test_help_in_a_pipe_is_plain_text_without_heavy_imports(args: tuple[str, ...]) -> None:
    result = subprocess.run(
        [PYTHON, "-X", "importtime", PROGRAM, *args], capture_output=True, text=True, check=True, timeout=30
    )

    loaded = set(re.findall(r"\| +(rich|httpx|keyring|ssl|tomlkit|pydantic)$", result.stderr, re.MULTILINE))
    assert loaded == set()
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize(
    ("env", "styled"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)], ids=["xterm", "no", "dumb"]
)
@pytest.mark.parametrize("args", [("--help",), ("token", "--help"), ("help", "request"), ("help", "items")])
def test_help_on_a_terminal_is_the_same_text_with_styles(
    xapi: Xapi, args: tuple[str, ...], env: dict[str, str], styled: bool
) -> None:
    with xapi.on_terminal(*args, env=env) as terminal:
        assert terminal.wait() == 0
    seen = terminal.seen.decode().replace("\r\n", "\n")

    assert ("\x1b[36m" in seen, "\x1b[1;4m" in seen) == (styled, styled)
    assert re.sub(r"\x1b\[(?:0|36|1;4)m", "", seen) == xapi(*args).out


def test_names_of_options_and_items_are_set_off_completely(xapi: Xapi) -> None:
    with xapi.on_terminal("request", "--help") as terminal:
        assert terminal.wait() == 0
    seen = terminal.seen.decode()

    assert "\r\n  \x1b[36m-H, --header\x1b[0m NAME:VALUE  " in seen
    assert "\r\n  \x1b[36m--form\x1b[0m  " in seen
    assert "\r\n    \x1b[36mname:=JSON\x1b[0m       JSON field" in seen


def test_every_command_is_listed_with_a_summary(xapi: Xapi) -> None:
    page = xapi("--help").out

    for name in COMMANDS:
        assert re.search(rf"^  {name} +[A-Z].*\.$", page, re.MULTILINE), name


def test_every_topic_is_named_on_the_overview_pages(xapi: Xapi) -> None:
    for args in (("--help",), ("help", "help"), ("help",)):
        page = xapi(*args).out
        assert [topic for topic in TOPICS if topic not in page] == []


def test_help_prints_the_same_page_as_the_help_option(xapi: Xapi) -> None:
    assert xapi("help") == xapi("--help") == xapi()
    for args in EVERYTHING:
        assert xapi("help", *args) == Outcome(0, help_of(*args))


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("", {*COMMANDS, *TOPICS}),
        ("token ", set(COMMANDS["token"])),
        ("exit", {"exit-codes"}),
        ("items ", {":nothing", "0"}),
    ],
)
def test_the_names_of_commands_and_topics_complete(xapi: Xapi, typed: str, names: set[str]) -> None:
    line = f"xapi help {typed}"
    env = {"_XAPI_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}

    assert set(xapi(env=env).out.split()) == names


# topics


def test_the_topic_of_exit_codes_has_every_code(xapi: Xapi) -> None:
    failures = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.XapiError)]
    codes = {"0", "127", "129", "130", "143"} | {
        str(each.exit_code) for each in failures if each is not errors.Interrupted
    }

    assert [code for code, _ in TOPICS["exit-codes"].rows] == sorted(codes, key=int)


def test_the_topic_of_exit_codes_matches_the_documentation() -> None:
    page = (ROOT / "docs" / "exit-codes.md").read_text()

    for code, meaning in TOPICS["exit-codes"].rows:
        result = re.search(rf"^\| {code} \| (.*) \|$", page, re.MULTILINE)
        assert result is not None
        assert meaning.startswith(result[1].partition(", or [")[0])  # the page has a list of the others


def test_the_topic_of_the_environment_has_every_variable() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    topic = TOPICS["environment"]
    result = " ".join(f"{name} {meaning}" for name, meaning in topic.rows)

    variables = set(re.findall(r"\b[A-Z]+_[A-Z_]*[A-Z]\b", page))
    assert {name for name in variables if name not in result} == {"REQUEST_METHOD", "XDG_CONFIG_HOME"}
    settings = [setting for setting in SETTINGS.values() if setting.flags and setting.variables]
    flags = {flag for each in settings for flag in (each.flags[0], each.off_flag) if flag}
    assert flags == set(re.findall(r"--[a-z-]+", result))


# examples


@pytest.mark.slow
@pytest.mark.parametrize("args", [args for args in EVERYTHING if args not in ENDLESS], ids=" ".join)
def test_the_examples_of_a_page_work_when_pasted(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path, args: tuple[str, ...]
) -> None:
    examples = examples_of(xapi, *args)
    assert 1 <= len(re.findall(r"^ +(?:xapi|.*\| xapi)", examples, re.MULTILINE)) <= 6
    for profile in ("default", "staging"):
        assert xapi("login", "-p", profile, env=sandbox.settings).code == 0
    if args[:1] == ("api",):
        assert xapi("api", "load", "/openapi/v1.json", env=sandbox.settings).code == 0

    assert pasted(xapi, examples, sandbox, tmp_path) == 0


def test_the_examples_of_login_work_when_pasted(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    examples = examples_of(xapi, "login")

    assert len(examples.splitlines()) == 5
    assert pasted(xapi, examples, sandbox, tmp_path) == 0
    assert sandbox.logins == 5


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


# typos


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        ("shw", "xapi token show"),
        ("get /x-api/me", "xapi request"),
        ("POST /x-api/echo", "xapi request"),
        ("/x-api/me", "xapi request PATH"),
        ("api /x-api/me", "xapi request PATH"),
        ("api ls", "xapi api list"),
        ("https://api.example.com/x-api/me", "xapi request PATH"),
        ("status", "xapi token status"),
        ("whoami", "xapi token status"),
        ("auth", "xapi login"),
        ("auth login", "xapi login"),
        ("auth token", "xapi token show"),
        ("auth status --show-token", "xapi token status"),
        ("auth refresh", "xapi token show --fresh"),
        ("loginn", "xapi login"),
        ("log-in", "xapi login"),
        ("refresh", "xapi token show --fresh"),
        ("requst /x-api/me", "xapi request"),
        ("config", "xapi profile"),
        ("version", "xapi --version"),
        ("token shwo", "xapi token show"),
        ("toke show", "xapi token show"),
        ("toke hunter2", "xapi token"),
        ("token renew", "xapi token show --fresh"),
        ("profile ls", "xapi profile list"),
        ("profile delete staging", "xapi profile remove"),
        ("profile clear timeout", "xapi profile unset"),
        ("help exit", "xapi help exit-codes"),
        ("help token stat", "xapi help token status"),
    ],
)
def test_an_unknown_command_gets_a_suggestion(xapi: Xapi, args: str, meant: str) -> None:
    outcome = xapi(*args.split())

    assert outcome.code == 2
    assert outcome.err.endswith(f"; did you mean `{meant}`?\n")


@pytest.mark.parametrize(
    ("args", "group"),
    [("profile remov a", " profile"), ("profile remane a", " profile"), ("profile usnet a", " profile"),
     ("logou", ""), ("revok", ""), ("profil remove a", " profile")],
)  # fmt: skip
def test_a_typo_does_not_lead_to_a_destructive_command(xapi: Xapi, args: str, group: str) -> None:
    outcome = xapi(*args.split())

    assert outcome.code == 2
    assert not re.search(r"remove|unset|logout|stop", outcome.err), outcome
    assert f"xapi{group}" in outcome.err


def test_an_argument_that_may_be_a_secret_is_not_repeated(xapi: Xapi) -> None:
    assert xapi("hunter2") == Outcome(2, "", "xapi: error: unknown command; see `xapi --help`\n")
    assert "hunter2" not in xapi("token", "hunter2").err + xapi("help", "hunter2").err + xapi("login", "hunter2").err


@pytest.mark.parametrize(
    ("args", "result"),
    [
        ("login --usrname me", "unknown option --usrname; did you mean --username?"),
        ("request /a --json {}", ("unknown option --json; write fields as ITEMs: name=value, name:=JSON; "
         "use -d for a whole body")),
        ("request /a --insecure", ("unknown option --insecure; certificates are always verified: "
         "use --ca-bundle FILE")),
        *((f"request /a {flag}", f"unknown option {flag}; use --continue, with -o FILE")
          for flag in ("-C", "-c", "--resume")),
        *((f"request /a {flag}", f"unknown option {flag}; use --quiet, which omits notes and progress")
          for flag in ("-s", "--silent")),
        ("request /a -O", "unknown option -O; name the file: -o FILE"),
        ("--curl request /a", "unknown option --curl; put options after the command: `xapi COMMAND --curl`"),
        ("--json token show", "unknown option --json; put options after the command: `xapi COMMAND --json`"),
        ("--versoin", "unknown option --versoin; did you mean --version?"),
        ("--status", "unknown option --status; did you mean `xapi token status`?"),
        ("--logout", "unknown option --logout; see `xapi --help`"),
        ("--nope", "unknown option --nope; see `xapi --help`"),
        ("profile --nope list", "unknown option --nope; see `xapi profile --help`"),
        ("token show -k", "unknown option -k; certificates are always verified: use --ca-bundle FILE"),
        ("profile list -k", "unknown option -k; see `xapi profile list --help`"),
        ("request /a --no-folow", "unknown option --no-folow; did you mean --no-follow?"),
        *((f"{before}-X POST /a", "unknown option -X; give METHOD before PATH: `xapi request POST /path`")
          for before in ("", "api ", "request ")),
        *((f"request {flag} /a", (f"unknown option {flag}; redirects are followed by default, "
           "unless --no-follow is given")) for flag in ("-L", "--location", "--follow")),
        *((f"batch in.jsonl {flag} out.jsonl", f"unknown option {flag}; redirect stdout: `xapi batch FILE >OUTPUT`")
          for flag in ("-o", "--output")),
        ("batch --prety", "unknown option --prety; see `xapi batch --help`"),
        ("request /a --error-body", "--error-body requires a value; use stdout, stderr or none"),
        ("request /a --storage", f"--storage requires a value; use {registry.alternatives()}"),
        ("request --fail /a", ("unknown option --fail; a status of 400 or higher is an error by default, "
         "unless --no-check-status is given")),
        ("request /a --compressed", ("unknown option --compressed; compressed responses are requested and decoded "
         "by default")),
        ("request /a -b a=hunter2", "unknown option -b; send a cookie as a header: -H 'Cookie: name=value'"),
        ("request /a -A agent", "unknown option -A; use -H 'User-Agent: NAME'"),
        ("login --with-token", ("unknown option --with-token; no option takes a token: set XAPI_TOKEN or "
         "XAPI_TOKEN_FILE")),
        ("login --hostname api.test", "unknown option --hostname; use --base-url URL, or -p NAME for a profile"),
        ("request /a --table", "unknown option --table; see `xapi request --help`"),
        ("doctor --location", "unknown option --location; see `xapi doctor --help`"),
        ("token show --fail", "unknown option --fail; see `xapi token show --help`"),
        ("-p staging sandbox", "`xapi sandbox` does not use a profile; omit --profile"),
        ("-p stagging token status", "profile 'stagging' does not exist; did you mean staging?"),
        ("token --json show", "unknown option --json; put options after the command: `xapi token COMMAND --json`"),
        ("sandbox --port", "--port requires a value; see `xapi sandbox --help`"),
        ("sandbox --port x", "--port: 'x' is not a whole number; use a number from 0 to 65535"),
        ("sandbox --expires-in 0", "--expires-in: 0 is out of range; use a number of at least 1"),
        ("profile set timout 5", "unknown setting 'timout'; did you mean timeout?"),
        ("profile set base-ulr x", "unknown setting 'base-ulr'; did you mean base_url?"),
        ("token status -p stagging", "profile 'stagging' does not exist; did you mean staging?"),
        ("token status --storage fil", f"--storage: 'fil' is not a valid storage; use {registry.alternatives()}"),
    ],
)  # fmt: skip
def test_a_typo_in_an_option_setting_or_profile_gets_a_suggestion(xapi: Xapi, args: str, result: str) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text('[profiles.staging]\nusername = "me@example.com"\n')

    assert xapi(*args.split()) == Outcome(2, "", f"xapi: error: {result}\n")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_hint_fits_the_terminal_and_does_not_repeat_the_argument(xapi: Xapi, columns: int) -> None:
    with xapi.on_terminal("request", "-L", "/a", "-b", "hunter2", columns=columns) as terminal:
        assert terminal.wait() == 2

    assert "unless --no-follow is given" in " ".join(terminal.text.split())
    assert "hunter2" not in terminal.text
    assert max(map(len, terminal.text.splitlines())) <= columns


def test_a_typo_in_the_config_file_gets_a_suggestion(xapi: Xapi) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text('[profiles.default]\nbase-url = "https://api.example.com"\n')

    assert "unknown key profiles.default.base-url; did you mean base_url?\n" in xapi("token", "status").err


def test_synonyms_name_existing_commands() -> None:
    for path, synonyms in usage_errors.SYNONYMS.items():
        group = COMMANDS if path == "xapi" else COMMANDS[path.split()[1]]
        for word, name in synonyms.items():
            assert word not in group
            args = name.split()
            assert args[0].startswith("--") or args[0] in group
            if path == "xapi" and len(args) > 1 and not args[1].startswith("--"):
                assert args[1] in COMMANDS[args[0]]


@pytest.mark.parametrize(
    ("word", "command"), [("pages", "request"), ("Paginate", "request"), ("jq", "request"), ("openapi", "api")]
)
def test_a_subject_leads_to_the_page_that_describes_it(xapi: Xapi, word: str, command: str) -> None:
    assert xapi("help", word) == Outcome(
        2, "", f"xapi: error: unknown command or topic; did you mean `xapi help {command}`?\n"
    )


def test_options_after_the_command_of_exec_belong_to_it(xapi: Xapi) -> None:
    outcome = xapi("exec", "echo", "-u", "--profile", "--help", env={"XAPI_TOKEN": "abc"})

    assert outcome == Outcome(0, "-u --profile --help\n")


def test_the_summaries_of_the_program_are_those_of_its_commands() -> None:
    for entries in main.HEADINGS.values():
        for name, entry in entries.items():
            text, _ = help_format.split_examples(main.command(name).help)
            assert entry.summary == text.partition("\n\n")[0].replace("\n", " ")

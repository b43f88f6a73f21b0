"""`xapi exec`: replaces xapi with a command that has the token in its environment."""

import json
import signal
from pathlib import Path

import pytest

from tests.support.program import PYTHON, Outcome, Xapi
from xapi_cli.features.sandbox import MASTER, Sandbox

SHOW = (str(PYTHON), "-c", "import json, os; print(json.dumps(dict(os.environ)))")


def test_the_environment_has_token_and_base_url_and_no_password(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("exec", "--", *SHOW, env={**sandbox.settings, "OTHER": "kept"})

    environ = json.loads(outcome.out)
    assert sandbox.user_of(environ["XAPI_TOKEN"]) == MASTER
    assert (environ["XAPI_BASE_URL"], environ["OTHER"]) == (sandbox.base_url, "kept")
    assert "XAPI_PASSWORD" not in environ
    assert MASTER.password not in outcome.out
    assert outcome.err == f"xapi: logged in as {MASTER.email} at {sandbox.base_url}: no stored token\n"


def test_a_token_from_the_environment_is_passed_on_with_the_base_url_if_there_is_one(xapi: Xapi) -> None:
    for args, base_url in ((), None), (("--base-url", "api.test"), "https://api.test"):
        environ = json.loads(xapi("exec", *args, "--", *SHOW, env={"XAPI_TOKEN": "abc"}).out)

        assert (environ["XAPI_TOKEN"], environ.get("XAPI_BASE_URL")) == ("abc", base_url)


@pytest.mark.parametrize(
    "command, code",
    [
        (("true",), 0),
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "exit 255"), 255),
        (("sh", "-c", "kill -TERM $$"), -signal.SIGTERM),
        (("sh", "-c", "kill -PIPE $$"), -signal.SIGPIPE),
        (("--help-me",), 127),
    ],
)
def test_the_exit_code_is_that_of_the_command(xapi: Xapi, command: tuple[str, ...], code: int) -> None:
    assert xapi("exec", "--", *command, env={"XAPI_TOKEN": "abc"}).code == code


def test_arguments_streams_and_directory_are_those_of_the_command(xapi: Xapi, tmp_path: Path) -> None:
    code = "import os, sys; print(sys.argv[1:], os.getcwd(), sys.stdin.read())"
    args = ["--profile", "-v", "--", "a b", ""]

    outcome = xapi("exec", "--", str(PYTHON), "-c", code, *args, input="body", cwd=tmp_path, env={"XAPI_TOKEN": "abc"})

    assert outcome == Outcome(0, f"{args} {tmp_path} body\n", "")


def test_the_command_replaces_the_xapi_process_and_its_alarm(xapi: Xapi) -> None:
    code = "import os, signal; print(os.getpid(), signal.getitimer(signal.ITIMER_REAL)[0])"
    process = xapi.start("exec", "--max-time", "60", "--", str(PYTHON), "-c", code, env={"XAPI_TOKEN": "abc"})

    assert process.communicate()[0] == f"{process.pid} 0.0\n".encode()


def test_a_missing_command_exits_with_127_and_one_that_cannot_be_executed_with_126(xapi: Xapi) -> None:
    env: dict[str, str | None] = {"XAPI_TOKEN": "abc"}

    assert xapi("exec", "--", "no-such-program", env=env) == Outcome(
        127, "", "xapi: error: no-such-program: not found; check the name and PATH\n"
    )
    assert xapi("exec", "--", "", env=env) == Outcome(127, "", "xapi: error: '': not found; check the name and PATH\n")
    for content, mode, reason in (
        ("text", 0o644, "Permission denied"),
        ("text", 0o755, "Exec format error"),
        ("#!/no/such thing", 0o755, "No such file or directory"),
    ):
        (xapi.home / "plain").write_text(content)
        (xapi.home / "plain").chmod(mode)
        error = (
            f"xapi: error: ./plain: cannot be executed: {reason}; check that it is an executable file, and its #! line"
        )
        assert xapi("exec", "--", "./plain", env=env) == Outcome(126, "", f"{error}\n")
    assert xapi("exec", "--", str(xapi.home), env=env).code == 126


def test_the_command_does_not_run_if_the_login_fails(xapi: Xapi, sandbox: Sandbox) -> None:
    env = {**sandbox.settings, "XAPI_PASSWORD": "wrong"}

    outcome = xapi("exec", "--", "touch", "ran", env=env)

    assert (outcome.code, outcome.out, (xapi.home / "ran").exists()) == (10, "", False)


def test_min_ttl_renews_the_token_first(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)

    nested = xapi("exec", "--min-ttl", "29d", "--", "xapi", "request", "/x-api/me")  # with the base URL of the profile
    assert (json.loads(nested.out)["email"], sandbox.logins) == (MASTER.email, 1)
    assert xapi("exec", "--min-ttl", "31d", "--", "true", env=sandbox.settings).code == 0
    assert sandbox.logins == 2

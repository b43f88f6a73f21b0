"""Messages on stderr: one line for programs, a colored paragraph on a terminal."""

import pytest

from tests.support.program import Environ, Outcome, Xapi
from xapi_cli.sandbox import MASTER, Sandbox

ARGS = ("token", "status", "--base-url", "ftp://api.test")
TEXT = "--base-url: the base URL has the scheme 'ftp', not http or https; write it like https://api.example.com"


def test_an_error_is_one_plain_line_where_stderr_is_not_a_terminal(xapi: Xapi) -> None:
    assert xapi(*ARGS, env={"TERM": "xterm", "COLUMNS": "40"}) == Outcome(2, "", f"xapi: error: {TEXT}\n")


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"CLICOLOR": "0"}])
def test_an_error_on_a_terminal_is_wrapped_between_words(xapi: Xapi, columns: int, env: Environ) -> None:
    with xapi.on_terminal(*ARGS, env=env, columns=columns) as terminal:
        assert terminal.wait() == 2

    lines = terminal.text.splitlines()
    assert [line for line in lines if len(line) > columns] == []
    assert len(lines) == (1 if columns == 120 else 2)
    assert " ".join(line.strip() for line in lines) == f"xapi: error: {TEXT}"
    assert all(line.startswith("  ") for line in lines[1:])
    assert (b"xapi: \x1b[1;31merror:\x1b[0m " in terminal.seen) is (env == {})
    assert (b"\x1b" in terminal.seen) is (env == {})


def test_a_command_in_a_hint_is_set_off(xapi: Xapi) -> None:
    with xapi.on_terminal("token", "status", env={"XAPI_BASE_URL": "http://x", "XAPI_USERNAME": "me"}) as terminal:
        assert terminal.wait() == 10

    assert b"; run \x1b[36m`xapi login`\x1b[0m\r\n" in terminal.seen


def test_a_note_is_faint_and_a_warning_has_a_yellow_label(xapi: Xapi) -> None:
    with xapi.on_terminal("profile", "set", "password_command", "pass $HOME", columns=200) as terminal:
        assert terminal.wait() == 0

    warning, note = terminal.seen.splitlines()
    assert warning.startswith(b"xapi: \x1b[1;33mwarning:\x1b[0m ")
    assert note == b"\x1b[2mxapi: set password_command of profile default\x1b[0m"


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "CLICOLOR_FORCE"])
def test_colors_can_be_forced_in_a_pipe_for_messages_and_help_but_not_for_results(xapi: Xapi, variable: str) -> None:
    env = {variable: "1", "XAPI_BASE_URL": "http://x", "XAPI_USERNAME": "me"}

    status = xapi("token", "status", env=env)
    assert status.err.startswith("xapi: \x1b[1;31merror:\x1b[0m no stored token; ")
    assert "\x1b" not in status.out
    assert "\x1b[36m" in xapi("--help", env=env).out
    assert "\x1b" not in xapi("profile", "list", "--json", env=env).out


def test_a_resized_terminal_is_measured_again(xapi: Xapi) -> None:
    with xapi.on_terminal("login", columns=120) as terminal:
        for columns, lines in ((120, 1), (60, 2)):
            terminal.resize(columns)
            terminal.expect("Base URL of the API: ")
            terminal.type("ftp://nowhere\n")
            shown = terminal.expect("https://api.example.com\r\n").partition("xapi: warning: ")[2].splitlines()
            assert len(shown) == lines


def test_a_prompt_states_why_and_is_wrapped_between_words(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", env=sandbox.settings)
    sandbox.revoke_tokens()

    with xapi.on_terminal(
        "request", "/x-api/me", env={**sandbox.settings, "XAPI_PASSWORD": None}, columns=60
    ) as screen:
        screen.expect(f"{sandbox.base_url}: ")
        lines = screen.text.splitlines()
        assert [line for line in lines if len(line) > 60] == []
        assert " ".join(line.strip() for line in lines) == (
            f"The API rejected the stored token (401). Password for {MASTER.email} at {sandbox.base_url}:"
        )
        assert b"\x1b[1mThe API " in screen.seen
        screen.type(f"{MASTER.password}\n")
        assert screen.wait() == 0


def test_an_error_on_a_terminal_loads_no_rich(xapi: Xapi) -> None:
    with xapi.on_terminal(*ARGS, env={"PYTHONPROFILEIMPORTTIME": "1"}, columns=500) as terminal:
        assert terminal.wait() == 2

    assert "xapi_cli.system.style" in terminal.text
    assert "rich" not in {line.split("|")[-1].strip() for line in terminal.text.splitlines()}

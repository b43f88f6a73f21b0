"""`xapi login` on a terminal: its prompts and questions."""

import signal
import subprocess

import pytest

from tests.commands.api import account_of, response
from tests.support.credential_helpers import FakeHelper
from tests.support.program import OnTerminal, Xapi
from tests.support.servers import Server, free_port, request, send
from xapi_cli.features.sandbox import MASTER, Sandbox


def answer(terminal: OnTerminal, *dialog: tuple[str, str]) -> None:
    """Wait for each question and type what follows it."""
    for question, typed in dialog:
        terminal.expect(question)
        terminal.type(typed)


def test_login_prompts_for_missing_settings_until_they_are_usable_and_echoes_no_password(
    xapi: Xapi, sandbox: Sandbox
) -> None:
    base_url, email, password = "Base URL of the API: ", "Email address: ", "Password for "
    with xapi.on_terminal("login", columns=300) as terminal:
        answer(terminal, (base_url, "ftp://nowhere\n"), ("warning: the base URL has the scheme", ""))
        answer(terminal, (base_url, f"{MASTER.email}\n"), ("warning: the base URL looks like an email address", ""))
        answer(terminal, (base_url, f"http://127.0.0.1:{free_port()}\n"), ("connection refused", ""))
        answer(terminal, (base_url, f"{sandbox.base_url}/\n"), (email, f"{MASTER.email}\n"))
        terminal.expect(f"{password}{MASTER.email} at {sandbox.base_url}: ")
        assert not terminal.echoes
        answer(terminal, ("", "\n"), ("warning: the password is empty", ""), (password, f"{MASTER.password[:3]}\x04"))
        terminal.type(f"{MASTER.password[3:]}\n")  # Ctrl-D in a line delivers its beginning
        terminal.expect("xapi: logged in as ")
        terminal.expect("xapi: settings stored in profile default; next, run `xapi request /path`")
        assert terminal.wait() == 0
        assert terminal.echoes
    assert MASTER.password.encode() not in terminal.seen
    assert b"Remember" not in terminal.seen  # a file never contains a password


@pytest.mark.parametrize(
    ("args", "env", "code", "shown"),
    [
        ((), {"XAPI_STORAGE": "auto"}, 13, "no usable keyring on this machine; run `xapi login --storage file`"),
        (("--base-url", "http://127.0.0.1:9", "-u", "me"), {}, 11, "connection refused"),
        (("--no-input", "--base-url", "api.test", "-u", "me"), {}, 10, "no password for me at https://api.test"),
        (("--base-url", "api.test", "-u", "me"), {"XAPI_NO_INPUT": "1"}, 10, "no password for me"),
    ],
)
def test_what_no_password_can_fix_ends_the_login_before_the_prompt(
    xapi: Xapi, args: tuple[str, ...], env: dict[str, str], code: int, shown: str
) -> None:
    with xapi.on_terminal("login", *args, env=env, columns=300) as terminal:
        assert terminal.wait() == code
    assert shown in terminal.text
    assert "Password for" not in terminal.text


LOOKS = [
    (response("404 Not Found"), "/x-api/token responds with 404 Not Found; check the base URL, "),
    (
        response("200 OK", b"<p>", "Content-Type: text/html"),
        "/x-api/token responds with a web page; check the base URL",
    ),
    (response("302 Found", b"", "Location: https://api.test/x-api/token"), "`xapi login --base-url https://api.test`"),
    (response("401 Unauthorized"), None),
]


@pytest.mark.parametrize(("reply", "doubt"), LOOKS)
def test_a_base_url_that_looks_wrong_causes_a_question_before_the_password_is_typed(
    xapi: Xapi, sandbox: Sandbox, reply: bytes, doubt: str | None
) -> None:
    with (
        Server([request(), send(reply)]) as server,
        xapi.on_terminal("login", "--base-url", server.url, columns=300) as terminal,
    ):
        before = terminal.expect("Email address: " if doubt is None else f"Use {server.url} anyway? [y/N] ")
        assert ("xapi: warning: " in before, (doubt or "") in before) == (doubt is not None, True)
        if doubt and "404" in doubt:
            pasted = f"{sandbox.base_url}/x-api/token\n"
            answer(terminal, ("", "what?\n"), ("anyway? [y/N] ", "\n"), ("Base URL of the API: ", pasted))
            assert f"using the base URL {sandbox.base_url}, without /x-api/token" in terminal.expect("Email address: ")
        elif doubt:
            answer(terminal, ("", "y\n"), ("Email address: ", ""))
    assert b"GET /x-api/token HTTP/1.1\r\n" in server.received[0]


def test_after_a_rejection_what_was_typed_can_be_corrected_and_is_not_sent_twice(xapi: Xapi, sandbox: Sandbox) -> None:
    with xapi.on_terminal("login", "--base-url", sandbox.base_url, "--quiet", columns=300) as terminal:
        answer(
            terminal,
            ("Email address: ", "mastr@example.com\n"),
            ("Password for mastr@example.com ", f"{MASTER.password}\n"),
            ("was rejected (400 invalid_grant: username and password do not match); try again (2 attempts left)", ""),
            ("Email address [mastr@example.com]: ", "\n"),
            ("Password for mastr@example.com ", f"{MASTER.password}\n"),
            ("(1 attempt left)", ""),
            ("Email address [mastr@example.com]: ", f"{MASTER.email}\n"),
            (f"Password for {MASTER.email} ", f"{MASTER.password}\n"),
        )
        assert terminal.wait() == 0
    assert sandbox.login_attempts == 2
    assert f'username = "{MASTER.email}"' in (xapi.config / "config.toml").read_text()


@pytest.mark.parametrize("is_typed", [True, False])
def test_after_a_rejection_without_an_error_code_a_typed_base_url_can_be_corrected(
    xapi: Xapi, sandbox: Sandbox, is_typed: bool
) -> None:
    page = response("401 Unauthorized", b"<html>", "Content-Type: text/html")
    with Server([request(), send(page), request(), send(page)]) as server:
        options = () if is_typed else ("--base-url", server.url)
        with xapi.on_terminal("login", *options, "-u", MASTER.email, columns=300) as terminal:
            if is_typed:
                answer(terminal, ("Base URL of the API: ", f"{server.url}\n"))
            answer(terminal, ("Password for ", f"{MASTER.password}\n"))
            terminal.expect("did not respond with JSON); check the base URL, or try again (2 attempts left)")
            if is_typed:
                answer(terminal, (f"Base URL of the API [{server.url}]: ", f"{sandbox.base_url}\n"))
                answer(terminal, (f"Password for {MASTER.email} at {sandbox.base_url}: ", f"{MASTER.password}\n"))
                assert terminal.wait() == 0
            else:
                assert "Base URL of the API" not in terminal.expect("Password for ")


def test_after_three_rejected_passwords_login_fails(xapi: Xapi, sandbox: Sandbox) -> None:
    with xapi.on_terminal("login", *account_of(sandbox), columns=300) as terminal:
        answer(terminal, *(("Password for ", f"{password}\n") for password in ("wrong", "wrong ", "wrong")))
        assert terminal.wait() == 10
    rejected = " do not match); check the password that you typed, and the username"
    assert terminal.text.splitlines()[-1].endswith(rejected)
    assert (sandbox.login_attempts, xapi.config.exists()) == (2, False)
    with xapi.on_terminal("login", *account_of(sandbox), env={"XAPI_PASSWORD": "wrong"}) as terminal:
        assert terminal.wait() == 10
    assert b"Password for" not in terminal.seen


@pytest.mark.parametrize(("question", "args"), [("Base URL of the API: ", 0), ("Password for ", 4)])
def test_ctrl_d_at_a_prompt_is_reported_on_a_new_line(xapi: Xapi, sandbox: Sandbox, question: str, args: int) -> None:
    with xapi.on_terminal("login", *account_of(sandbox)[:args], columns=200) as terminal:
        answer(terminal, (question, "\x04"))
        assert terminal.wait() == 10
    assert terminal.text.splitlines()[-1].startswith("xapi: error: the prompt was not answered;")


@pytest.mark.parametrize(("sent", "code", "stderr"), [(None, 130, None), (signal.SIGTERM, 143, subprocess.DEVNULL)])
def test_an_interrupted_prompt_restores_the_echo(
    xapi: Xapi, sandbox: Sandbox, sent: signal.Signals | None, code: int, stderr: int | None
) -> None:
    with xapi.on_terminal("login", *account_of(sandbox), stderr=stderr) as terminal:
        terminal.expect("Password for ")
        assert not terminal.echoes
        terminal.interrupt() if sent is None else terminal.process.send_signal(sent)
        assert terminal.wait() == code
        assert terminal.echoes
        assert b"Traceback" not in terminal.seen
    assert sandbox.login_attempts == 0


def test_stderr_of_a_password_command_is_shown_on_a_terminal_and_not_logged(xapi: Xapi, sandbox: Sandbox) -> None:
    args = ("login", *account_of(sandbox), "--password-command", "sh -c 'echo insert the key >&2; exit 2'")

    with xapi.on_terminal(*args, columns=200) as terminal:
        assert terminal.wait() == 10
    assert terminal.text.splitlines()[0] == "insert the key"
    assert "insert" not in xapi(*args).err


def test_the_suggested_command_has_the_profile_that_a_flag_selects(xapi: Xapi, sandbox: Sandbox) -> None:
    with xapi.on_terminal("login", "-p", "play", env=sandbox.settings, columns=200) as terminal:
        assert terminal.wait() == 0
    assert "settings stored in profile play; next, run `xapi request /path --profile play`" in terminal.text


# the question whether to remember the password

QUESTION = "Remember the password in the keyring, so that xapi can log in again automatically? [Y/n] "


@pytest.mark.parametrize(
    ("option", "typed", "code", "is_stored"),
    [
        (None, "\n", 0, True),
        (None, "n\n", 0, False),
        (None, "\x03", 130, False),
        (None, "\x04", 0, False),
        ("--remember", None, 0, True),
        ("--no-remember", None, 0, False),
    ],
)
def test_the_user_is_asked_for_consent_to_remember_the_password(
    xapi: Xapi, sandbox: Sandbox, option: str | None, typed: str | None, code: int, is_stored: bool
) -> None:
    env, options = xapi.fake_keyring(), (option,) if option else ()
    for is_asked in (typed is not None, typed is not None and not is_stored):
        with xapi.on_terminal("login", *account_of(sandbox), *options, env=env, columns=300) as terminal:
            answer(terminal, ("Password for ", f"{MASTER.password}\n"))
            if is_asked and typed:
                answer(terminal, (QUESTION, typed))
            terminal.expect("stored in the keyring")
            terminal.expect("settings stored in profile default; ")
            assert terminal.wait() == (code if is_asked else 0)
        assert terminal.text.count(QUESTION) == is_asked
        assert (MASTER.password in (xapi.home / "items.json").read_text()) is is_stored
    assert xapi("token", "show", "--no-login", env=env).code == 0


@pytest.fixture
def helper(xapi: Xapi, fake_helper: FakeHelper) -> FakeHelper:
    """The helper that stores the tokens of *xapi*."""
    xapi.environ |= {"XAPI_STORAGE": "helper", "XAPI_CREDENTIAL_HELPER": str(fake_helper.path)}
    return fake_helper


def test_a_password_that_could_not_be_stored_is_not_reported_as_stored(
    xapi: Xapi, sandbox: Sandbox, helper: FakeHelper
) -> None:
    with xapi.on_terminal("login", *account_of(sandbox), columns=400) as terminal:
        answer(terminal, ("Password for ", f"{MASTER.password}\n"), ("[Y/n]", ""))
        program = helper.path.read_text()
        helper.path.write_text(program.replace('if action == "store":', 'if action == "store":\n    sys.exit(1)'))
        terminal.type("y\n")
        assert terminal.wait() == 0
    assert "xapi: warning: the password could not be stored: `docker-credential-fake store` failed" in terminal.text
    assert "), token stored in the credential helper" in terminal.text


def test_a_logout_during_the_question_is_not_undone(xapi: Xapi, sandbox: Sandbox, helper: FakeHelper) -> None:
    with xapi.on_terminal("login", *account_of(sandbox), columns=400) as terminal:
        answer(terminal, ("Password for ", f"{MASTER.password}\n"), ("[Y/n]", ""))
        assert xapi("logout", "--all").code == 0
        terminal.type("y\n")
        assert terminal.wait() == 0
    assert helper.stored == []

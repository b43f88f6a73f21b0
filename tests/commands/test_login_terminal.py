"""`xapi login` on a terminal: its prompts and questions."""

import json
import signal

import pytest

from tests.commands.api import account_of, response
from tests.support.credential_helpers import FakeHelper
from tests.support.program import OnTerminal, Xapi
from tests.support.servers import Server, free_port, hang, request, send
from tests.support.threads import Gate
from xapi_cli.features.sandbox import MASTER, Sandbox


def test_login_prompts_for_missing_settings_and_does_not_echo_the_password(xapi: Xapi, sandbox: Sandbox) -> None:
    with xapi.on_terminal("login") as terminal:
        terminal.expect("Base URL of the API: ")
        terminal.type("ftp://nowhere\n")
        terminal.expect("xapi: warning: the base URL has the scheme")
        terminal.expect("Base URL of the API: ")
        terminal.type(f"{sandbox.base_url}/\n")
        terminal.expect("Email address: ")
        terminal.type(f"{MASTER.email}\n")
        terminal.expect(f"Password for {MASTER.email} at {sandbox.base_url}: ")
        assert not terminal.echoes
        for _ in range(2):
            terminal.type("\n")
            terminal.expect("xapi: warning: the password is empty")
            terminal.expect(f"Password for {MASTER.email} at {sandbox.base_url}: ")
        terminal.type(f"{MASTER.password}\n")
        terminal.expect("xapi: logged in as ")
        terminal.expect("xapi: settings stored in profile default; next, run `xapi request /path`")
        assert terminal.wait() == 0
        assert terminal.echoes
    assert MASTER.password.encode() not in terminal.seen
    assert b"Remember" not in terminal.seen  # a file never contains a password


def test_the_store_is_probed_before_the_first_prompt(xapi: Xapi) -> None:
    with xapi.on_terminal("login", env={"XAPI_STORAGE": "auto"}, columns=200) as terminal:
        assert terminal.wait() == 13
    assert terminal.text.splitlines() == [
        "xapi: error: no usable keyring on this machine; run `xapi login --storage file` to store the token in a file"
    ]


@pytest.mark.parametrize("profile", ["default", "play"])
def test_a_storage_from_a_variable_is_not_stored_and_login_names_the_command_that_stores_it(
    xapi: Xapi, sandbox: Sandbox, profile: str
) -> None:
    selection = () if profile == "default" else ("--profile", profile)

    def note() -> list[str]:
        with xapi.on_terminal("login", *selection, env=sandbox.settings, columns=200) as terminal:
            terminal.expect("next, run ")
            assert terminal.wait() == 0
        return [line for line in terminal.text.splitlines() if "XAPI_STORAGE" in line]

    command = " ".join(("xapi profile set", *selection, "storage file"))
    assert note() == [
        f"xapi: XAPI_STORAGE is not stored in the profile; set it for later commands too, or run `{command}`"
    ]
    without: dict[str, str | None] = {"XAPI_STORAGE": None}
    assert xapi("token", "show", "--no-login", *selection, env=without).code == 10
    assert xapi(*command.split()[1:], env=without).code == 0
    assert xapi("token", "show", "--no-login", *selection, env=without).code == 0
    assert note() == []


def test_a_variable_that_overrides_the_stored_storage_causes_a_warning(xapi: Xapi, sandbox: Sandbox) -> None:
    login = xapi("login", "--storage", "file", env={**sandbox.settings, "XAPI_STORAGE": "keyring"})

    assert login.code == 0
    assert login.err.partition("\n")[2] == (
        "xapi: warning: XAPI_STORAGE is set and overrides the storage of the profile:"
        " commands use storage keyring until you unset the variable\n"
    )
    assert xapi("token", "show", "--no-login", env={"XAPI_STORAGE": "keyring"}).code == 13
    assert xapi("token", "show", "--no-login", env={"XAPI_STORAGE": None}).code == 0


def test_a_base_url_without_a_server_is_prompted_for_again(xapi: Xapi, sandbox: Sandbox) -> None:
    port = free_port()
    with xapi.on_terminal("login", columns=200) as terminal:
        terminal.expect("Base URL of the API: ")
        terminal.type(f"http://127.0.0.1:{port}\n")
        assert "xapi: warning: " in terminal.expect("connection refused")
        terminal.expect("Base URL of the API: ")
        terminal.type(f"{sandbox.base_url.removeprefix('http://')}\n")
        terminal.expect(f"; write {sandbox.base_url}, because https is assumed without a scheme")
        terminal.expect("Base URL of the API: ")
        terminal.type(f"{sandbox.base_url}\n")
        terminal.expect("Email address: ")
        terminal.interrupt()
        assert terminal.wait() == 130


def test_an_email_address_in_place_of_the_base_url_is_prompted_for_again(xapi: Xapi) -> None:
    with xapi.on_terminal("login", columns=200) as terminal:
        terminal.expect("Base URL of the API: ")
        terminal.type(f"{MASTER.email}\n")
        problem = "xapi: warning: the base URL looks like an email address; write it like https://api.example.com"
        terminal.expect(problem)
        terminal.expect("Base URL of the API: ")
        terminal.interrupt()
        assert terminal.wait() == 130


def test_an_error_that_no_other_base_url_can_fix_ends_the_login(xapi: Xapi) -> None:
    with xapi.on_terminal("login", env={"HTTP_PROXY": "socks5://proxy.test"}) as terminal:
        terminal.expect("Base URL of the API: ")
        terminal.type("http://api.test\n")
        assert terminal.wait() == 2
    assert b"SOCKS" in terminal.seen


def test_an_unreachable_base_url_from_a_flag_ends_the_login_before_the_password_prompt(xapi: Xapi) -> None:
    with xapi.on_terminal("login", "--base-url", f"127.0.0.1:{free_port()}", "-u", "me") as terminal:
        assert terminal.wait() == 11
    assert b"Password" not in terminal.seen


@pytest.mark.parametrize(
    ("response", "doubt"),
    [
        (response("404 Not Found"), "/x-api/token responds with 404 Not Found; check the base URL, "),
        (response("503 Busy"), "/x-api/token responds with 503; try again later"),
        (
            response("200 OK", b"<p>", "Content-Type: text/html"),
            "/x-api/token responds with a web page; check the base URL",
        ),
        (
            response("302 Found", b"", "Location: https://api.test/x-api/token"),
            "if you trust it, set the base URL: `xapi login --base-url https://api.test`",
        ),
        (response("401 Unauthorized"), None),
        (response("405 Method Not Allowed"), None),
        (response("200 OK", b"{}", "Content-Type: application/json"), None),
    ],
)
def test_a_base_url_that_looks_wrong_causes_a_warning_before_the_password_is_typed(
    xapi: Xapi, response: bytes, doubt: str | None
) -> None:
    with (
        Server([request(), send(response)]) as server,
        xapi.on_terminal("login", "--base-url", server.url, "-u", "me", columns=300) as terminal,
    ):
        before = terminal.expect("Password for " if doubt is None else f"Use {server.url} anyway? [y/N] ")
        assert ("xapi: warning: " in before, (doubt or "") in before) == (doubt is not None, True)
        if doubt:
            terminal.type("y\n")
            terminal.expect("Password for ")
        assert server.received[0].startswith(b"GET /x-api/token HTTP/1.1\r\n")
        assert b"me" not in server.received[0].partition(b"Host")[0]


@pytest.mark.parametrize("given", [True, False])
def test_a_base_url_that_looks_wrong_is_prompted_for_again_unless_the_user_accepts_it(
    xapi: Xapi, sandbox: Sandbox, given: bool
) -> None:
    with (
        Server([request(), send(response("404 Not Found"))]) as server,
        xapi.on_terminal("login", *(("--base-url", server.url) if given else ()), columns=300) as terminal,
    ):
        if not given:
            terminal.expect("Base URL of the API: ")
            terminal.type(f"{server.url}\n")
        terminal.expect(f"Use {server.url} anyway? [y/N] ")
        terminal.type("what?\n")
        terminal.expect(f"Use {server.url} anyway? [y/N] ")
        terminal.type("\n")
        terminal.expect("Base URL of the API: ")
        terminal.type(f"{sandbox.base_url}\n")
        terminal.expect("Email address: ")
        terminal.type(f"{MASTER.email}\n")
        terminal.expect(f"Password for {MASTER.email} at {sandbox.base_url}: ")
        terminal.type(f"{MASTER.password}\n")
        assert terminal.wait() == 0
    assert f'base_url = "{sandbox.base_url}"' in (xapi.config / "config.toml").read_text()


@pytest.mark.parametrize("options", [(), ("--quiet",)])
def test_after_a_rejected_password_login_says_so_and_prompts_again(
    xapi: Xapi, sandbox: Sandbox, options: tuple[str, ...]
) -> None:
    with xapi.on_terminal("login", *account_of(sandbox), *options, columns=300) as terminal:
        for password in ("wrong", "wrong too", MASTER.password):
            terminal.expect("Password for ")
            terminal.type(f"{password}\n")
        assert terminal.wait() == 0
    rejected = (
        f"xapi: warning: login as {MASTER.email} at {sandbox.base_url} was rejected (400 invalid_grant); try again"
    )
    assert [line for line in terminal.text.splitlines() if " rejected" in line] == [
        f"{rejected} (2 attempts left)",
        f"{rejected} (1 attempt left)",
    ]
    assert sandbox.login_attempts == 3
    assert xapi("token", "show", "--no-login").code == 0


def test_after_a_rejected_login_a_typed_address_can_be_corrected(xapi: Xapi, sandbox: Sandbox) -> None:
    with xapi.on_terminal("login", "--base-url", sandbox.base_url, columns=300) as terminal:
        terminal.expect("Email address: ")
        terminal.type("mastr@example.com\n")
        terminal.expect("Password for mastr@example.com ")
        terminal.type(f"{MASTER.password}\n")
        terminal.expect("login as mastr@example.com ")
        terminal.expect("(2 attempts left)")
        terminal.expect("Email address [mastr@example.com]: ")
        terminal.type("\n")
        terminal.expect("Password for mastr@example.com ")
        terminal.type(f"{MASTER.password}\n")
        terminal.expect("(1 attempt left)")
        assert sandbox.login_attempts == 1  # the same input is not sent again
        terminal.expect("Email address [mastr@example.com]: ")
        terminal.type(f"{MASTER.email}\n")
        terminal.expect(f"Password for {MASTER.email} ")
        terminal.type(f"{MASTER.password}\n")
        terminal.expect(f"logged in as {MASTER.email} ")
        assert terminal.wait() == 0
    assert sandbox.login_attempts == 2
    assert f'username = "{MASTER.email}"' in (xapi.config / "config.toml").read_text()
    assert xapi("token", "show", "--no-login").code == 0


@pytest.mark.parametrize("is_typed", [True, False])
def test_after_a_rejection_without_an_error_code_a_typed_base_url_can_be_corrected(
    xapi: Xapi, sandbox: Sandbox, is_typed: bool
) -> None:
    page = response("401 Unauthorized", b"<html>", "Content-Type: text/html")
    with Server([request(), send(page), request(), send(page)]) as server:
        options = () if is_typed else ("--base-url", server.url)
        with xapi.on_terminal("login", *options, "-u", MASTER.email, columns=300) as terminal:
            if is_typed:
                terminal.expect("Base URL of the API: ")
                terminal.type(f"{server.url}\n")
            terminal.expect("Password for ")
            terminal.type(f"{MASTER.password}\n")
            doubt = f"401 from {server.url}/x-api/token, which did not respond with JSON"
            terminal.expect(f" was rejected ({doubt}); check the base URL, or try again (2 attempts left)")
            if is_typed:
                terminal.expect(f"Base URL of the API [{server.url}]: ")
                terminal.type(f"{sandbox.base_url}\n")
                terminal.expect(f"Password for {MASTER.email} at {sandbox.base_url}: ")
                terminal.type(f"{MASTER.password}\n")
                assert terminal.wait() == 0
            else:
                assert "Base URL of the API" not in terminal.expect("Password for ")
    assert b"Email address" not in terminal.seen


def test_after_three_rejected_passwords_login_fails_and_the_same_one_is_sent_once(xapi: Xapi, sandbox: Sandbox) -> None:
    with xapi.on_terminal("login", *account_of(sandbox), columns=300) as terminal:
        for password in ("wrong", "wrong too", "wrong"):
            terminal.expect("Password for ")
            terminal.type(f"{password}\n")
        assert terminal.wait() == 10
    rejected = " was rejected (400 invalid_grant); check the password that you typed, and the username"
    assert terminal.text.splitlines()[-1].endswith(rejected)
    assert sandbox.login_attempts == 2
    assert not xapi.config.exists()


def test_a_rejected_password_from_another_source_causes_no_prompt(xapi: Xapi, sandbox: Sandbox) -> None:
    with xapi.on_terminal("login", *account_of(sandbox), env={"XAPI_PASSWORD": "wrong"}) as terminal:
        assert terminal.wait() == 10
    assert b"Password for" not in terminal.seen


@pytest.mark.parametrize("question", ["Base URL of the API: ", "Password for "])
def test_ctrl_d_at_a_prompt_is_reported_on_a_new_line(xapi: Xapi, sandbox: Sandbox, question: str) -> None:
    args = account_of(sandbox) if question.startswith("Password") else ()
    with xapi.on_terminal("login", *args, columns=200) as terminal:
        terminal.expect(question)
        terminal.type("\x04")
        assert terminal.wait() == 10
    assert terminal.text.splitlines()[-1] == (
        "xapi: error: the prompt was not answered;"
        " run the command again and answer the prompt, or see `xapi help environment`"
    )


def test_stderr_of_a_password_command_is_shown_on_a_terminal_and_not_logged(xapi: Xapi, sandbox: Sandbox) -> None:
    args = ("login", *account_of(sandbox), "--password-command", "sh -c 'echo insert the key >&2; exit 2'")
    failed = "xapi: error: password_command 'sh' failed with exit code 2; run the command yourself to see why"

    with xapi.on_terminal(*args, columns=200) as terminal:
        assert terminal.wait() == 10
    shown = terminal.text.splitlines()
    assert shown[0] == "insert the key"
    assert shown[1].startswith(failed)

    logged = xapi(*args)
    assert (logged.code, logged.err.count("\n")) == (10, 1)
    assert logged.err.startswith(failed)


@pytest.mark.parametrize("response, is_stored", [("\n", True), ("Y\n", True), ("n\n", False)])
def test_the_user_is_asked_once_for_consent_to_remember_the_password(
    xapi: Xapi, sandbox: Sandbox, response: str, is_stored: bool
) -> None:
    env = xapi.fake_keyring()
    question = "Remember the password in the keyring, so that xapi can log in again automatically? [Y/n] "
    for again in (False, True):
        with xapi.on_terminal("login", *account_of(sandbox), env=env, columns=200) as terminal:
            terminal.expect("Password for ")
            terminal.type(f"{MASTER.password}\n")
            if not (again and is_stored):
                terminal.expect(question)
                terminal.type(response)
            assert terminal.wait() == 0
            assert terminal.text.count(question) == (0 if again and is_stored else 1)
        assert ("correct horse" in (xapi.home / "items.json").read_text()) is is_stored


@pytest.mark.parametrize("key, code", [("\x03", 130), ("\x04", 10)], ids=["Ctrl-C", "Ctrl-D"])
def test_an_unanswered_question_whether_to_remember_leaves_a_complete_login(
    xapi: Xapi, sandbox: Sandbox, key: str, code: int
) -> None:
    env = xapi.fake_keyring()
    with xapi.on_terminal("login", "-p", "new", *account_of(sandbox), env=env, columns=200) as terminal:
        terminal.expect("Password for ")
        terminal.type(f"{MASTER.password}\n")
        terminal.expect("[Y/n] ")
        terminal.type(key)
        terminal.expect(", token stored in the keyring")
        terminal.expect("settings stored in profile new; ")
        assert terminal.wait() == code

    assert "correct horse" not in (xapi.home / "items.json").read_text()
    assert xapi("token", "show", "--no-login", "-p", "new", env=env).code == 0


def test_the_suggested_command_selects_a_profile_only_if_it_is_not_the_default(xapi: Xapi, sandbox: Sandbox) -> None:
    def suggested(*options: str) -> str:
        with xapi.on_terminal("login", *account_of(sandbox), *options, env=sandbox.settings, columns=200) as terminal:
            terminal.expect("next, run `")
            assert terminal.wait() == 0
        return terminal.text.partition("next, run `")[2].partition("`")[0]

    assert suggested("-p", "play") == "xapi request --profile play /path"
    assert xapi("profile", "use", "play").code == 0
    assert suggested() == "xapi request /path"
    assert suggested("-p", "play") == "xapi request /path"
    assert suggested("-p", "default") == "xapi request --profile default /path"


@pytest.mark.parametrize("flag, is_stored", [("--remember", True), ("--no-remember", False)])
def test_an_option_replaces_the_question_whether_to_remember(
    xapi: Xapi, sandbox: Sandbox, flag: str, is_stored: bool
) -> None:
    with xapi.on_terminal("login", *account_of(sandbox), flag, env=xapi.fake_keyring()) as terminal:
        terminal.expect("Password for ")
        terminal.type(f"{MASTER.password}\n")
        assert terminal.wait() == 0
        assert b"Remember" not in terminal.seen
    assert ("correct horse" in (xapi.home / "items.json").read_text()) is is_stored


@pytest.fixture
def helper(xapi: Xapi, fake_helper: FakeHelper) -> FakeHelper:
    """The helper that stores the tokens of *xapi*."""
    xapi.environ |= {"XAPI_STORAGE": "helper", "XAPI_CREDENTIAL_HELPER": str(fake_helper.path)}
    return fake_helper


def _log_in_until_the_question(terminal: OnTerminal) -> None:
    terminal.expect("Password for ")
    terminal.type(f"{MASTER.password}\n")
    terminal.expect("[Y/n]")


def test_a_password_that_could_not_be_stored_is_not_reported_as_stored(
    xapi: Xapi, sandbox: Sandbox, helper: FakeHelper
) -> None:
    with xapi.on_terminal("login", *account_of(sandbox), columns=400) as terminal:
        _log_in_until_the_question(terminal)
        program = helper.path.read_text()
        helper.path.write_text(program.replace('if action == "store":', 'if action == "store":\n    sys.exit(1)'))
        terminal.type("y\n")
        assert terminal.wait() == 0
    assert "xapi: warning: the password could not be stored: `docker-credential-fake store` failed" in terminal.text
    assert "), token stored in the credential helper" in terminal.text
    assert "token and password" not in terminal.text


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_logout_during_the_question_is_reported_and_not_undone(
    xapi: Xapi, sandbox: Sandbox, helper: FakeHelper, answer: str
) -> None:
    with xapi.on_terminal("login", *account_of(sandbox), columns=400) as terminal:
        _log_in_until_the_question(terminal)
        assert xapi("logout", "--all").code == 0
        terminal.type(f"{answer}\n")
        assert terminal.wait() == 13
    assert "logged in as" not in terminal.text
    assert terminal.text.splitlines()[-1] == (
        "xapi: error: the account was logged out in the meantime, so nothing is stored; log in again"
    )
    assert helper.stored == []


def test_the_answer_to_the_question_does_not_replace_a_newer_token(
    xapi: Xapi, sandbox: Sandbox, helper: FakeHelper
) -> None:
    with xapi.on_terminal("login", *account_of(sandbox), columns=400) as terminal:
        _log_in_until_the_question(terminal)
        newer = xapi("token", "show", "--fresh", env=sandbox.settings).out
        terminal.type("y\n")
        assert terminal.wait() == 0
    assert "token and password stored in the credential helper" in terminal.text
    assert xapi("token", "show").out == newer
    assert MASTER.password in json.loads(helper.stored[0]["Secret"]).values()


@pytest.mark.parametrize("how", ["keyboard", "SIGTERM", "SIGHUP"])
def test_an_interrupted_prompt_restores_the_echo(xapi: Xapi, sandbox: Sandbox, how: str) -> None:
    with xapi.on_terminal("login", *account_of(sandbox)) as terminal:
        terminal.expect("Password for ")
        assert not terminal.echoes
        if how == "keyboard":
            terminal.interrupt()
        else:
            terminal.process.send_signal(signal.Signals[how])
        assert terminal.wait(30) == {"keyboard": 130, "SIGTERM": 143, "SIGHUP": 129}[how]
        assert terminal.echoes
        assert b"Traceback" not in terminal.seen
    assert sandbox.login_attempts == 0


def test_ctrl_c_while_the_server_hangs_exits_with_130_immediately(xapi: Xapi) -> None:
    gate = Gate()
    with Server([request(), send(response("405 Method Not Allowed"))], [request(), gate.reached, hang()]) as server:
        args = ("login", "--base-url", server.url, "-u", "me")
        with xapi.on_terminal(*args) as terminal:
            terminal.expect("Password for ")
            terminal.type("secret\n")
            gate.wait()
            terminal.interrupt()
            assert terminal.wait(30) == 130
    assert xapi("token", "status", "--base-url", server.url, "-u", "me").code == 10


def test_no_input_never_prompts(xapi: Xapi, sandbox: Sandbox) -> None:
    for args, env in ((("--no-input",), {}), ((), {"XAPI_NO_INPUT": "1"})):
        with xapi.on_terminal("login", *account_of(sandbox), *args, env=env) as terminal:
            assert terminal.wait(30) == 10
        assert b"Password for" not in terminal.seen
    with xapi.on_terminal("login", *account_of(sandbox), env={"XAPI_NO_INPUT": "off"}) as terminal:
        terminal.expect("Password for")


def test_a_password_has_the_character_set_of_the_terminal_and_may_be_entered_in_parts(
    xapi: Xapi, sandbox: Sandbox
) -> None:
    env = {"XAPI_BASE_URL": sandbox.base_url, "XAPI_USERNAME": MASTER.email}
    with xapi.on_terminal("login", env=env, columns=200) as terminal:
        terminal.expect("Password for ")
        terminal.type(f"{MASTER.password[:3]}\x04")  # Ctrl-D in a line delivers its beginning
        terminal.type(f"{MASTER.password[3:]}\n")
        terminal.expect("logged in as ")
        assert terminal.wait() == 0

"""`xapi login`, as a script and as a person meet it."""

import signal
from pathlib import Path

import pytest

from tests.keyring_session import KeyringSession
from tests.program import Outcome, Xapi, in_deleted_directory
from tests.servers import Server, free_port, hang, request, send
from tests.threads import Gate
from xapi_cli.sandbox import MASTER, MEMBER, Sandbox


def _where(sandbox: Sandbox) -> tuple[str, ...]:
    return ("--base-url", sandbox.base_url, "--username", MASTER.email)


def _answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers])
    return head.encode() + b"\r\n\r\n" + body


def test_a_login_says_who_where_until_when_and_stored_where_and_prints_nothing(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("login", *_where(sandbox), "--password-stdin", input=f"{MASTER.password}\nrest")

    assert (outcome.code, outcome.out) == (0, "")
    start, _, rest = outcome.err.partition(" until ")
    assert start == f"xapi: logged in as {MASTER.email} at {sandbox.base_url}"
    assert rest.endswith(" UTC (in 30 days), token stored in the file store\n")
    assert MASTER.password not in outcome.err


def test_the_next_command_needs_neither_url_nor_name_nor_password(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", *_where(sandbox), "--password-stdin", input=MASTER.password)

    assert xapi("request", "/x-api/me").code == 0
    assert sandbox.logins == 1
    assert (xapi.config / "config.toml").read_text() == (
        f'[profiles.default]\nbase_url = "{sandbox.base_url}"\nusername = "{MASTER.email}"\n'
    )


def test_every_login_gets_a_new_token(xapi: Xapi, sandbox: Sandbox) -> None:
    tokens = set()
    for _ in range(2):
        assert xapi("login", env=sandbox.settings).code == 0
        tokens.add(xapi("token", "show").out)
    assert (len(tokens), sandbox.logins) == (2, 2)


def test_the_flags_that_a_profile_keeps_are_kept(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    bundle = tmp_path / "home" / "ca.pem"
    bundle.touch()
    script = tmp_path / "my pass"
    script.write_text(f"#!/bin/sh\ncat <<'X'\n{MASTER.password}\nX\n")
    script.chmod(0o755)

    outcome = xapi(
        *("login", *_where(sandbox), "--profile", "work", "--storage", "file", "--ca-bundle", "ca.pem"),
        *("--password-command", f"'{script}' show"),
        env={"XAPI_STORAGE": None},
    )

    assert outcome.code == 0
    assert (xapi.config / "config.toml").read_text() == (
        f'[profiles.work]\nbase_url = "{sandbox.base_url}"\nusername = "{MASTER.email}"\nstorage = "file"\n'
        f'ca_bundle = "{bundle}"\npassword_command = ["{script}", "show"]\n'
    )
    sandbox.kill_tokens()
    assert xapi("request", "/x-api/me", "-p", "work", cwd=tmp_path, env={"XAPI_STORAGE": None}).code == 0


@pytest.mark.parametrize("command", ["./getpw", "~/getpw"])
def test_a_password_command_is_the_same_program_in_every_directory(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path, command: str
) -> None:
    own, repository = xapi.home, tmp_path / "cloned"
    repository.mkdir()
    for place, action in ((own, f"echo '{MASTER.password}'"), (repository, "touch ran")):
        (place / "getpw").write_text(f"#!/bin/sh\n{action}\n")
        (place / "getpw").chmod(0o755)
    (own / "ca.pem").touch()

    assert xapi("login", *_where(sandbox), "--password-command", command, "--ca-bundle=~/ca.pem").code == 0
    sandbox.kill_tokens()
    assert xapi("request", "/x-api/me", cwd=repository).code == 0

    assert not (repository / "ran").exists()
    assert (
        f'ca_bundle = "{own}/ca.pem"\npassword_command = ["{own}/getpw"]\n' in (xapi.config / "config.toml").read_text()
    )


@pytest.mark.parametrize("entry", ["", ".", "cloned"])
def test_a_password_command_is_not_looked_up_in_relative_directories_of_path(
    xapi: Xapi, sandbox: Sandbox, entry: str
) -> None:
    repository = xapi.home / entry
    repository.mkdir(exist_ok=True)
    (repository / "getpw").write_text(f"#!/bin/sh\ntouch {xapi.home}/ran\necho '{MASTER.password}'\n")
    (repository / "getpw").chmod(0o755)

    outcome = xapi(
        *("login", *_where(sandbox), "--password-command", "getpw"),
        env={"PATH": f"{entry}:{xapi.environ['PATH']}"},
    )

    assert (outcome.code, (xapi.home / "ran").exists()) == (10, False)
    assert outcome.err.startswith("xapi: error: password_command 'getpw' cannot be run: No such file or directory; ")


@pytest.mark.parametrize("flag, value", [("--ca-bundle", "ca.pem"), ("--password-command", "./getpw")])
def test_a_relative_path_in_a_directory_that_was_deleted_is_exit_2_before_anything_is_sent(
    xapi: Xapi, sandbox: Sandbox, flag: str, value: str
) -> None:
    outcome = in_deleted_directory(xapi, "login", flag, value, env=sandbox.settings)

    assert outcome == Outcome(
        2,
        "",
        f"xapi: error: {flag}: the path is relative, and the current directory was deleted; give an absolute path\n",
    )
    assert sandbox.requests == sandbox.login_attempts == 0


def test_shell_syntax_in_a_password_command_is_warned_of(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("login", *_where(sandbox), "--password-command", "echo pw > /dev/null")

    assert outcome.code == 10
    assert outcome.err.startswith("xapi: warning: --password-command: > is shell syntax, and the command runs without")


def test_a_config_file_that_a_person_edited_keeps_its_comments(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("# mine\n[profiles.default]\ntimeout = 5 # seconds\n")

    xapi("login", env=sandbox.settings)

    assert (xapi.config / "config.toml").read_text() == (
        f'# mine\n[profiles.default]\ntimeout = 5 # seconds\nbase_url = "{sandbox.base_url}"\n'
        f'username = "{MASTER.email}"\n'
    )


def test_a_config_file_that_cannot_be_written_is_a_warning(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi.config.symlink_to("/proc/self")

    outcome = xapi("login", env=sandbox.settings)

    assert outcome.code == 0
    assert outcome.err.startswith(f"xapi: warning: the profile is not written: {xapi.config}/config.toml cannot be")
    assert xapi("token", "show", "--no-login", env=sandbox.settings).code == 0


def test_a_refused_login_stores_nothing_and_leaves_what_was_stored(xapi: Xapi, sandbox: Sandbox) -> None:
    wrong = {**sandbox.settings, "XAPI_PASSWORD": "CANARY"}
    refused = xapi("login", env=wrong)
    assert refused == Outcome(
        10,
        "",
        f"xapi: error: login as {MASTER.email} at {sandbox.base_url} was refused (400 invalid_grant); "
        "check username and password\n",
    )
    assert not xapi.config.exists()
    assert not (xapi.state / "tokens").exists() or not list((xapi.state / "tokens").iterdir())

    xapi("login", env=sandbox.settings)
    before = xapi("token", "show", "--no-login").out
    assert xapi("login", env=wrong).code == 10
    assert xapi("token", "show", "--no-login").out == before


def test_a_persons_login_sends_a_refused_password_again(xapi: Xapi, sandbox: Sandbox) -> None:
    wrong = {**sandbox.settings, "XAPI_PASSWORD": "wrong"}

    assert [xapi("login", env=wrong).code for _ in range(2)] == [10, 10]
    assert sandbox.login_attempts == 2
    assert xapi("login", env=sandbox.settings).code == 0


@pytest.mark.parametrize(
    "answer, code",
    [
        (_answer("307 Temporary Redirect", b"", "Location: http://127.0.0.1:1/x-api/token"), 3),
        (_answer("302 Found", b"", "Location: http://["), 3),
        (_answer("400 Bad Request"), 10),
        (_answer("401 Unauthorized"), 10),
        (_answer("403 Forbidden"), 10),
        (_answer("422 Unprocessable"), 10),
        (_answer("404 Not Found"), 4),
        (_answer("429 Too Many"), 4),
        (_answer("500 Oops"), 5),
        (_answer("200 OK", b"<html>"), 11),
        (_answer("200 OK", b'{"access_token": "a b"}'), 11),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", 11),
        (b"nonsense\r\n\r\n", 11),
        (b"", 11),
    ],
)
def test_each_way_a_token_endpoint_fails_has_its_exit_code(xapi: Xapi, answer: bytes, code: int) -> None:
    with Server([request(), send(answer)]) as server:
        outcome = xapi("login", env={"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "CANARY"})

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (code, "", 1)
    assert outcome.err.startswith("xapi: error: ")
    assert "CANARY" not in outcome.err
    assert len(server.received) == 1
    assert server.received[0].endswith(b"\r\n\r\ngrant_type=password&username=me&password=CANARY")
    assert not xapi.config.exists()


def test_a_password_is_never_sent_after_a_redirect(xapi: Xapi) -> None:
    with Server([request(), send(_answer("200 OK", b'{"access_token": "a"}'))]) as other:
        location = f"Location: {other.url}/x-api/token"
        with Server([request(), send(_answer("308 Permanent Redirect", b"", location))]) as server:
            outcome = xapi("login", env={"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "CANARY"})

    assert other.received == []
    assert outcome.code == 3
    assert outcome.err == (
        f"xapi: error: the token endpoint {server.url}/x-api/token redirects to {other.url}/x-api/token, and a password"
        f" is not sent after a redirect; if you trust it, set the base URL: `xapi login --base-url {other.url}`\n"
    )


def test_nobody_listening_is_exit_11_and_a_silent_server_12(xapi: Xapi) -> None:
    env = {"XAPI_USERNAME": "me", "XAPI_PASSWORD": "CANARY"}

    assert xapi("login", "--base-url", f"http://127.0.0.1:{free_port()}", env=env).code == 11
    with Server([hang()]) as server:
        assert xapi("login", "--base-url", server.url, "--timeout", "0.5", env=env).code == 12
        assert xapi("login", "--base-url", server.url, "--max-time", "0.5", env=env).code == 12


@pytest.mark.parametrize(
    "words, env, said",
    [
        ((), {}, "there is no base URL; give --base-url"),
        (("--base-url", "api.test"), {}, "there is no username; give --username"),
        (("--base-url", "http://u:CANARY@api.test"), {}, "--base-url"),
        (("--base-url", ""), {}, "--base-url is empty"),
        (("--profile", ""), {}, "--profile is empty"),
        (("--profile", "a b"), {}, "'a b' is no profile name"),
        (("--storage", "cloud"), {}, "--storage: 'cloud' is no storage"),
        (("--timeout", "0"), {}, "--timeout: '0' is no number of seconds"),
        ((), {"XAPI_TIMEOUT": "soon"}, "XAPI_TIMEOUT: 'soon' is no number of seconds"),
        (("--remember",), {}, "--remember needs a keyring, and the storage is file"),
        (("--remember",), {"XAPI_STORAGE": "none"}, "--remember needs a keyring, and the storage is none"),
        (("CANARY",), {}, "there is an argument too many"),
        (("--password", "CANARY"), {}, "there is no option --password; no flag takes a password"),
        (("--password=CANARY",), {}, "there is no option --password; no flag takes a password"),
        (("--password-command", "'a"), {}, "--password-command: a quote is not closed"),
        (("--base-url", "a.test", "-u", "me", "--password-stdin"), {}, "--password-stdin: the first line of stdin is"),
    ],
)
def test_wrong_usage_is_one_line_and_nothing_is_sent(
    xapi: Xapi, words: tuple[str, ...], env: dict[str, str], said: str
) -> None:
    outcome = xapi("login", *words, env=env)

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith(f"xapi: error: {said}"), outcome.err
    assert "CANARY" not in outcome.err


def test_without_a_password_and_a_terminal_it_says_what_to_do(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", *_where(sandbox), input="CANARY\n") == Outcome(
        10,
        "",
        f"xapi: error: there is no password for {MASTER.email} at {sandbox.base_url}; "
        "use --password-stdin, set XAPI_PASSWORD, or run `xapi login` on a terminal\n",
    )
    assert sandbox.login_attempts == 0


def test_the_password_sources_have_their_order(xapi: Xapi, sandbox: Sandbox) -> None:
    right, wrong = MASTER.password, "wrong"
    xapi("profile", "set", "password_command", "printf wrong")

    assert xapi("login", *_where(sandbox), "--password-stdin", input=right, env={"XAPI_PASSWORD": wrong}).code == 0
    assert xapi("login", env={"XAPI_PASSWORD": right}).code == 0
    assert xapi("login").code == 10


def test_a_password_command_that_fails_is_exit_10_and_no_other_source_is_tried(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("login", *_where(sandbox), "--password-command", "sh -c 'echo CANARY; exit 7'")

    assert outcome == Outcome(
        10,
        "",
        "xapi: error: password_command 'sh' failed with exit code 7; "
        "run it by hand to see why; nothing else was tried\n",
    )
    assert sandbox.login_attempts == 0


def test_max_time_bounds_the_password_command_too(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", *_where(sandbox), "--password-command", "sleep 60", "--max-time", "1").code == 12


def test_a_keyring_keeps_the_password_only_where_that_was_asked_for(xapi: Xapi, sandbox: Sandbox) -> None:
    keyring = xapi.fake_keyring()
    items = xapi.home / "items.json"
    env = {**keyring, **sandbox.settings}

    assert xapi("login", env=env).err.endswith("token stored in the keyring\n")
    assert "correct horse" not in items.read_text()
    xapi("login", "--remember", env=env)
    assert "correct horse" in items.read_text()
    xapi("login", env=env)
    assert "correct horse" in items.read_text()

    without = {**keyring, "XAPI_PASSWORD": None}
    sandbox.kill_tokens()
    assert xapi("request", "/x-api/me", env=without).code == 0
    assert xapi("login", env=without).code == 0  # where it cannot ask, the remembered one serves

    xapi("login", "--no-remember", env=env)
    assert "correct horse" not in items.read_text()
    assert xapi("login", env=without).code == 10


def test_storage_none_logs_in_and_keeps_nothing(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("login", "--storage", "none", env=sandbox.settings)

    assert outcome.code == 0
    assert outcome.err.endswith(
        ", token not stored: profile default has storage none now, so each command logs in anew\n"
    )
    assert not (xapi.state / "tokens").exists()
    once = xapi("login", env={**sandbox.settings, "XAPI_STORAGE": "none"})
    assert once.err.endswith(", token not stored\n")


def test_a_token_in_the_environment_is_pointed_out(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("login", env={**sandbox.settings, "XAPI_TOKEN": "abc"})

    assert outcome.code == 0
    assert "xapi: warning: XAPI_TOKEN is set and hides the stored token: " in outcome.err


# on a terminal


def test_a_person_is_asked_for_what_is_missing_and_the_password_is_not_shown(xapi: Xapi, sandbox: Sandbox) -> None:
    with xapi.on_terminal("login") as terminal:
        terminal.expect("Base URL of the API: ")
        terminal.type("ftp://nowhere\n")
        terminal.expect("xapi: error: ")
        terminal.expect("Base URL of the API: ")
        terminal.type(f"{sandbox.base_url}/\n")
        terminal.expect("E-mail address: ")
        terminal.type(f"{MASTER.email}\n")
        terminal.expect(f"Password for {MASTER.email} at {sandbox.base_url}: ")
        assert not terminal.echoes
        terminal.type("\n")
        terminal.expect("the password is empty")
        terminal.expect(f"Password for {MASTER.email} at {sandbox.base_url}: ")
        terminal.type(f"{MASTER.password}\n")
        terminal.expect("xapi: logged in as ")
        terminal.expect("xapi: settings kept in profile default; next, try: xapi token status")
        assert terminal.wait() == 0
        assert terminal.echoes
    assert MASTER.password.encode() not in terminal.seen
    assert b"Remember" not in terminal.seen  # a file never holds a password


def test_the_store_is_tried_before_the_first_question(xapi: Xapi) -> None:
    with xapi.on_terminal("login", env={"XAPI_STORAGE": "auto"}) as terminal:
        assert terminal.wait() == 13
    assert terminal.seen.decode().splitlines() == [
        "xapi: error: no usable keyring on this machine; use --storage file, or set XAPI_STORAGE=file"
    ]


def test_a_base_url_where_nobody_answers_is_asked_for_again(xapi: Xapi, sandbox: Sandbox) -> None:
    port = free_port()
    with xapi.on_terminal("login", columns=200) as terminal:
        terminal.expect("Base URL of the API: ")
        terminal.type(f"http://127.0.0.1:{port}\n")
        assert "xapi: error: " in terminal.expect("connection refused")
        terminal.expect("Base URL of the API: ")
        terminal.type(f"{sandbox.base_url}\n")
        terminal.expect("E-mail address: ")
        terminal.interrupt()
        assert terminal.wait() == 130


def test_what_no_other_base_url_would_mend_ends_it(xapi: Xapi) -> None:
    with xapi.on_terminal("login", env={"HTTP_PROXY": "socks5://proxy.test"}) as terminal:
        terminal.expect("Base URL of the API: ")
        terminal.type("http://api.test\n")
        assert terminal.wait() == 2
    assert b"SOCKS" in terminal.seen


def test_a_given_base_url_where_nobody_answers_ends_it_before_the_password(xapi: Xapi) -> None:
    with xapi.on_terminal("login", "--base-url", f"127.0.0.1:{free_port()}", "-u", "me") as terminal:
        assert terminal.wait() == 11
    assert b"Password" not in terminal.seen


@pytest.mark.parametrize(
    ("answer", "doubt"),
    [
        (_answer("404 Not Found"), "/x-api/token answers 404: not found; is the base URL right? "),
        (_answer("503 Busy"), "/x-api/token answers 503; the service is in trouble; try again later"),
        (_answer("200 OK", b"<p>", "Content-Type: text/html"), "/x-api/token answers with a web page; is the base URL"),
        (
            _answer("302 Found", b"", "Location: https://api.test/x-api/token"),
            "if you trust it, set the base URL: `xapi login --base-url https://api.test`",
        ),
        (_answer("401 Unauthorized"), None),
        (_answer("405 Method Not Allowed"), None),
        (_answer("200 OK", b"{}", "Content-Type: application/json"), None),
    ],
)
def test_a_base_url_that_looks_wrong_is_doubted_before_the_password_is_typed(
    xapi: Xapi, answer: bytes, doubt: str | None
) -> None:
    with (
        Server([request(), send(answer)]) as server,
        xapi.on_terminal("login", "--base-url", server.url, "-u", "me", columns=300) as terminal,
    ):
        before = terminal.expect("Password for " if doubt is None else f"Use {server.url} all the same? [y/N] ")
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
        Server([request(), send(_answer("404 Not Found"))]) as server,
        xapi.on_terminal("login", *(("--base-url", server.url) if given else ()), columns=300) as terminal,
    ):
        if not given:
            terminal.expect("Base URL of the API: ")
            terminal.type(f"{server.url}\n")
        terminal.expect(f"Use {server.url} all the same? [y/N] ")
        terminal.type("what?\n")
        terminal.expect(f"Use {server.url} all the same? [y/N] ")
        terminal.type("\n")
        terminal.expect("Base URL of the API: ")
        terminal.type(f"{sandbox.base_url}\n")
        terminal.expect("E-mail address: ")
        terminal.type(f"{MASTER.email}\n")
        terminal.expect(f"Password for {MASTER.email} at {sandbox.base_url}: ")
        terminal.type(f"{MASTER.password}\n")
        assert terminal.wait() == 0
    assert f'base_url = "{sandbox.base_url}"' in (xapi.config / "config.toml").read_text()


def test_a_refused_password_is_prompted_for_again(xapi: Xapi, sandbox: Sandbox) -> None:
    with xapi.on_terminal("login", *_where(sandbox), columns=300) as terminal:
        for password in ("wrong", "wrong too", MASTER.password):
            terminal.expect("Password for ")
            terminal.type(f"{password}\n")
        assert terminal.wait() == 0
    assert terminal.seen.count(b" was refused (400 invalid_grant); try again") == 2
    assert sandbox.login_attempts == 3
    assert xapi("token", "show", "--no-login").code == 0


def test_after_three_refused_passwords_it_gives_up_and_the_same_one_is_sent_once(xapi: Xapi, sandbox: Sandbox) -> None:
    with xapi.on_terminal("login", *_where(sandbox), columns=300) as terminal:
        for password in ("wrong", "wrong too", "wrong"):
            terminal.expect("Password for ")
            terminal.type(f"{password}\n")
        assert terminal.wait() == 10
    assert (
        terminal.seen.decode()
        .splitlines()[-1]
        .endswith(" was refused (400 invalid_grant); check username and password")
    )
    assert sandbox.login_attempts == 2
    assert not xapi.config.exists()


def test_a_password_from_elsewhere_that_is_refused_is_not_prompted_for(xapi: Xapi, sandbox: Sandbox) -> None:
    with xapi.on_terminal("login", *_where(sandbox), env={"XAPI_PASSWORD": "wrong"}) as terminal:
        assert terminal.wait() == 10
    assert b"Password for" not in terminal.seen


@pytest.mark.parametrize("question", ["Base URL of the API: ", "Password for "])
def test_ctrl_d_at_a_question_is_told_on_a_line_of_its_own(xapi: Xapi, sandbox: Sandbox, question: str) -> None:
    words = _where(sandbox) if question.startswith("Password") else ()
    with xapi.on_terminal("login", *words, columns=200) as terminal:
        terminal.expect(question)
        terminal.type("\x04")
        assert terminal.wait() == 10
    assert terminal.seen.decode().splitlines()[-1] == (
        "xapi: error: there was no answer at the prompt; run it again and answer, or see `xapi help environment`"
    )


def test_what_a_password_command_says_is_shown_to_a_person_and_to_no_log(xapi: Xapi, sandbox: Sandbox) -> None:
    words = ("login", *_where(sandbox), "--password-command", "sh -c 'echo insert the key >&2; exit 2'")
    failed = "xapi: error: password_command 'sh' failed with exit code 2; run it by hand to see why; nothing else was"

    with xapi.on_terminal(*words, columns=200) as terminal:
        assert terminal.wait() == 10
    shown = terminal.seen.decode().splitlines()
    assert shown[0] == "insert the key"
    assert shown[1].startswith(failed)

    logged = xapi(*words)
    assert (logged.code, logged.err.count("\n")) == (10, 1)
    assert logged.err.startswith(failed)


@pytest.mark.parametrize("answer, kept", [("\n", True), ("Y\n", True), ("n\n", False)])
def test_a_person_is_asked_once_whether_to_remember_the_password(
    xapi: Xapi, sandbox: Sandbox, answer: str, kept: bool
) -> None:
    env = xapi.fake_keyring()
    question = "Remember the password in the keyring, so that xapi can log in again by itself? [Y/n] "
    for again in (False, True):
        with xapi.on_terminal("login", *_where(sandbox), env=env, columns=200) as terminal:
            terminal.expect("Password for ")
            terminal.type(f"{MASTER.password}\n")
            if not (again and kept):
                terminal.expect(question)
                terminal.type(answer)
            assert terminal.wait() == 0
            assert terminal.seen.count(question.encode()) == (0 if again and kept else 1)
        assert ("correct horse" in (xapi.home / "items.json").read_text()) is kept


@pytest.mark.parametrize("flag, kept", [("--remember", True), ("--no-remember", False)])
def test_a_person_who_said_so_is_not_asked_whether_to_remember(
    xapi: Xapi, sandbox: Sandbox, flag: str, kept: bool
) -> None:
    with xapi.on_terminal("login", *_where(sandbox), flag, env=xapi.fake_keyring()) as terminal:
        terminal.expect("Password for ")
        terminal.type(f"{MASTER.password}\n")
        assert terminal.wait() == 0
        assert b"Remember" not in terminal.seen
    assert ("correct horse" in (xapi.home / "items.json").read_text()) is kept


@pytest.mark.parametrize("how", ["keyboard", "SIGTERM", "SIGHUP"])
def test_ending_it_at_the_prompt_restores_the_echo(xapi: Xapi, sandbox: Sandbox, how: str) -> None:
    with xapi.on_terminal("login", *_where(sandbox)) as terminal:
        terminal.expect("Password for ")
        assert not terminal.echoes
        if how == "keyboard":
            terminal.interrupt()
        else:
            terminal.process.send_signal(signal.Signals[how])
        assert terminal.wait(5) == {"keyboard": 130, "SIGTERM": 143, "SIGHUP": 129}[how]
        assert terminal.echoes
        assert b"Traceback" not in terminal.seen
    assert sandbox.login_attempts == 0


def test_ctrl_c_while_the_server_hangs_is_130_at_once(xapi: Xapi) -> None:
    gate = Gate()
    with Server([request(), send(_answer("405 Method Not Allowed"))], [request(), gate.reached, hang()]) as server:
        words = ("login", "--base-url", server.url, "-u", "me")
        with xapi.on_terminal(*words) as terminal:
            terminal.expect("Password for ")
            terminal.type("secret\n")
            gate.wait()
            terminal.interrupt()
            assert terminal.wait(5) == 130
    assert xapi("token", "status", "--base-url", server.url, "-u", "me").code == 10


def test_no_input_never_asks(xapi: Xapi, sandbox: Sandbox) -> None:
    for words, env in ((("--no-input",), {}), ((), {"XAPI_NO_INPUT": "1"})):
        with xapi.on_terminal("login", *_where(sandbox), *words, env=env) as terminal:
            assert terminal.wait(5) == 10
        assert b"Password for" not in terminal.seen
    with xapi.on_terminal("login", *_where(sandbox), env={"XAPI_NO_INPUT": "off"}) as terminal:
        terminal.expect("Password for")


def test_a_login_keeps_its_token_in_the_real_keyring(
    xapi: Xapi, sandbox: Sandbox, shared_gnome_keyring: KeyringSession
) -> None:
    shared_gnome_keyring.clear()
    env = {**shared_gnome_keyring.environ, "XAPI_STORAGE": "auto"}

    assert xapi("login", env={**env, **sandbox.settings}).err.endswith("token stored in the keyring\n")
    assert xapi("request", "/x-api/me", env=env).code == 0
    assert (shared_gnome_keyring.count(MASTER.email), sandbox.logins) == (1, 1)
    assert xapi("logout", env=env).code == 0
    assert shared_gnome_keyring.labels() == []


def test_a_user_without_master_rights_can_log_in(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi(
        "login", "--base-url", sandbox.base_url, "-u", MEMBER.email, "--password-stdin", input=MEMBER.password
    )

    assert outcome.code == 0


@pytest.mark.parametrize("host", ["api.localhost", "localhost", "api.test"])
def test_plain_http_through_a_proxy_is_warned_of_whatever_the_name(xapi: Xapi, host: str) -> None:
    with Server([request(), send(_answer("200 OK", b'{"access_token":"t"}'))]) as proxy:
        env = {"XAPI_USERNAME": "me", "XAPI_PASSWORD": "x", "HTTP_PROXY": proxy.url}
        outcome = xapi("login", "--base-url", f"http://{host}", env=env)

    assert outcome.code == 0
    assert outcome.err.startswith(
        f"xapi: warning: http://{host} is plain http: password and token can be read on the way; use https\n"
    )


def test_a_login_that_is_refused_over_plain_http_has_been_warned_of(xapi: Xapi) -> None:
    with Server([request(), send(_answer("401 No"))]) as proxy:
        env = {"XAPI_USERNAME": "me", "XAPI_PASSWORD": "x", "HTTP_PROXY": proxy.url}
        outcome = xapi("login", "--base-url", "http://api.localhost", env=env)

    assert outcome.code == 10
    assert outcome.err.startswith("xapi: warning: http://api.localhost is plain http: ")


def test_plain_http_that_stays_on_loopback_is_not_warned_of(xapi: Xapi, sandbox: Sandbox) -> None:
    named = sandbox.base_url.replace("127.0.0.1", "localhost")

    assert "warning" not in xapi("login", env=sandbox.settings).err
    assert "warning" not in xapi("login", env={**sandbox.settings, "XAPI_BASE_URL": named}).err

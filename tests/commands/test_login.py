"""`xapi login` in scripts: its arguments, the sources of the password, and what it stores."""

import json
from pathlib import Path

import pytest

from tests.commands.api import account_of, response
from tests.support.keyring_session import KeyringSession
from tests.support.program import Environ, Outcome, Xapi
from tests.support.servers import Server, free_port, hang, request, send
from xapi_cli.features.sandbox import MASTER, Sandbox

ME = {"XAPI_USERNAME": "me", "XAPI_PASSWORD": "CANARY"}


def at(server: Server) -> Environ:
    return {**ME, "XAPI_BASE_URL": server.url}


def test_a_login_reports_account_expiry_and_storage_and_later_commands_need_no_settings(
    xapi: Xapi, sandbox: Sandbox
) -> None:
    outcome = xapi("login", *account_of(sandbox), "--password-stdin", input=f"{MASTER.password}\nrest")

    assert (outcome.code, outcome.out) == (0, "")
    start, _, rest = outcome.err.partition(" until ")
    assert start == f"xapi: logged in as {MASTER.email} at {sandbox.base_url}"
    assert rest.endswith(" UTC (in 30 days), token stored in the file store\n")
    assert xapi("request", "/x-api/me").code == 0
    assert (xapi.config / "config.toml").read_text() == (
        f'[profiles.default]\nbase_url = "{sandbox.base_url}"\nusername = "{MASTER.email}"\n'
    )
    first = xapi("token", "show").out
    assert xapi("login", sandbox.base_url, "-u", MASTER.email, env={"XAPI_PASSWORD": MASTER.password}).code == 0
    assert (xapi("token", "show").out != first, sandbox.logins) == (True, 2)
    supplied = xapi("login", env={**sandbox.settings, "XAPI_TOKEN": "abc"})
    assert "xapi: warning: XAPI_TOKEN is set and overrides the stored token: " in supplied.err


def test_without_storage_a_login_stores_nothing_and_says_so(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("login", "--storage", "none", env=sandbox.settings)

    assert (outcome.code, (xapi.state / "tokens").exists()) == (0, False)
    assert outcome.err.endswith(", token not stored\n")


def test_a_login_stores_its_token_in_the_real_keyring(
    xapi: Xapi, sandbox: Sandbox, shared_gnome_keyring: KeyringSession
) -> None:
    env = {**shared_gnome_keyring.environ, "XAPI_STORAGE": "auto"}

    assert xapi("login", env={**env, **sandbox.settings}).err.endswith("token stored in the keyring\n")
    assert xapi("request", "/x-api/me", env=env).code == 0
    assert (shared_gnome_keyring.count(MASTER.email), sandbox.logins) == (1, 1)
    assert xapi("logout", env=env).code == 0
    assert shared_gnome_keyring.labels() == []


# arguments and the profile


@pytest.mark.parametrize(
    ("args", "env", "message"),
    [
        (("--base-url", "http://u:CANARY@api.test"), {}, "--base-url"),
        (("--profile", "a b"), {}, "--profile: 'a b' is not a valid profile name"),
        (("--remember",), {"XAPI_STORAGE": "none"}, "--remember cannot be used with storage none"),
        (("CANARY@api.test",), {}, "unexpected argument; give an email address with -u"),
        (("me:CANARY", "-u", "me"), {}, ""),
        (("https://me:CANARY@api.test", "-u", "me"), {}, ""),
        (("CANARY x", "-u", "me"), {}, ""),
        (("https://a.test", "--base-url", "https://b.test"), {}, "URL and --base-url cannot be combined"),
        (("--password", "CANARY"), {}, "unknown option --password; "),
        (("--password=CANARY",), {}, "unknown option --password; "),
        (("--password-command", "'a"), {}, "--password-command: a quote is not closed"),
        (("--base-url=a.test", "-u", "me", "--password-stdin"), {}, "--password-stdin: the first line of stdin is e"),
    ],
)
def test_invalid_usage_is_reported_in_one_line_and_nothing_is_sent(
    xapi: Xapi, args: tuple[str, ...], env: Environ, message: str
) -> None:
    outcome = xapi("login", *args, env=env, input="\n")

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith(f"xapi: error: {message}"), outcome.err
    assert "CANARY" not in outcome.err


def test_a_base_url_argument_needs_no_scheme(xapi: Xapi) -> None:
    for argument, url in (("intranet:80", "https://intranet:80"), ("localhost:1", "http://localhost:1")):
        assert xapi("login", argument, "-u", "me").err.startswith(f"xapi: error: no password for me at {url}; ")


def test_the_flags_that_a_profile_can_contain_are_written_to_it(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("# mine\n[profiles.work]\ntimeout = 5 # seconds\n")
    (xapi.home / "ca.pem").touch()
    script = xapi.home / "my pass"
    script.write_text(f"#!/bin/sh\ncat <<'X'\n{MASTER.password}\nX\n")
    script.chmod(0o755)

    outcome = xapi(
        *("login", *account_of(sandbox), "--storage", "file", "--ca-bundle", "ca.pem"),
        *("--password-command", "'./my pass' show"),
        env={"XAPI_STORAGE": None, "XAPI_PROFILE": "work"},
    )

    assert outcome.code == 0, outcome.err
    assert (xapi.config / "config.toml").read_text() == (
        f'# mine\n[profiles.work]\ntimeout = 5 # seconds\nbase_url = "{sandbox.base_url}"\n'
        f'username = "{MASTER.email}"\nstorage = "file"\n'
        f'ca_bundle = "{xapi.home}/ca.pem"\npassword_command = ["{script}", "show"]\n'
    )
    sandbox.revoke_tokens()
    assert xapi("request", "/x-api/me", "-p", "work", cwd=tmp_path, env={"XAPI_STORAGE": None}).code == 0


def test_a_config_file_that_cannot_be_written_is_a_warning(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi.config.symlink_to("/proc/self")

    outcome = xapi("login", env=sandbox.settings)

    assert outcome.code == 0
    assert outcome.err.startswith("xapi: warning: the profile could not be written: ")
    assert xapi("token", "show", "--no-login", env=sandbox.settings).code == 0


# responses of the token endpoint, see also tests/auth/test_grant.py


@pytest.mark.parametrize(
    ("reply", "code", "hint"),
    [
        (response("308 Moved", b"", "Location: {other}/x-api/token"), 3, "`xapi login --base-url {other}`\n"),
        (response("400 Bad Request", b'{"error": "invalid_grant"}'), 10, "; check the password in XAPI_PASSWORD, "),
        (response("400 Bad Request", b'{"error": "invalid_scope"}'), 10, ": the password is not the reason"),
        (response("400 No", b"<p>", "Content-Type: text/html"), 10, "; check the base URL, which is the part before"),
        (response("404 Not Found"), 4, "; check the base URL, which is the part before /x-api/token, and then the"),
        (response("429 Too Many", b"", "Retry-After: 7"), 4, "; try again in 7 s"),
        (response("200 OK", b"<html>"), 11, "; check the base URL, or whether a proxy or a sign-in page responded"),
        (response("200 OK", b'{"acc', "Content-Length: 50"), 11, " to log in again\n"),
        (b"", 11, ""),
    ],
)
def test_a_failure_of_the_token_endpoint_has_its_exit_code_and_its_remedy(
    xapi: Xapi, reply: bytes, code: int, hint: str
) -> None:
    with Server([request(), send(response("200 OK", b'{"access_token": "a"}'))]) as other:
        with Server([request(), send(reply.replace(b"{other}", other.url.encode()))]) as server:
            outcome = xapi("login", env=at(server))

        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (code, "", 1), outcome.err
        assert hint.format(other=other.url) in outcome.err
        assert "CANARY" not in outcome.err
        assert server.received[0].endswith(b"\r\n\r\ngrant_type=password&username=me&password=CANARY")
        assert (len(server.received), other.received) == (1, [])
    assert not xapi.config.exists()


def test_a_refused_connection_exits_with_11_and_an_unresponsive_server_with_12(xapi: Xapi) -> None:
    assert xapi("login", "--base-url", f"http://127.0.0.1:{free_port()}", "-u", "me", input="").code == 10
    env = {**ME, "XAPI_BASE_URL": f"http://127.0.0.1:{free_port()}"}
    assert xapi("login", env=env).code == 11
    with Server([hang()]) as server:
        assert xapi("login", "--timeout", "0.5", env=at(server)).code == 12
        assert xapi("login", "--max-time", "0.5", env=at(server)).code == 12


def test_a_rejected_login_leaves_stored_data_unchanged_and_an_explicit_one_is_always_tried(
    xapi: Xapi, sandbox: Sandbox
) -> None:
    wrong = {**sandbox.settings, "XAPI_PASSWORD": "wrong"}
    assert xapi("login", env=wrong).code == 10
    assert not xapi.config.exists()
    assert not list((xapi.state / "tokens").glob("*"))
    xapi("login", env=sandbox.settings)
    before = xapi("token", "show", "--no-login").out

    assert [xapi("login", env=wrong).code for _ in range(2)] == [10, 10]
    assert (xapi("token", "show", "--no-login").out, sandbox.login_attempts) == (before, 4)


def test_plain_http_beyond_loopback_causes_a_warning_even_if_the_login_is_rejected(xapi: Xapi) -> None:
    with Server([request(), send(response("401 No"))]) as proxy:
        env = {**ME, "XAPI_BASE_URL": "http://api.test", "HTTP_PROXY": proxy.url}
        outcome = xapi("login", env=env)

    assert outcome.code == 10
    assert outcome.err.startswith(
        "xapi: warning: http://api.test is plain http: password and token can be read in transit; use https\n"
    )


# the sources of the password


def test_the_password_sources_are_used_in_order_and_named_when_they_are_rejected(xapi: Xapi, sandbox: Sandbox) -> None:
    env = {**xapi.fake_keyring(), **sandbox.settings, "XAPI_PASSWORD": None}
    assert xapi("login", "--remember", env={**env, "XAPI_PASSWORD": MASTER.password}).code == 0
    command = ("--password-command", "echo wrong")

    def rejected(*args: str, password: str | None = None) -> str:
        outcome = xapi("login", *args, input="wrong\n", env={**env, "XAPI_PASSWORD": password})
        assert outcome.code == 10
        return outcome.err.partition("; check ")[2].partition(", and the username")[0]

    assert rejected(*command, "--password-stdin", password="right") == "the password from stdin"
    assert rejected(*command, password="wrong") == "the password in XAPI_PASSWORD"
    assert rejected(*command) == "the password from password_command"
    assert xapi("login", env=env).code == 0  # the remembered password
    hint = "the password in XAPI_PASSWORD, which contains the invisible character U+000A"
    assert rejected(password=f"{MASTER.password}\n") == hint


def test_without_a_password_and_a_terminal_the_error_has_a_remedy(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("login", *account_of(sandbox), input="CANARY\n")

    assert (outcome.code, sandbox.login_attempts) == (10, 0)
    assert outcome.err == (
        f"xapi: error: no password for {MASTER.email} at {sandbox.base_url}; "
        "use --password-stdin, set XAPI_PASSWORD, or run"
        f" `xapi login --username {MASTER.email} --base-url {sandbox.base_url}` on a terminal\n"
    )


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("sh -c 'echo CANARY; exit 7'", "'sh' failed with exit code 7"),
        ("true", "'true' printed no password on its first line"),
        ("cat", "'cat' printed no password on its first line"),  # its stdin is empty
        ("no-such-program", "'no-such-program' cannot be run: No such file or directory"),
        ("cat ~/password", "'cat' failed with exit code 1"),
    ],
)
def test_a_password_command_that_fails_is_named_and_no_other_source_is_tried(
    xapi: Xapi, sandbox: Sandbox, command: str, problem: str
) -> None:
    env = {**xapi.fake_keyring(), **account_env(sandbox)}
    assert xapi("login", "--remember", env={**env, "XAPI_PASSWORD": MASTER.password}).code == 0

    outcome = xapi("login", "--password-command", command, env=env, input=MASTER.password)

    assert (outcome.code, sandbox.login_attempts) == (10, 1)
    assert outcome.err.splitlines()[-1].startswith(f"xapi: error: password_command {problem}; run it"), outcome.err
    assert "CANARY" not in outcome.err


def account_env(sandbox: Sandbox) -> Environ:
    return {"XAPI_BASE_URL": sandbox.base_url, "XAPI_USERNAME": MASTER.email}


def test_a_password_command_is_the_same_program_in_every_directory(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path
) -> None:
    repository = tmp_path / "cloned"
    repository.mkdir()
    for place, action in ((xapi.home, f"echo '{MASTER.password}'"), (repository, f"touch {xapi.home}/ran")):
        (place / "getpw").write_text(f"#!/bin/sh\n{action}\n")
        (place / "getpw").chmod(0o755)

    assert xapi("login", *account_of(sandbox), "--password-command", "./getpw").code == 0
    sandbox.revoke_tokens()
    assert xapi("request", "/x-api/me", cwd=repository).code == 0
    in_path = {"PATH": f".:{xapi.environ['PATH']}"}
    assert xapi("login", "--password-command", "getpw", cwd=repository, env=in_path).code == 10
    assert not (xapi.home / "ran").exists()


def test_max_time_limits_the_password_command(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", *account_of(sandbox), "--password-command", "sleep 60", "--max-time", "1").code == 12


def test_a_password_is_stored_only_with_consent_and_deleted_everywhere_without(xapi: Xapi, sandbox: Sandbox) -> None:
    items = xapi.home / "items.json"
    env = {**xapi.fake_keyring(), **sandbox.settings}

    def has_password(*args: str) -> bool:
        assert xapi("login", *args, env=env) != Outcome(0, "", "")
        return MASTER.password in json.dumps(json.loads(items.read_text()))

    assert [has_password(), has_password("--remember"), has_password()] == [False, True, True]
    sandbox.revoke_tokens()
    assert xapi("request", "/x-api/me", env={**env, "XAPI_PASSWORD": None}).code == 0
    assert not has_password("--no-remember")
    assert has_password("--remember")
    token = xapi("token", "show", env=env).out

    assert not has_password("--no-remember", "--storage", "file")
    assert xapi("token", "show", "--no-login", env=env).out == token
    assert has_password("--remember", "--storage", "keyring")
    items.unlink()
    items.mkdir()
    outcome = xapi("login", "--no-remember", "--storage", "file", env=env)
    assert outcome.code == 0
    assert "xapi: warning: a password of this account in keyring storage may not have been deleted: " in outcome.err

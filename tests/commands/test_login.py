"""`xapi login` in scripts."""

import gzip
import json
from pathlib import Path

import pytest

from tests.commands.api import account_of, response
from tests.support.keyring_session import KeyringSession
from tests.support.program import Outcome, Xapi, in_deleted_directory
from tests.support.servers import Server, free_port, hang, request, send
from xapi_cli.features.sandbox import MASTER, MEMBER, Sandbox


def test_a_login_reports_account_expiry_and_storage_on_stderr_and_nothing_on_stdout(
    xapi: Xapi, sandbox: Sandbox
) -> None:
    outcome = xapi("login", *account_of(sandbox), "--password-stdin", input=f"{MASTER.password}\nrest")

    assert (outcome.code, outcome.out) == (0, "")
    start, _, rest = outcome.err.partition(" until ")
    assert start == f"xapi: logged in as {MASTER.email} at {sandbox.base_url}"
    assert rest.endswith(" UTC (in 30 days), token stored in the file store\n")
    assert MASTER.password not in outcome.err


def test_a_login_reports_that_the_expiry_is_unknown(xapi: Xapi) -> None:
    body = b'{"access_token": "abc", "token_type": "bearer"}'
    with Server([request(), send(response("200 OK", body, "Content-Type: application/json"))]) as server:
        outcome = xapi("login", env={"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "p"})

    assert outcome == Outcome(
        0, "", f"xapi: logged in as me at {server.url} with an unknown expiry, token stored in the file store\n"
    )


def test_later_commands_need_neither_base_url_nor_username_nor_password(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi("login", *account_of(sandbox), "--password-stdin", input=MASTER.password)

    assert xapi("request", "/x-api/me").code == 0
    assert sandbox.logins == 1
    assert (xapi.config / "config.toml").read_text() == (
        f'[profiles.default]\nbase_url = "{sandbox.base_url}"\nusername = "{MASTER.email}"\n'
    )


def test_the_base_url_can_be_an_argument(xapi: Xapi, sandbox: Sandbox) -> None:
    login = xapi("login", sandbox.base_url, "-u", MASTER.email, env={"XAPI_PASSWORD": MASTER.password})

    assert login.code == 0
    assert json.loads(xapi("profile", "show", "--json").out)["base_url"] == sandbox.base_url


@pytest.mark.parametrize("argument", ["api.test", "localhost:1", "api.test:1/v2", "192.0.2.1", "https://api.test"])
def test_a_base_url_argument_needs_no_scheme(xapi: Xapi, argument: str) -> None:
    login = xapi("login", argument, "-u", "me")

    url = argument if "://" in argument else f"https://{argument}"
    assert login.err.startswith(f"xapi: error: no password for me at {url}; ")


@pytest.mark.parametrize("argument", ["hunter2", "me:hunter2", "hunter2.", "https://me:hunter2@api.test", "hunter2 x"])
def test_an_argument_that_may_be_a_password_is_neither_used_nor_repeated(xapi: Xapi, argument: str) -> None:
    login = xapi("login", argument, "-u", "me", env={"XAPI_PASSWORD": "any"})

    assert (login.code, login.out) == (2, "")
    assert "hunter2" not in login.err


def test_a_base_url_is_given_once(xapi: Xapi) -> None:
    assert xapi("login", "https://a.test", "--base-url", "https://b.test") == Outcome(
        2, "", "xapi: error: URL and --base-url cannot be combined; omit one of them\n"
    )


def test_every_login_gets_a_new_token(xapi: Xapi, sandbox: Sandbox) -> None:
    tokens = set()
    for _ in range(2):
        assert xapi("login", env=sandbox.settings).code == 0
        tokens.add(xapi("token", "show").out)
    assert (len(tokens), sandbox.logins) == (2, 2)


def test_the_flags_that_a_profile_can_contain_are_written_to_it(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    bundle = tmp_path / "home" / "ca.pem"
    bundle.touch()
    script = tmp_path / "my pass"
    script.write_text(f"#!/bin/sh\ncat <<'X'\n{MASTER.password}\nX\n")
    script.chmod(0o755)

    outcome = xapi(
        *("login", *account_of(sandbox), "--profile", "work", "--storage", "file", "--ca-bundle", "ca.pem"),
        *("--password-command", f"'{script}' show"),
        env={"XAPI_STORAGE": None},
    )

    assert outcome.code == 0
    assert (xapi.config / "config.toml").read_text() == (
        f'[profiles.work]\nbase_url = "{sandbox.base_url}"\nusername = "{MASTER.email}"\nstorage = "file"\n'
        f'ca_bundle = "{bundle}"\npassword_command = ["{script}", "show"]\n'
    )
    sandbox.revoke_tokens()
    assert xapi("request", "/x-api/me", "-p", "work", cwd=tmp_path, env={"XAPI_STORAGE": None}).code == 0


@pytest.mark.parametrize("flag, value", [("--ca-bundle", "ca.pem"), ("--password-command", "./getpw")])
def test_a_relative_path_in_a_deleted_directory_exits_with_2_before_anything_is_sent(
    xapi: Xapi, sandbox: Sandbox, flag: str, value: str
) -> None:
    outcome = in_deleted_directory(xapi, "login", flag, value, env=sandbox.settings)

    assert outcome == Outcome(
        2,
        "",
        f"xapi: error: {flag}: the path is relative, and the current directory was deleted; give an absolute path\n",
    )
    assert sandbox.requests == sandbox.login_attempts == 0


def test_a_config_file_that_the_user_edited_keeps_its_comments(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("# mine\n[profiles.default]\ntimeout = 5 # seconds\n")

    xapi("login", env=sandbox.settings)

    assert (xapi.config / "config.toml").read_text() == (
        f'# mine\n[profiles.default]\ntimeout = 5 # seconds\nbase_url = "{sandbox.base_url}"\n'
        f'username = "{MASTER.email}"\n'
    )


def test_a_login_with_another_account_reports_what_changes_in_the_profile(xapi: Xapi, sandbox: Sandbox) -> None:
    changed, advice = "xapi: in profile default, ", "; to use both accounts, give each its own profile (-p NAME)\n"
    member = {**sandbox.settings, "XAPI_PASSWORD": MEMBER.password, "XAPI_USERNAME": None}
    of_username = f"the username changed from {MASTER.email} to {MEMBER.email}"

    assert xapi("login", env=sandbox.settings).err.startswith("xapi: logged in as ")
    assert xapi("login", env=sandbox.settings).err.startswith("xapi: logged in as ")
    other = xapi("login", "-u", MEMBER.email, env=member)
    assert other.err.startswith(f"{changed}{of_username}{advice}xapi: logged in as {MEMBER.email} ")
    xapi("login", env=sandbox.settings)
    assert xapi("login", "-u", MEMBER.email, "--quiet", env=member).err == ""

    xapi("profile", "set", "username", MASTER.email)
    xapi("profile", "set", "base_url", "https://API.test/")
    of_base_url = f"the base URL changed from https://api.test to {sandbox.base_url}"
    both = xapi("login", "-u", MEMBER.email, env=member)
    assert both.err.startswith(f"{changed}{of_base_url} and {of_username}{advice}xapi: logged in as ")
    xapi("profile", "unset", "username")
    assert xapi("login", env=sandbox.settings).err.startswith("xapi: logged in as ")


def test_a_config_file_that_cannot_be_written_is_a_warning(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi.config.symlink_to("/proc/self")

    outcome = xapi("login", env=sandbox.settings)

    assert outcome.code == 0
    assert outcome.err.startswith(
        f"xapi: warning: the profile could not be written: {xapi.config}/config.toml cannot be"
    )
    assert xapi("token", "show", "--no-login", env=sandbox.settings).code == 0


def test_a_rejected_login_stores_nothing_and_leaves_stored_data_unchanged(xapi: Xapi, sandbox: Sandbox) -> None:
    wrong = {**sandbox.settings, "XAPI_PASSWORD": "CANARY"}
    refused = xapi("login", env=wrong)
    assert refused == Outcome(
        10,
        "",
        f"xapi: error: login as {MASTER.email} at {sandbox.base_url} was rejected (400 invalid_grant); "
        "check the password in XAPI_PASSWORD, and the username\n",
    )
    assert not xapi.config.exists()
    assert not (xapi.state / "tokens").exists() or not list((xapi.state / "tokens").iterdir())

    xapi("login", env=sandbox.settings)
    before = xapi("token", "show", "--no-login").out
    assert xapi("login", env=wrong).code == 10
    assert xapi("token", "show", "--no-login").out == before


def test_an_explicit_login_sends_a_rejected_password_again(xapi: Xapi, sandbox: Sandbox) -> None:
    wrong = {**sandbox.settings, "XAPI_PASSWORD": "wrong"}

    assert [xapi("login", env=wrong).code for _ in range(2)] == [10, 10]
    assert sandbox.login_attempts == 2
    assert xapi("login", env=sandbox.settings).code == 0


@pytest.mark.parametrize(
    ("truncated", "problem"),
    [
        (response("200 OK", b'{"acc', "Content-Length: 50"), "after 5 bytes (connection closed by the server)"),
        (response("200 OK", gzip.compress(b"{}")[:-4], "Content-Encoding: gzip"), "the gzip body was truncated"),
    ],
    ids=["plain", "gzip"],
)
def test_the_hint_for_a_truncated_response_is_to_log_in_again(xapi: Xapi, truncated: bytes, problem: str) -> None:
    with Server([request(), send(truncated)]) as server:
        options = ("--username", "me", "--base-url", server.url)
        outcome = xapi("login", *options, env={"XAPI_PASSWORD": "secret"})

    assert (outcome.code, outcome.out) == (11, "")
    assert outcome.err.endswith(f"{problem}; run `xapi login {' '.join(options)}` to log in again\n")


@pytest.mark.parametrize(
    "response, code",
    [
        (response("307 Temporary Redirect", b"", "Location: http://127.0.0.1:1/x-api/token"), 3),
        (response("302 Found", b"", "Location: http://["), 3),
        (response("400 Bad Request"), 10),
        (response("401 Unauthorized"), 10),
        (response("403 Forbidden"), 10),
        (response("422 Unprocessable"), 10),
        (response("404 Not Found"), 4),
        (response("429 Too Many"), 4),
        (response("500 Oops"), 5),
        (response("200 OK", b"<html>"), 11),
        (response("200 OK", b'{"access_token": "a b"}'), 11),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", 11),
        (b"nonsense\r\n\r\n", 11),
        (b"", 11),
    ],
)
def test_each_failure_of_the_token_endpoint_has_its_exit_code(xapi: Xapi, response: bytes, code: int) -> None:
    with Server([request(), send(response)]) as server:
        outcome = xapi("login", env={"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "CANARY"})

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (code, "", 1)
    assert outcome.err.startswith("xapi: error: ")
    assert "CANARY" not in outcome.err
    assert len(server.received) == 1
    assert server.received[0].endswith(b"\r\n\r\ngrant_type=password&username=me&password=CANARY")
    assert not xapi.config.exists()


def test_a_password_is_never_sent_after_a_redirect(xapi: Xapi) -> None:
    with Server([request(), send(response("200 OK", b'{"access_token": "a"}'))]) as other:
        location = f"Location: {other.url}/x-api/token"
        with Server([request(), send(response("308 Permanent Redirect", b"", location))]) as server:
            outcome = xapi("login", env={"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "CANARY"})

    assert other.received == []
    assert outcome.code == 3
    assert outcome.err == (
        f"xapi: error: the token endpoint {server.url}/x-api/token redirects to {other.url}/x-api/token, and a password"
        f" is not sent after a redirect; if you trust it, set the base URL: `xapi login --base-url {other.url}`\n"
    )


def test_a_refused_connection_exits_with_11_and_an_unresponsive_server_with_12(xapi: Xapi) -> None:
    env = {"XAPI_USERNAME": "me", "XAPI_PASSWORD": "CANARY"}

    assert xapi("login", "--base-url", f"http://127.0.0.1:{free_port()}", env=env).code == 11
    with Server([hang()]) as server:
        assert xapi("login", "--base-url", server.url, "--timeout", "0.5", env=env).code == 12
        assert xapi("login", "--base-url", server.url, "--max-time", "0.5", env=env).code == 12


@pytest.mark.parametrize(
    "args, env, message",
    [
        ((), {}, "no base URL; give --base-url"),
        (("--base-url", "api.test"), {}, "no username; give --username"),
        (("--base-url", "http://u:CANARY@api.test"), {}, "--base-url"),
        (("--base-url", ""), {}, "--base-url is empty"),
        (("--profile", ""), {}, "--profile is empty"),
        (("--profile", "a b"), {}, "--profile: 'a b' is not a valid profile name"),
        (("--storage", "cloud"), {}, "--storage: 'cloud' is not a valid storage"),
        (("--timeout", "0"), {}, "--timeout: '0' is not a valid duration"),
        ((), {"XAPI_TIMEOUT": "soon"}, "XAPI_TIMEOUT: 'soon' is not a valid duration"),
        (("--remember",), {}, "--remember cannot be used with storage file"),
        (("--remember",), {"XAPI_STORAGE": "none"}, "--remember cannot be used with storage none"),
        (("CANARY",), {}, "unexpected argument"),
        (("--password", "CANARY"), {}, "unknown option --password; did you mean --password-command or"),
        (("--password=CANARY",), {}, "unknown option --password; did you mean --password-command or"),
        (("--password-command", "'a"), {}, "--password-command: a quote is not closed"),
        (("--base-url", "a.test", "-u", "me", "--password-stdin"), {}, "--password-stdin: the first line of stdin is"),
    ],
)
def test_invalid_usage_is_reported_in_one_line_and_nothing_is_sent(
    xapi: Xapi, args: tuple[str, ...], env: dict[str, str], message: str
) -> None:
    outcome = xapi("login", *args, env=env)

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith(f"xapi: error: {message}"), outcome.err
    assert "CANARY" not in outcome.err


def test_storage_none_logs_in_and_stores_nothing(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("login", "--storage", "none", env=sandbox.settings)

    assert outcome.code == 0
    assert outcome.err.endswith(
        ", token not stored: profile default now has storage none, so each command logs in again\n"
    )
    assert not (xapi.state / "tokens").exists()
    once = xapi("login", env={**sandbox.settings, "XAPI_STORAGE": "none"})
    assert once.err.endswith(", token not stored\n")


def test_a_token_in_the_environment_is_reported(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("login", env={**sandbox.settings, "XAPI_TOKEN": "abc"})

    assert outcome.code == 0
    assert "xapi: warning: XAPI_TOKEN is set and overrides the stored token: " in outcome.err


def test_a_login_stores_its_token_in_the_real_keyring(
    xapi: Xapi, sandbox: Sandbox, shared_gnome_keyring: KeyringSession
) -> None:
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
def test_plain_http_through_a_proxy_causes_a_warning_regardless_of_the_name(xapi: Xapi, host: str) -> None:
    with Server([request(), send(response("200 OK", b'{"access_token":"t"}'))]) as proxy:
        env = {"XAPI_USERNAME": "me", "XAPI_PASSWORD": "x", "HTTP_PROXY": proxy.url}
        outcome = xapi("login", "--base-url", f"http://{host}", env=env)

    assert outcome.code == 0
    assert outcome.err.startswith(
        f"xapi: warning: http://{host} is plain http: password and token can be read in transit; use https\n"
    )


def test_plain_http_causes_a_warning_even_if_the_login_is_rejected(xapi: Xapi) -> None:
    with Server([request(), send(response("401 No"))]) as proxy:
        env = {"XAPI_USERNAME": "me", "XAPI_PASSWORD": "x", "HTTP_PROXY": proxy.url}
        outcome = xapi("login", "--base-url", "http://api.localhost", env=env)

    assert outcome.code == 10
    assert outcome.err.startswith("xapi: warning: http://api.localhost is plain http: ")


def test_plain_http_on_loopback_causes_no_warning(xapi: Xapi, sandbox: Sandbox) -> None:
    named = sandbox.base_url.replace("127.0.0.1", "localhost")

    assert "warning" not in xapi("login", env=sandbox.settings).err
    assert "warning" not in xapi("login", env={**sandbox.settings, "XAPI_BASE_URL": named}).err


@pytest.mark.parametrize(
    "option, value",
    [("--password-command", b"echo \xff"), ("--ca-bundle", b"ca\xff"), ("--password-command", b"./pass")],
)
def test_a_login_refuses_what_the_config_file_cannot_contain_before_it_sends_anything(
    xapi: Xapi, option: str, value: bytes
) -> None:
    directory = xapi.home / "d\udcff"
    directory.mkdir()
    with Server() as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "p"}
        outcome = xapi("login", option, value, env=env, cwd=directory)

        problem = "the value, or the current directory, is not valid UTF-8, which the config file requires"
        assert outcome == Outcome(2, "", f"xapi: error: {option}: {problem}; use names in UTF-8\n")
        assert server.received == []
    assert not xapi.config.exists()

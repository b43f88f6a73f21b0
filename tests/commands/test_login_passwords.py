"""Where `xapi login` gets the password, and when it remembers the password."""

import re
from pathlib import Path

import pytest

from tests.commands.api import account_of
from tests.support.program import Environ, Outcome, Xapi
from tests.support.servers import Server, request, send
from xapi_cli.features.sandbox import MASTER, Sandbox


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

    assert xapi("login", *account_of(sandbox), "--password-command", command, "--ca-bundle=~/ca.pem").code == 0
    sandbox.revoke_tokens()
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
        *("login", *account_of(sandbox), "--password-command", "getpw"),
        env={"PATH": f"{entry}:{xapi.environ['PATH']}"},
    )

    assert (outcome.code, (xapi.home / "ran").exists()) == (10, False)
    assert outcome.err.startswith("xapi: error: password_command 'getpw' cannot be run: No such file or directory; ")


def test_shell_syntax_in_a_password_command_causes_a_warning(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("login", *account_of(sandbox), "--password-command", "echo pw > /dev/null")

    assert outcome.code == 10
    assert outcome.err.startswith("xapi: warning: --password-command: > is shell syntax, but the command runs without")


def test_without_a_password_and_a_terminal_the_error_has_a_remedy(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", *account_of(sandbox), input="CANARY\n") == Outcome(
        10,
        "",
        f"xapi: error: no password for {MASTER.email} at {sandbox.base_url}; "
        "use --password-stdin, set XAPI_PASSWORD, or run"
        f" `xapi login --username {MASTER.email} --base-url {sandbox.base_url}` on a terminal\n",
    )
    assert sandbox.login_attempts == 0


def test_the_password_sources_are_used_in_order(xapi: Xapi, sandbox: Sandbox) -> None:
    right, wrong = MASTER.password, "wrong"
    xapi("profile", "set", "password_command", "printf wrong")

    assert xapi("login", *account_of(sandbox), "--password-stdin", input=right, env={"XAPI_PASSWORD": wrong}).code == 0
    assert xapi("login", env={"XAPI_PASSWORD": right}).code == 0
    assert xapi("login").code == 10


def test_a_failing_password_command_exits_with_10_and_no_other_source_is_tried(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("login", *account_of(sandbox), "--password-command", "sh -c 'echo CANARY; exit 7'")

    assert outcome == Outcome(
        10,
        "",
        "xapi: error: password_command 'sh' failed with exit code 7; run the command yourself to see why\n",
    )
    assert sandbox.login_attempts == 0


@pytest.mark.parametrize("command", ["[]", '[""]', '["", "x"]'])
def test_a_password_command_without_a_program_is_invalid_and_no_other_source_is_tried(
    xapi: Xapi, sandbox: Sandbox, command: str
) -> None:
    env = {**xapi.fake_keyring(), "XAPI_STORAGE": "keyring"}
    assert xapi("login", "--remember", env={**sandbox.settings, **env}).code == 0
    config = xapi.config / "config.toml"
    config.write_text(f"{config.read_text()}password_command = {command}\n")
    sandbox.revoke_tokens()

    assert xapi("request", "/x-api/me", env=env) == Outcome(
        2,
        "",
        f"xapi: error: {config}: profiles.default.password_command must be an array of strings that begins with a"
        " program, such as ['pass', 'show', 'api']; edit the file, or see `xapi profile --help`\n",
    )
    assert sandbox.login_attempts == 1


def test_the_hint_says_that_a_tilde_is_not_expanded(xapi: Xapi, sandbox: Sandbox) -> None:
    (xapi.home / "password").write_text(f"{MASTER.password}\n")
    for_shell = xapi("profile", "set", "password_command", "cat ~/password")
    assert "~ is shell syntax" in for_shell.err

    assert xapi("login", *account_of(sandbox)) == Outcome(
        10,
        "",
        "xapi: error: password_command 'cat' failed with exit code 1; write an absolute path instead of ~, which is not"
        " expanded because the command runs without a shell\n",
    )
    for command, syntax in (("cat $HOME/password", "$"), ("cat password | head -1", "|"), ("cat `pwd`/password", "`")):
        outcome = xapi("login", *account_of(sandbox), "--password-command", command)
        assert outcome.err.splitlines()[-1].endswith(
            f"; write sh -c 'COMMAND', because {syntax} is shell syntax and the command runs without a shell"
        )
    assert xapi("login", *account_of(sandbox), "--password-command", "cat 'no file; > & here'").err.endswith(
        "; run the command yourself to see why\n"
    )
    assert xapi("login", *account_of(sandbox), "--password-command", f"cat {xapi.home}/password").code == 0


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("stdin", "the password from stdin"),
        ("variable", "the password in XAPI_PASSWORD"),
        ("command", "the password from password_command"),
    ],
)
def test_a_rejected_login_names_the_source_of_the_password(
    xapi: Xapi, sandbox: Sandbox, source: str, named: str
) -> None:
    arguments = {"stdin": ["--password-stdin"], "command": ["--password-command", "echo wrong"]}.get(source, [])
    env: Environ = {"XAPI_PASSWORD": "wrong" if source == "variable" else None}

    login = xapi("login", *arguments, input="wrong\n", env={**sandbox.settings, **env})

    assert login.code == 10
    assert login.err.endswith(f" was rejected (400 invalid_grant); check {named}, and the username\n")


def test_a_rejected_automatic_login_names_the_source_of_the_password(xapi: Xapi) -> None:
    token = b'{"access_token": "abc"}'
    granted = send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(token), token))
    rejected = send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
    with Server([request(), granted], [request(), rejected, request(), rejected]) as server:
        env = {**xapi.fake_keyring(), "XAPI_BASE_URL": server.url, "XAPI_USERNAME": MASTER.email}
        assert xapi("login", "--remember", env=env | {"XAPI_PASSWORD": "old"}).code == 0

        first, second = (xapi("request", "/x-api/me", env=env) for _ in range(2))
        given = xapi("request", "/x-api/me", env=env | {"XAPI_PASSWORD": "wrong"})

    reason = f"401 from {server.url}/x-api/token, without an error code"
    error = f" was rejected ({reason}); check the base URL, the"
    assert first.err.endswith(f"{error} remembered password, and the username\n")
    assert re.search(r"; correct the remembered password, wait \d+ s, or run `xapi login`\n$", second.err)
    assert given.err.endswith(f"{error} password in XAPI_PASSWORD, and the username\n")


def test_max_time_limits_the_password_command(xapi: Xapi, sandbox: Sandbox) -> None:
    assert xapi("login", *account_of(sandbox), "--password-command", "sleep 60", "--max-time", "1").code == 12


def test_the_keyring_stores_the_password_only_with_consent(xapi: Xapi, sandbox: Sandbox) -> None:
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
    sandbox.revoke_tokens()
    assert xapi("request", "/x-api/me", env=without).code == 0
    assert xapi("login", env=without).code == 0  # without a prompt, it uses the remembered password

    xapi("login", "--no-remember", env=env)
    assert "correct horse" not in items.read_text()
    assert xapi("login", env=without).code == 10


def test_no_remember_deletes_a_password_in_another_storage_and_keeps_its_token(xapi: Xapi, sandbox: Sandbox) -> None:
    items = xapi.home / "items.json"
    env = {**xapi.fake_keyring(), "XAPI_STORAGE": None, **sandbox.settings}
    xapi("login", "--remember", "--storage", "keyring", env=env)
    token = xapi("token", "show", env=env).out
    assert "correct horse" in items.read_text()

    outcome = xapi("login", "--no-remember", "--storage", "file", env=env)

    assert (outcome.code, outcome.err.count("\n")) == (0, 1), outcome.err
    assert "correct horse" not in items.read_text()
    assert xapi("token", "show", "--no-login", "--storage", "keyring", env=env).out == token


def test_no_remember_warns_if_another_storage_cannot_be_used(xapi: Xapi, sandbox: Sandbox) -> None:
    env = {**xapi.fake_keyring(), **sandbox.settings}
    xapi("login", "--remember", "--storage", "keyring", env=env)
    (xapi.home / "items.json").unlink()
    (xapi.home / "items.json").mkdir()

    outcome = xapi("login", "--no-remember", "--storage", "file", env=env)

    assert outcome.code == 0
    problem = "xapi: warning: a password of this account in keyring storage may not have been deleted: "
    remedy = "run `xapi doctor`, then log in again with --no-remember"
    assert re.search(rf"{problem}reading the keyring failed .*; {remedy}\n", outcome.err)

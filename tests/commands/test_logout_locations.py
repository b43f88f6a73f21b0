"""`xapi logout` deletes a token where it was stored, wherever the settings and the environment lead now."""

import json
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.support.credential_helpers import FakeHelper, install, install_fake
from tests.support.keyring_session import KeyringSession
from tests.support.program import PROGRAM, Outcome, Xapi
from tests.support.redis_server import RedisServer, free_port
from tests.support.stores import Env
from xapi_cli.features.sandbox import MASTER, Sandbox

FULL_DISK = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=fsync:error=ENOSPC", str(PROGRAM))
NO_ACCOUNT = "xapi: no known account, nothing to delete\n"


def _helper(directory: Path) -> FakeHelper:
    directory.mkdir()
    return install_fake(directory / "helper")


def _with_helper(sandbox: Sandbox, helper: FakeHelper) -> Env:
    return {**sandbox.settings, "XAPI_STORAGE": "helper", "XAPI_CREDENTIAL_HELPER": str(helper.path)}


def _entry(xapi: Xapi) -> Path:
    (path,) = (xapi.state / "known").glob("*.json")
    return path


def test_two_profiles_of_an_account_may_have_different_helpers(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    helpers = [_helper(tmp_path / name) for name in ("one", "two")]
    for number, helper in enumerate(helpers):
        assert xapi("login", "-p", f"profile{number}", env=_with_helper(sandbox, helper)).code == 0
    assert [len(helper.stored) for helper in helpers] == [1, 1]

    outcome = xapi("logout", env=_with_helper(sandbox, helpers[0]))

    assert (outcome.code, outcome.err) == (0, f"xapi: logged out of {MASTER.email} at {sandbox.base_url}\n")
    assert [helper.stored for helper in helpers] == [[], []]
    assert xapi("logout", "--all").err == NO_ACCOUNT


@pytest.mark.parametrize("command", [("logout",), ("logout", "--all")])
def test_a_helper_that_was_changed_after_the_login_is_still_used(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path, command: tuple[str, ...]
) -> None:
    before, after = (_helper(tmp_path / name) for name in ("before", "after"))
    assert xapi("login", env=_with_helper(sandbox, before)).code == 0

    assert xapi(*command, env=_with_helper(sandbox, after)).code == 0

    assert before.stored == []


def test_a_helper_that_no_longer_exists_is_named_and_the_account_stays_known(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path
) -> None:
    before, after = (_helper(tmp_path / name) for name in ("before", "after"))
    assert xapi("login", env=_with_helper(sandbox, before)).code == 0
    hidden = before.path.rename(tmp_path / "hidden")

    for command in (("logout",), ("logout", "--all")):
        outcome = xapi(*command, env=_with_helper(sandbox, after))
        assert (outcome.code, outcome.err.count("\n")) == (13, 1)
        assert f"cannot log out of {MASTER.email} at {sandbox.base_url}: the credential helper" in outcome.err
        assert f"(credential_helper={before.path})" in outcome.err
        assert outcome.err.endswith("; install it or correct credential_helper, then log out again\n")
        assert len(before.stored) == 1
    hidden.rename(before.path)
    assert xapi("logout", "--all").code == 0
    assert (before.stored, xapi("logout", "--all").err) == ([], NO_ACCOUNT)


def test_a_token_that_is_not_where_it_was_stored_is_an_error_until_its_entry_is_removed(
    xapi: Xapi, sandbox: Sandbox, fake_helper: FakeHelper
) -> None:
    env = _with_helper(sandbox, fake_helper)
    assert xapi("login", env=env).code == 0
    for file in fake_helper.directory.iterdir():  # the helper has another directory now
        file.unlink()

    outcome = xapi("logout", env=env)

    assert outcome.code == 13
    assert outcome.err == (
        f"xapi: error: cannot log out of {MASTER.email} at {sandbox.base_url}: its token was not found in the"
        f" credential helper (credential_helper={fake_helper.path}), where it was stored; log out in the environment in"
        f" which you logged in, or, if another program deleted it, remove {_entry(xapi)}\n"
    )
    assert xapi("logout", "--all").code == 13
    _entry(xapi).unlink()
    assert (xapi("logout", env=env).code, xapi("logout", "--all").err) == (0, NO_ACCOUNT)


def test_a_login_that_is_killed_while_it_stores_leaves_an_entry_and_logout_needs_no_record(
    xapi: Xapi, sandbox: Sandbox, fake_helper: FakeHelper
) -> None:
    working = fake_helper.path.read_text()
    started = fake_helper.path.with_name("started")
    kill = f"""
if action == "store" and "probe" not in (text := sys.stdin.read()):
    import os, signal
    open({str(started)!r}, "w").write(text)
    os.kill(os.getppid(), signal.SIGKILL)
    sys.exit(1)
"""
    env = _with_helper(sandbox, fake_helper)
    install(fake_helper.path, f"import io\n{kill}\nsys.stdin = io.StringIO(text) if action == 'store' else sys.stdin")
    with open(fake_helper.path, "a") as program:
        program.write(working.partition("action = sys.argv[1]\n")[2])
    login = xapi.start("login", env=env)
    assert login.wait(30) == -signal.SIGKILL
    assert started.exists()
    fake_helper.path.write_text(working)

    assert json.loads(_entry(xapi).read_text())["stores"][0]["is_written"] is False
    outcome = xapi("logout", "--all", env=env)
    assert (outcome.code, xapi("logout", "--all").err) == (0, NO_ACCOUNT)


@pytest.fixture
def servers() -> Iterator[list[RedisServer]]:
    with RedisServer(port=free_port()) as one, RedisServer(port=free_port()) as two:
        yield [one, two]


def test_two_profiles_of_an_account_may_have_different_redis_servers(
    xapi: Xapi, sandbox: Sandbox, servers: list[RedisServer]
) -> None:
    envs: list[Env] = [
        {**sandbox.settings, "XAPI_STORAGE": "redis", "XAPI_REDIS_URL": f"redis://127.0.0.1:{server.port}"}
        for server in servers
    ]
    for number, env in enumerate(envs):
        assert xapi("login", "-p", f"profile{number}", env=env).code == 0
    servers[1].stop()

    outcome = xapi("logout", env=envs[0])
    assert (outcome.code, outcome.err.count("\n")) == (13, 1)
    name = f"{MASTER.email} at {sandbox.base_url}"
    assert outcome.err.startswith(
        f"xapi: error: logged out of {name} in Redis only: Redis (redis_url=redis://127.0.0.1:"
    )
    servers[1].start()
    assert xapi("login", "-p", "profile1", env=envs[1]).code == 0
    assert xapi("logout", env=envs[0]).code == 0
    assert [server.keys().count("record") for server in servers] == [0, 0]
    assert xapi("logout", "--all").err == NO_ACCOUNT


def test_the_password_of_another_server_comes_from_the_profile_of_that_server(xapi: Xapi, sandbox: Sandbox) -> None:
    env: Env = {**sandbox.settings, "XAPI_STORAGE": None}
    with RedisServer("--requirepass", "swordfish", port=free_port()) as server:
        command = xapi.home / "password"
        command.write_text("#!/bin/sh\necho swordfish\n")
        command.chmod(0o700)
        for key, value in (
            ("redis_url", f"redis://127.0.0.1:{server.port}"),
            ("redis_password_command", str(command)),
            ("storage", "redis"),
        ):
            assert xapi("profile", "set", "-p", "shared", key, value).code == 0
        assert xapi("login", "-p", "shared", env=env).code == 0
        assert xapi("login", "-p", "local", "--storage", "file", env=env).code == 0

        assert xapi("logout", "-p", "local", env=env).code == 0

        with redis.Redis(unix_socket_path=str(server.socket), password="swordfish") as oracle:
            (key,) = oracle.keys("*:account")
            assert oracle.hkeys(key) == [b"logout"]
        assert xapi("logout", "--all").err == NO_ACCOUNT


def test_a_record_that_another_machine_has_deleted_from_redis_is_no_error(
    xapi: Xapi, sandbox: Sandbox, servers: list[RedisServer]
) -> None:
    env: Env = {**sandbox.settings, **servers[0].environ}
    assert xapi("login", env=env).code == 0
    assert xapi("logout", env={**env, "XAPI_STATE_DIR": str(xapi.home / "another machine")}).code == 0

    assert xapi("logout", env=env).code == 0
    assert xapi("logout", "--all").err == NO_ACCOUNT


@pytest.fixture
def sessions() -> Iterator[list[KeyringSession]]:
    if not all(map(shutil.which, ("dbus-daemon", "gnome-keyring-daemon"))):
        pytest.skip("needs dbus-daemon and gnome-keyring-daemon")
    with KeyringSession() as one, KeyringSession() as two:
        yield [one, two]


def test_a_token_in_the_keyring_of_another_session_is_deleted_there(
    xapi: Xapi, sandbox: Sandbox, sessions: list[KeyringSession]
) -> None:
    envs: list[Env] = [{**sandbox.settings, **session.environ, "XAPI_STORAGE": "keyring"} for session in sessions]
    assert xapi("login", env=envs[0]).code == 0
    assert sessions[0].count("xapi") == 1

    assert xapi("logout", env=envs[1]).code == 0

    assert sessions[0].count("xapi") == 0
    assert xapi("logout", "--all", env=envs[1]).err == NO_ACCOUNT


def test_the_keyring_of_a_session_that_has_ended_is_named_and_the_account_stays_known(
    xapi: Xapi, sandbox: Sandbox, sessions: list[KeyringSession]
) -> None:
    envs: list[Env] = [{**sandbox.settings, **session.environ, "XAPI_STORAGE": "keyring"} for session in sessions]
    with KeyringSession() as ended:
        assert xapi("login", env={**envs[0], **ended.environ}).code == 0

    for command in (("logout",), ("logout", "--all")):
        outcome = xapi(*command, env=envs[1])
        assert (outcome.code, outcome.err.count("\n")) == (13, 1)
        assert f"DBUS_SESSION_BUS_ADDRESS={ended.environ['DBUS_SESSION_BUS_ADDRESS']}" in outcome.err
    assert json.loads(_entry(xapi).read_text())["username"] == MASTER.email


def test_the_same_keyring_in_a_new_session_is_recognized_by_the_token(xapi: Xapi, sandbox: Sandbox) -> None:
    def session(name: str) -> Env:
        address = f"unix:path=/nonexistent/{name}"
        bound: Env = {"DBUS_SESSION_BUS_ADDRESS": address, "FAKE_KEYRING_SESSION": address}
        return {**sandbox.settings, **xapi.fake_keyring("OfSession"), **bound}

    assert xapi("login", env=session("monday")).code == 0
    assert xapi("logout", env=session("tuesday")).code == 0
    assert xapi("logout", "--all", env=session("tuesday")).err == NO_ACCOUNT
    assert xapi("login", env=session("wednesday")).code == 0
    assert xapi("token", "show", "--fresh", env=session("thursday")).code == 0

    (store,) = json.loads(_entry(xapi).read_text())["stores"]
    assert store["location"]["DBUS_SESSION_BUS_ADDRESS"].endswith("thursday")
    assert xapi("logout", "--all", env=session("thursday")).code == 0
    assert (xapi.home / "items.json").read_text() == "[]"


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_an_account_that_cannot_be_recorded_on_a_full_disk_is_not_logged_in(xapi: Xapi, sandbox: Sandbox) -> None:
    env: Env = {**sandbox.settings, **xapi.fake_keyring(), "PYTHONDONTWRITEBYTECODE": "1"}
    login = xapi.start("login", env=env, argv=FULL_DISK)
    err = login.communicate(timeout=60)[1].decode()

    assert (login.returncode, err.count("\n")) == (13, 1)
    assert err.startswith("xapi: error: the account cannot be added to the index of accounts in ")
    assert "No space left on device; free space there" in err
    assert json.loads((xapi.home / "items.json").read_text()) == []
    shown = xapi.start("token", "show", env=env, argv=FULL_DISK)
    out, warning = shown.communicate(timeout=60)
    assert (shown.returncode, len(out) > 1) == (0, True)
    assert b"xapi: warning: the new token could not be stored: the account cannot be added" in warning


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_logout_that_cannot_be_recorded_on_a_full_disk_is_not_reported_as_done(xapi: Xapi, sandbox: Sandbox) -> None:
    env: Env = {**sandbox.settings, **xapi.fake_keyring(), "PYTHONDONTWRITEBYTECODE": "1"}
    assert xapi("login", env=env).code == 0
    logout = xapi.start("logout", env=env, argv=FULL_DISK)
    err = logout.communicate(timeout=60)[1].decode()

    assert (logout.returncode, err.count("\n")) == (13, 1)
    assert "the logout could not be recorded (No space left on device), so a login in progress may undo it" in err
    assert (xapi.home / "items.json").read_text() == "[]"
    assert xapi("logout", env=env).code == 0
    assert xapi("logout", "--all").err == NO_ACCOUNT


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_logout_of_all_accounts_that_cannot_be_recorded_on_a_full_disk_exits_with_13(xapi: Xapi) -> None:
    logout = xapi.start("logout", "--all", env={"PYTHONDONTWRITEBYTECODE": "1"}, argv=FULL_DISK)
    err = logout.communicate(timeout=60)[1].decode()

    assert logout.returncode == 13
    assert err == (
        f"{NO_ACCOUNT}xapi: error: the logout could not be recorded (No space left on device), so a login in progress"
        " may undo it; free space, then log out again\n"
    )


def test_a_logout_of_all_accounts_with_a_state_directory_that_cannot_be_written_exits_with_0(xapi: Xapi) -> None:
    assert xapi("logout", "--all", env={"XAPI_STATE_DIR": "/dev/null/state"}) == Outcome(0, "", NO_ACCOUNT)


def test_a_logout_that_is_killed_can_be_repeated(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    cleared, hanging = (_helper(tmp_path / name) for name in ("cleared", "hanging"))
    for number, helper in enumerate((cleared, hanging)):
        assert xapi("login", "-p", f"profile{number}", env=_with_helper(sandbox, helper)).code == 0
    working, reached = hanging.path.read_text(), tmp_path / "reached"
    install(hanging.path, f"open({str(reached)!r}, 'w').close()\ntime.sleep(100)")
    logout = xapi.start("logout", env=_with_helper(sandbox, cleared))
    while not reached.exists():
        assert logout.poll() is None
        time.sleep(0.01)
    logout.kill()
    assert logout.wait(30) == -signal.SIGKILL
    hanging.path.write_text(working)

    outcome = xapi("logout", env=_with_helper(sandbox, cleared))

    assert (outcome.code, cleared.stored, hanging.stored) == (0, [], []), outcome
    assert xapi("logout", "--all").err == NO_ACCOUNT


def test_a_damaged_entry_causes_a_warning_because_its_stores_are_not_known(
    xapi: Xapi, sandbox: Sandbox, fake_helper: FakeHelper
) -> None:
    assert xapi("login", env=_with_helper(sandbox, fake_helper)).code == 0
    _entry(xapi).write_text("garbage")

    outcome = xapi("logout", env={"XAPI_STORAGE": "file"})

    assert outcome.err.startswith("xapi: warning: the entry of the account in the index of accounts is damaged, so the")

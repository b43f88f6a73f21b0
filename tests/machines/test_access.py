"""Access to a Redis server: users, permissions, passwords, and what must be set and installed."""

from pathlib import Path

import pytest

from tests.machines.fleet import ME, Env
from tests.support.program import PYTHON, Environ, Xapi, how_to_add
from tests.support.redis_server import RedisServer
from xapi_cli.features.sandbox import MASTER, Sandbox

COMMANDS = "+hget +hset +hdel +pexpire +pttl +persist +eval +time +select +asking"
ACL = f"xapi on >secret resetkeys ~xapi:* -@all {COMMANDS}"


@pytest.fixture
def restricted(redis_server: RedisServer) -> RedisServer:
    """A server that requires a password, with the user of the documentation."""
    redis_server.execute("ACL", "SETUSER", *ACL.split())
    redis_server.execute("ACL", "SETUSER", "reader", "on", ">secret", "~*", "-@all", "+get")
    redis_server.execute("ACL", "SETUSER", "elsewhere", "on", ">secret", "~other:*", "+@all")
    redis_server.execute("ACL", "SETUSER", "default", "off")
    return redis_server


def test_the_documented_acl_suffices(xapi: Xapi, sandbox: Sandbox, restricted: RedisServer) -> None:
    url = f"unix://xapi:secret@{restricted.socket}"
    env: Env = {**sandbox.settings, **restricted.environ, "XAPI_REDIS_URL": url}
    page = (Path(__file__).parents[2] / "docs" / "many-machines.md").read_text()

    assert f"ACL SETUSER {ACL.replace('>secret', '>PASSWORD')}" in page
    assert xapi("login", env=env).code == 0
    assert xapi(*ME, env=env).code == 0
    assert xapi("token", "show", "--fresh", env=env).code == 0
    assert xapi("token", "show", "--fresh", env={**env, "XAPI_PASSWORD": "wrong"}).code == 10
    assert '"redis", "status": "pass"' in xapi("doctor", "--json", env=env).out
    assert xapi("logout", env=env).code == 0


@pytest.mark.parametrize(
    "user, message",
    [
        ("", "requires a password"),
        ("xapi:CANARY@", "rejected the username or password"),
        ("nobody:CANARY@", "rejected the username or password"),
        ("reader:secret@", "does not allow this user to run the commands that xapi needs"),
        ("elsewhere:secret@", "does not allow this user to access keys with the prefix that redis_prefix sets"),
    ],
)
def test_a_user_without_permission_exits_with_13_and_causes_no_login(
    xapi: Xapi, sandbox: Sandbox, restricted: RedisServer, user: str, message: str
) -> None:
    url = f"unix://{user}{restricted.socket}"
    env: Env = {**sandbox.settings, **restricted.environ, "XAPI_REDIS_URL": url}

    for args in (ME, ("login",)):
        outcome = xapi(*args, env=env)
        assert (outcome.code, message in outcome.err, "CANARY" in outcome.err) == (13, True, False), outcome
    assert sandbox.login_attempts == 0


def test_a_password_that_the_server_does_not_have_is_an_error(
    xapi: Xapi, sandbox: Sandbox, shared_redis: RedisServer
) -> None:
    env: Env = {**sandbox.settings, "XAPI_STORAGE": "redis", "XAPI_REDIS_URL": f"unix://:CANARY@{shared_redis.socket}"}
    outcome = xapi(*ME, env=env)

    assert outcome.code == 13
    assert "has no password for this user" in outcome.err
    assert "CANARY" not in outcome.err


def test_a_command_prints_the_password(xapi: Xapi, sandbox: Sandbox, restricted: RedisServer) -> None:
    env: Env = {**sandbox.settings, "XAPI_STORAGE": "redis"}
    assert xapi("profile", "set", "redis_url", f"unix://xapi@{restricted.socket}").code == 0
    assert xapi("profile", "set", "redis_password_command", "sh -c 'echo run >>runs; echo secret'").code == 0

    assert xapi(*ME, env=env).code == 0
    assert (xapi.home / "runs").read_text() == "run\n"
    assert xapi("profile", "set", "redis_password_command", "sh -c 'echo CANARY; exit 3'").code == 0
    failed = xapi(*ME, env=env)
    assert failed.code == 13
    assert "redis_password_command 'sh' failed with exit code 3" in failed.err
    assert "CANARY" not in failed.err


def test_the_command_of_a_profile_is_not_run_for_another_server(
    xapi: Xapi, sandbox: Sandbox, restricted: RedisServer
) -> None:
    assert xapi("profile", "set", "redis_url", "redis://xapi@elsewhere").code == 0
    assert xapi("profile", "set", "redis_password_command", "sh -c 'echo run >>runs; echo secret'").code == 0
    outcome = xapi(*ME, env={**sandbox.settings, **restricted.environ})

    assert outcome.code == 13
    assert not (xapi.home / "runs").exists()


def test_a_password_in_the_profile_is_refused(xapi: Xapi, sandbox: Sandbox) -> None:
    env: Env = {**sandbox.settings, "XAPI_STORAGE": "redis"}
    refused = xapi("profile", "set", "redis_url", "redis://:CANARY@host")
    assert (refused.code, "CANARY" in refused.err) == (2, False)
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text('[profiles.default]\nredis_url = "redis://:CANARY@host"\n')
    found = xapi(*ME, env=env)

    assert (found.code, "CANARY" in found.err) == (2, False)
    assert "the Redis URL contains a password, which must not be in the config file" in found.err


def test_without_the_setting_the_error_names_it(xapi: Xapi, sandbox: Sandbox) -> None:
    for args in (ME, ("batch",), ("login",), ("logout",)):
        outcome = xapi(*args, env={**sandbox.settings, "XAPI_STORAGE": "redis"}, input='{"path": "/x-api/me"}\n')
        assert (outcome.code, outcome.out) == (2, "")
        assert "storage redis requires the setting redis_url; set XAPI_REDIS_URL" in outcome.err


def test_without_the_extra_the_error_names_the_command_that_installs_it(xapi: Xapi, sandbox: Sandbox) -> None:
    code = "import sys; sys.modules['hiredis'] = None; from xapi_cli.__main__ import main; main()"
    env: Environ = {**sandbox.settings, "XAPI_STORAGE": "redis", "XAPI_REDIS_URL": "redis://127.0.0.1:1"}
    process = xapi.start("-c", code, *ME, argv=(str(PYTHON),), env=env)
    out, err = process.communicate(timeout=30)

    assert (process.returncode, out) == (2, b"")
    assert err.decode() == (
        f"xapi: error: storage redis needs packages that are not installed; {how_to_add('redis')}\n"
    )


def test_a_child_process_does_not_inherit_the_url(xapi: Xapi, sandbox: Sandbox, shared_redis: RedisServer) -> None:
    env: Env = {**sandbox.settings, **shared_redis.environ, "XAPI_PASSWORD": None}
    assert xapi("login", "--password-stdin", input=MASTER.password, env=env).code == 0

    assert "XAPI_REDIS_URL" not in xapi("exec", "env", env=env).out

"""Machines whose Redis server fails, whose lock holder is killed, or that have no access to it."""

import os
import signal

import pytest

from tests.features.redis.fleet import ME, Env, OneTokenSandbox, ended, exit_codes, fleet
from tests.support.program import PYTHON, Xapi, how_to_add
from tests.support.redis_server import RedisServer
from tests.support.servers import Peer, Server, hang, request, send
from tests.support.threads import Gate
from xapi_cli.features.sandbox import MASTER, MEMBER, Sandbox


@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_an_unreachable_server_is_exit_code_13_in_time_and_causes_no_login(
    xapi: Xapi, sandbox: Sandbox, redis_server: RedisServer, how: str
) -> None:
    env: Env = {**sandbox.settings, **redis_server.environ}
    (RedisServer.freeze if how == "frozen" else RedisServer.stop)(redis_server)
    commands = (ME, ("login",), ("logout",), ("token", "status"))
    for outcome in ended([xapi.start(*command, env=env) for command in commands]):
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (13, "", 1)
        assert f"Redis at {redis_server.socket} " in outcome.err
    assert sandbox.login_attempts == 0


def test_a_server_that_fails_during_a_login_costs_an_automatic_login_a_warning_only(
    xapi: Xapi, redis_server: RedisServer
) -> None:
    body = b'{"access_token": "token1"}'
    response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    for command, code in (("token show", 0), ("login", 13)):
        redis_server.stop()
        redis_server.start()

        def stop(peer: Peer) -> None:
            redis_server.stop()

        with Server([request(), stop, send(response)]) as server:
            account: Env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x"}
            outcome = xapi(*command.split(), env={**redis_server.environ, **account})
        warning = f"xapi: warning: the new token could not be stored: Redis at {redis_server.socket} "
        assert (outcome.code, outcome.out) == (code, "" if code else "token1\n")
        assert (warning in outcome.err) is (code == 0)


def test_a_holder_of_the_lock_that_is_killed_delays_the_next_login_by_seconds(
    xapi: Xapi, sandbox: Sandbox, shared_redis: RedisServer
) -> None:
    gate = Gate()
    env: Env = {**sandbox.settings, **shared_redis.environ}
    with Server([request(), gate.reached, hang()]) as server:
        holder = xapi.start("token", "show", env={**env, "XAPI_BASE_URL": server.url})
        gate.wait()
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
        body = b'{"access_token": "next"}'
    with Server([request(), send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))]) as second:
        key = next(key for key in shared_redis.names() if key.endswith(":lock"))
        assert shared_redis.execute("PTTL", key) <= 5000
        shared_redis.execute("PEXPIRE", key, 100)
        assert xapi("token", "show", env={**env, "XAPI_BASE_URL": second.url}).code == 0


def test_machines_that_wait_for_a_killed_holder_log_in_once(
    xapi: Xapi, service: OneTokenSandbox, env: Env, shared_redis: RedisServer
) -> None:
    assert xapi("login", env=env).code == 0
    (record,) = shared_redis.names()
    shared_redis.execute("SET", record.replace("record", "lock"), "of a killed process", "PX", 1000)
    service.revoke_tokens()
    before = service.logins

    assert exit_codes(fleet(xapi, env, *ME, each=2)) == {0: 8}
    assert service.logins == before + 1


def test_a_logout_of_all_accounts_names_what_it_could_not_delete(
    xapi: Xapi, sandbox: Sandbox, redis_server: RedisServer
) -> None:
    member = {"XAPI_USERNAME": MEMBER.email, "XAPI_PASSWORD": MEMBER.password}
    both = [{**sandbox.settings, **redis_server.environ}, {**sandbox.settings, **redis_server.environ, **member}]
    assert [xapi("login", env=env).code for env in both] == [0, 0]
    assert xapi("login", env={**sandbox.settings, **member, "XAPI_STORAGE": "file"}).code == 0
    redis_server.freeze()

    stopped = xapi("logout", "--all", env={"XAPI_STORAGE": "file"})
    place = f"Redis ({redis_server.url}, xapi): Redis at {redis_server.socket}"
    assert sorted(error.partition(" did not respond ")[0] for error in stopped.err.splitlines()) == sorted(
        f"xapi: error: cannot log out of {user.email} at {sandbox.base_url}: {place}" for user in (MASTER, MEMBER)
    )
    assert (stopped.code, list((xapi.state / "tokens").iterdir())) == (13, [])
    redis_server.thaw()

    assert xapi("logout", "--all").code == 0
    assert [key for key in redis_server.names() if key.endswith("record")] == []


def test_the_url_is_no_secret_of_a_profile_and_is_not_inherited(
    xapi: Xapi, sandbox: Sandbox, shared_redis: RedisServer
) -> None:
    refused = xapi("profile", "set", "redis_url", "redis://:CANARY@host")
    assert (refused.code, "CANARY" in refused.err) == (2, False)
    assert "contains a password, which must not be in the config file" in refused.err
    for url in ("http://host", "redis:host", "redis://", "redis://host:0x10"):
        assert xapi("login", env={**sandbox.settings, "XAPI_STORAGE": "redis", "XAPI_REDIS_URL": url}).code == 2
    missing = xapi(*ME, env={**sandbox.settings, "XAPI_STORAGE": "redis"})
    assert (missing.code, "storage redis requires the setting redis_url; set XAPI_REDIS_URL" in missing.err) == (
        2,
        True,
    )
    env: Env = {**sandbox.settings, **shared_redis.environ, "XAPI_PASSWORD": None}
    assert xapi("login", "--password-stdin", input=MASTER.password, env=env).code == 0
    assert "XAPI_REDIS_URL" not in xapi("exec", "env", env=env).out


def test_without_the_extra_the_error_names_the_command_that_installs_it(xapi: Xapi, sandbox: Sandbox) -> None:
    code = "import sys; sys.modules['redis'] = None; from xapi_cli.__main__ import main; main()"
    env: Env = {**sandbox.settings, "XAPI_STORAGE": "redis", "XAPI_REDIS_URL": "redis://127.0.0.1:1"}
    (outcome,) = ended([xapi.start("-c", code, *ME, argv=(str(PYTHON),), env=env)])

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (f"xapi: error: storage redis needs packages that are not installed; {how_to_add('redis')}\n")

"""Machines that share a Redis server: processes that are killed or stopped, or log in during a logout."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.machines.fleet import Env, Grants, ended, exit_codes, keys_like, on, wait_for_polls
from tests.support.program import PROGRAM, Outcome, Xapi
from tests.support.redis_server import RedisServer
from tests.support.servers import Server, Stopwatch
from xapi_cli.features.sandbox import Sandbox


@pytest.fixture
def grants() -> Grants:
    return Grants()


@pytest.fixture
def held(grants: Grants, shared_redis: RedisServer) -> Iterator[Env]:
    """The environment of an API whose first login takes until its gate is open."""
    with Server([grants]) as server:
        yield {**shared_redis.environ, "XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x"}
        grants.gate.open.set()


def _expire_lock(server: RedisServer) -> None:
    """Let the lock expire now instead of after the timeout of a login and 15 seconds."""
    (account,) = keys_like(server, "*:account")
    assert 0 < server.lock_milliseconds(account) <= 45_000
    server.execute("HSET", account, "expires", 1)


def test_a_killed_holder_does_not_block_its_own_machine(xapi: Xapi, held: Env, grants: Grants) -> None:
    holder = xapi.start("token", "show", env={**held, **on(xapi, 0)})
    grants.gate.wait()
    holder.kill()
    holder.wait()
    with Stopwatch() as watch:
        outcome = xapi("token", "show", env={**held, **on(xapi, 0)})

    assert (outcome.code, outcome.out) == (0, "token2\n")
    assert watch.seconds < 10


def test_a_killed_holder_does_not_block_its_machine_after_a_login_to_another_database(
    xapi: Xapi, held: Env, grants: Grants, shared_redis: RedisServer
) -> None:
    holder = xapi.start("token", "show", env={**held, **on(xapi, 0)})
    grants.gate.wait()
    holder.kill()
    holder.wait()
    elsewhere: Env = {**held, **on(xapi, 0), "XAPI_REDIS_URL": f"{shared_redis.url}?db=1"}
    with Stopwatch() as watch:
        outcomes = [xapi("token", "show", env=env) for env in (elsewhere, {**held, **on(xapi, 0)})]

    assert [outcome.out for outcome in outcomes] == ["token2\n", "token3\n"]
    assert watch.seconds < 10


def test_the_lock_of_a_machine_that_failed_expires(
    xapi: Xapi, held: Env, grants: Grants, shared_redis: RedisServer
) -> None:
    holder = xapi.start("token", "show", env={**held, **on(xapi, 0)})
    grants.gate.wait()
    holder.kill()
    holder.wait()
    waiting = xapi.start("token", "show", env={**held, **on(xapi, 1)})
    wait_for_polls(shared_redis, 4)
    assert waiting.poll() is None
    _expire_lock(shared_redis)

    (outcome,) = ended([waiting])
    assert (outcome.code, outcome.out) == (0, "token2\n")


@pytest.mark.parametrize("command", ["token show", "login"])
def test_a_holder_that_was_stopped_past_its_lock_stores_nothing_and_uses_the_newer_token(
    xapi: Xapi, held: Env, grants: Grants, shared_redis: RedisServer, command: str
) -> None:
    holder = xapi.start(*command.split(), env={**held, **on(xapi, 0)})
    grants.gate.wait()
    holder.send_signal(signal.SIGSTOP)
    _expire_lock(shared_redis)
    assert xapi("token", "show", env={**held, **on(xapi, 1)}).out == "token2\n"
    grants.gate.open.set()
    holder.send_signal(signal.SIGCONT)
    (outcome,) = ended([holder])

    if command == "login":
        assert (outcome.code, "another process took over the login lock" in outcome.err) == (13, True)
    else:
        assert (outcome.code, outcome.out, outcome.err) == (0, "token2\n", "")
    assert xapi("token", "show", "--no-login", env={**held, **on(xapi, 2)}).out == "token2\n"


def test_a_holder_that_lost_its_lock_and_finds_no_other_token_warns_and_uses_its_own(
    xapi: Xapi, held: Env, grants: Grants, shared_redis: RedisServer
) -> None:
    holder = xapi.start("token", "show", env={**held, **on(xapi, 0)})
    grants.gate.wait()
    _expire_lock(shared_redis)
    grants.gate.open.set()
    (outcome,) = ended([holder])

    assert (outcome.code, outcome.out) == (0, "token1\n")
    assert "warning: the new token could not be stored: another process took over the login lock" in outcome.err
    assert shared_redis.keys() == []


@pytest.mark.parametrize(
    ("options", "machines", "keys"),
    [((), [1], ["logout"]), (("--all",), [0, 1], []), (("--storage", "file"), [0, 1], [])],
    ids=["on another machine", "of all accounts, without the server", "of another storage, without the server"],
)
def test_a_login_stores_nothing_after_a_logout(
    xapi: Xapi,
    held: Env,
    grants: Grants,
    shared_redis: RedisServer,
    options: tuple[str, ...],
    machines: list[int],
    keys: list[str],
) -> None:
    holder = xapi.start("token", "show", env={**held, **on(xapi, 0)})
    grants.gate.wait()
    for machine in machines:
        assert xapi("logout", *options, env={**held, **on(xapi, machine)}).code == 0
    grants.gate.open.set()
    (outcome,) = ended([holder])

    assert (outcome.code, outcome.out) == (0, "token1\n")
    assert "the account was logged out in the meantime, so the new token is not stored" in outcome.err
    assert shared_redis.keys() == keys


def test_a_logout_of_the_accounts_of_another_machine_does_not_stop_a_login(
    xapi: Xapi, held: Env, grants: Grants, shared_redis: RedisServer
) -> None:
    holder = xapi.start("token", "show", env={**held, **on(xapi, 0)})
    grants.gate.wait()
    assert xapi("logout", "--all", env={**held, **on(xapi, 1)}).code == 0
    grants.gate.open.set()
    (outcome,) = ended([holder])

    assert outcome == Outcome(0, "token1\n", outcome.err)
    assert "logged out" not in outcome.err
    assert xapi("token", "show", "--no-login", env={**held, **on(xapi, 1)}).out == "token1\n"


def test_processes_that_wait_for_a_login_send_no_password_after_a_logout(
    xapi: Xapi, held: Env, grants: Grants, shared_redis: RedisServer
) -> None:
    holder = xapi.start("token", "show", env={**held, **on(xapi, 0)})
    grants.gate.wait()
    commands = enumerate((("token", "show", "--fresh"), ("token", "show", "--fresh"), ("login",)), 1)
    waiting = [xapi.start(*command, env={**held, **on(xapi, number)}) for number, command in commands]
    wait_for_polls(shared_redis)
    (account,) = keys_like(shared_redis, "*:account")
    shared_redis.execute("HSET", account, "logout", "of-a-logout")
    grants.gate.open.set()
    outcomes = ended([holder, *waiting])

    assert exit_codes(outcomes) == {0: 1, 10: 2, 13: 1}
    assert sum("was logged out in the meantime; run `xapi login`" in one.err for one in outcomes) == 2
    assert "the account was logged out during the login, so nothing was sent; log in again" in outcomes[-1].err
    assert grants.number == 1


@pytest.fixture
def strace() -> None:
    if not os.path.exists("/usr/bin/strace"):
        pytest.skip("needs strace")


@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize("command", [pytest.param("token show --fresh"), pytest.param("login", marks=pytest.mark.slow)])
@pytest.mark.parametrize("others", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_kill_at_each_message_leaves_a_valid_token_and_no_lock_that_blocks(
    xapi: Xapi, sandbox: Sandbox, shared_redis: RedisServer, command: str, others: bool
) -> None:
    """Each message to Redis and to the API is one sendto. Every third one suffices unless the test may take long."""
    env: Env = {**sandbox.settings, **shared_redis.environ, **on(xapi, 0)}
    assert xapi("login", env=env).code == 0
    killed = 0
    for number in range(1, 60, 1 if others else 3):
        inject = f"inject=sendto:signal=KILL:when={number}"
        argv = ("strace", "-f", "-qq", "-o", os.devnull, "-e", "trace=sendto", "-e", inject, str(PROGRAM))
        process = xapi.start(*command.split(), env=env, argv=argv)
        process.communicate(timeout=60)
        outcome = xapi("token", "show", "--no-login", env={**env, **on(xapi, 1)})
        assert outcome.code == 0, outcome
        assert sandbox.user_of(outcome.out.strip()) is not None
        if others:
            for key in keys_like(shared_redis, "*:account"):
                if shared_redis.field(key, "owner"):
                    assert shared_redis.lock_milliseconds(key) <= 45_000
        with Stopwatch() as watch:
            assert xapi("token", "show", "--fresh", env=env).code == 0
        assert watch.seconds < 10
        if process.returncode == 0:
            break
        killed += 1
    else:
        raise AssertionError("it never came to an end")
    assert killed >= (5 if others else 2)
    assert shared_redis.keys() == ["record"]

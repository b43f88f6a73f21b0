"""Machines that share a Redis server that is down, frozen, restarted, full or a replica."""

import time
from collections.abc import Callable

import pytest

from tests.machines.fleet import MACHINES, ME, Env, Grants, ended, exit_codes, fleet, keys_like, on
from tests.support.program import Xapi
from tests.support.redis_server import RedisServer
from tests.support.servers import Server, Stopwatch
from xapi_cli.features.sandbox import MASTER, MEMBER, Sandbox


@pytest.mark.parametrize(
    "command, how",
    [  # each waits for 2.5 seconds; a server in each state is quick to test
        ("request /x-api/me", "frozen"),
        ("login", "killed"),
        pytest.param("request /x-api/me", "killed", marks=pytest.mark.slow),
        pytest.param("login", "frozen", marks=pytest.mark.slow),
        *(
            pytest.param(command, how, marks=pytest.mark.slow)
            for command in ("logout", "token status", "token show --no-login")
            for how in ("killed", "frozen")
        ),
    ],
)
def test_an_unreachable_server_exits_with_13_within_4_seconds_and_causes_no_login(
    xapi: Xapi, sandbox: Sandbox, redis_server: RedisServer, how: str, command: str
) -> None:
    env: Env = {**sandbox.settings, **redis_server.environ}
    if how == "killed":
        redis_server.stop()
    else:
        redis_server.freeze()
    took: list[float] = []
    while len(took) < 3 and min(took, default=9) >= 4:  # the machine may be busy
        with Stopwatch() as watch:
            outcome = xapi(*command.split(), env=env)
        took.append(watch.seconds)
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (13, "", 1)
        assert "Redis at " in outcome.err
        assert "cannot be reached" in outcome.err
        remedy = "then log out again" if command == "logout" else "or use another --storage"
        assert outcome.err.endswith(f"; check redis_url and the server, {remedy}\n")
    assert min(took) < 4
    assert sandbox.login_attempts == 0


@pytest.mark.slow
def test_a_logout_of_all_accounts_needs_the_server_only_for_those_known_there(
    xapi: Xapi, sandbox: Sandbox, redis_server: RedisServer
) -> None:
    def name(email: str) -> str:
        return f"{email} at {sandbox.base_url}"

    member = {"XAPI_USERNAME": MEMBER.email, "XAPI_PASSWORD": MEMBER.password}
    redis = {**sandbox.settings, **redis_server.environ}
    assert xapi("login", env=redis).code == 0
    assert xapi("login", env={**sandbox.settings, **member}).code == 0
    assert len(list((xapi.state / "tokens").iterdir())) == 1

    redis_server.stop()
    without_server = xapi("logout", "--all", env={"XAPI_STORAGE": "file"})

    assert without_server.code == 13
    assert f"xapi: logged out of {name(MEMBER.email)}\n" in without_server.err
    assert without_server.err.splitlines()[-1].startswith(
        f"xapi: error: cannot log out of {name(MASTER.email)}: Redis (redis_url=unix://{redis_server.socket}?db=0,"
    )
    assert list((xapi.state / "tokens").iterdir()) == []

    redis_server.start()
    assert xapi("login", env=redis).code == 0
    assert xapi("login", env={**sandbox.settings, **member}).code == 0
    assert xapi("login", env=sandbox.settings).code == 0  # known in both
    redis_server.stop()
    stopped = xapi("logout", "--all", env=redis_server.environ)

    assert stopped.code == 13
    assert f"xapi: logged out of {name(MEMBER.email)}\n" in stopped.err
    assert f"xapi: error: logged out of {name(MASTER.email)} in the file store only: Redis at " in stopped.err
    assert stopped.err.count("\n") == 2

    assert xapi("login", env={**sandbox.settings, **member}).code == 0
    alone = xapi("logout", env={**redis_server.environ, **sandbox.settings, **member})
    assert alone.code == 13
    assert f"xapi: error: logged out of {name(MEMBER.email)} in the file store only: Redis at " in alone.err

    redis_server.start()
    assert xapi("logout", "--all", env=redis_server.environ).err == f"xapi: logged out of {name(MASTER.email)}\n"


def test_a_logout_of_many_accounts_waits_for_an_unreachable_server_once(
    xapi: Xapi, sandbox: Sandbox, redis_server: RedisServer
) -> None:
    env: Env = {**sandbox.settings, **redis_server.environ}
    users = [{"XAPI_USERNAME": user.email, "XAPI_PASSWORD": user.password} for user in (MASTER, MEMBER)]
    assert [xapi("login", env={**env, **user}).code for user in users] == [0, 0]
    redis_server.freeze()
    took: list[float] = []
    while len(took) < 3 and min(took, default=9) >= 4:  # the machine may be busy
        with Stopwatch() as watch:
            outcome = xapi("logout", "--all", env=env)
        took.append(watch.seconds)
        assert (outcome.code, outcome.err.count(" cannot be reached: no reply within 2.5 s; ")) == (13, 2)
    assert min(took) < 4
    redis_server.thaw()

    assert xapi("logout", "--all", env=env).code == 0
    assert redis_server.keys() == ["logout", "logout"]


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def test_a_server_that_is_killed_and_restarted_causes_no_other_failure_than_13(
    xapi: Xapi, sandbox: Sandbox, redis_server: RedisServer, rounds: int
) -> None:
    env: Env = {**sandbox.settings, **redis_server.environ}
    for number in range(rounds):
        sandbox.revoke_tokens()
        before = sandbox.login_attempts
        running = [xapi.start(*ME, env={**env, **on(xapi, machine)}) for machine in range(MACHINES)]
        time.sleep(0.03 * number)  # a moment of another kind in each round
        redis_server.stop()
        redis_server.start()
        outcomes = ended(running)

        assert set(exit_codes(outcomes)) <= {0, 13}, [one.err for one in outcomes]
        assert sandbox.login_attempts - before <= 3  # before the crash, and after it, when its token was lost
        assert xapi(*ME, env=env).code == 0


def test_a_rejected_password_is_not_sent_again_after_the_server_has_lost_its_data(
    xapi: Xapi, sandbox: Sandbox, redis_server: RedisServer
) -> None:
    env: Env = {**sandbox.settings, **redis_server.environ}
    wrong = {**env, "XAPI_PASSWORD": "wrong"}
    assert xapi(*ME, env=wrong).code == 10
    redis_server.stop()
    redis_server.start()
    assert redis_server.keys() == []

    outcome = xapi(*ME, env=wrong)

    assert (outcome.code, sandbox.login_attempts) == (10, 1)
    assert "so this password is not sent again" in outcome.err
    assert xapi(*ME, env=env).code == 0


def test_a_server_without_memory_serves_valid_tokens_and_causes_no_login(
    xapi: Xapi, sandbox: Sandbox, redis_server: RedisServer
) -> None:
    env: Env = {**sandbox.settings, **redis_server.environ}
    assert xapi("login", env=env).code == 0
    redis_server.oracle.config_set("maxmemory", "1")
    assert xapi(*ME, env=env).code == 0
    sandbox.revoke_tokens()

    outcomes = fleet(xapi, env, *ME, each=1)
    login = xapi("login", env=env)
    doctor = xapi("doctor", "--json", env=env)

    assert exit_codes([*outcomes, login]) == {13: MACHINES + 1}
    assert {"has no memory left (maxmemory)" in one.err for one in (*outcomes, login)} == {True}
    assert "has no memory left" in doctor.out
    assert sandbox.logins == 1
    assert xapi("logout", env=env).code == 0
    assert redis_server.keys() == ["logout"]


def test_a_replica_serves_valid_tokens_and_causes_no_login(
    xapi: Xapi, sandbox: Sandbox, redis_server: RedisServer
) -> None:
    env: Env = {**sandbox.settings, **redis_server.environ}
    assert xapi("login", env=env).code == 0
    redis_server.oracle.replicaof("127.0.0.1", "1")
    assert xapi(*ME, env=env).code == 0
    sandbox.revoke_tokens()

    outcomes = [xapi(*args, env=env) for args in (ME, ("login",), ("logout",))]

    assert exit_codes(outcomes) == {13: 3}
    assert {"is a replica, which cannot be written; set the URL of the primary" in one.err for one in outcomes} == {
        True
    }
    assert sandbox.logins == 1


_FAILURES: dict[str, Callable[[RedisServer], object]] = {
    "killed": RedisServer.stop,
    "frozen": RedisServer.freeze,
    "full": lambda server: server.oracle.config_set("maxmemory", "1"),
    "a replica": lambda server: server.oracle.replicaof("127.0.0.1", "1"),
}


@pytest.mark.parametrize("event", _FAILURES)
@pytest.mark.parametrize("command", ["token show", "login"])
def test_a_server_that_fails_during_a_login_costs_an_automatic_login_a_warning_only(
    xapi: Xapi, redis_server: RedisServer, event: str, command: str
) -> None:
    grants = Grants()
    with Server([grants]) as server:
        account: Env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x"}
        process = xapi.start(*command.split(), env={**redis_server.environ, **account})
        grants.gate.wait()
        _FAILURES[event](redis_server)
        grants.gate.open.set()
        (outcome,) = ended([process])
    if event == "frozen":
        redis_server.thaw()

    if command == "login":
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (13, "", 1)
        assert outcome.err.startswith(f"xapi: error: Redis at {redis_server.socket} ")
    else:
        assert (outcome.code, outcome.out) == (0, "token1\n")
        assert f"xapi: warning: the new token could not be stored: Redis at {redis_server.socket} " in outcome.err
    assert grants.number == 1


def test_a_key_of_another_type_is_named(xapi: Xapi, sandbox: Sandbox, redis_server: RedisServer) -> None:
    env: Env = {**sandbox.settings, **redis_server.environ}
    assert xapi("login", env=env).code == 0
    (key,) = [name.decode() for name in keys_like(redis_server, "*:account")]
    redis_server.execute("DEL", key)
    redis_server.execute("SET", key, "value of another program")
    attempts = sandbox.login_attempts

    for args in (ME, ("login",), ("logout",)):
        outcome = xapi(*args, env=env)
        problem = f"has a value of another type at the key {key}; delete it if nothing else uses it, or set another "
        assert (outcome.code, outcome.err.count("\n"), problem in outcome.err) == (13, 1, True), outcome
    assert sandbox.login_attempts == attempts

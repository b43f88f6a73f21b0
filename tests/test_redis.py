"""Machines that share a Redis server: one login for all; in these tests, a machine is a state directory."""

import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
import trustme

from tests.program import PROGRAM, PYTHON, Environ, Outcome, Xapi
from tests.redis_server import RedisServer, free_port, required
from tests.servers import Peer, Server, Stopwatch
from tests.threads import Gate
from xapi_cli.sandbox import MASTER, MEMBER, Sandbox

Env = dict[str, str | None]
ME = ("request", "/x-api/me")
MACHINES = 8
ACL = "xapi on >secret resetkeys ~xapi:* -@all +get +set +del +eval +time +select"


class OneTokenSandbox(Sandbox):
    """A service where a login revokes the previous token of the user."""

    def log_in(self, username: str, password: str) -> str | None:
        token = super().log_in(username, password)
        if token is not None:
            with self._lock:
                self._tokens = {token: self._tokens[token]}
        return token


@pytest.fixture
def service() -> Iterator[OneTokenSandbox]:
    with OneTokenSandbox() as server:
        yield server


@pytest.fixture
def env(service: OneTokenSandbox, shared_redis: RedisServer) -> Env:
    return {**service.settings, **shared_redis.environ}


def on(xapi: Xapi, machine: int) -> Env:
    """Return the environment of a machine of its own."""
    state = xapi.home / f"machine{machine}"
    state.mkdir(exist_ok=True)
    return {"XAPI_STATE_DIR": str(state), "XAPI_CONFIG_DIR": str(state / "config")}


def _ended(processes: "list[subprocess.Popen[bytes]]") -> list[Outcome]:
    outcomes = []
    for process in processes:
        out, err = process.communicate(timeout=100)
        outcomes.append(Outcome(process.returncode, out.decode(), err.decode()))
    return outcomes


def _fleet(xapi: Xapi, env: Env, *args: str, each: int) -> list[Outcome]:
    """Run the program *each* times on each machine, concurrently."""
    return _ended([xapi.start(*args, env={**env, **on(xapi, number % MACHINES)}) for number in range(MACHINES * each)])


def _codes(outcomes: list[Outcome]) -> dict[int, int]:
    return dict(Counter(outcome.code for outcome in outcomes))


# one login for all machines

each_size = pytest.mark.parametrize("each", [2, pytest.param(8, marks=pytest.mark.slow)])


@each_size
@pytest.mark.parametrize("before", ["revoked", "none", "expired"])
def test_processes_of_8_machines_that_need_a_token_trigger_one_login_and_all_succeed(
    xapi: Xapi, service: OneTokenSandbox, env: Env, before: str, each: int
) -> None:
    if before == "expired":
        service.expires_in = 1
    if before != "none":
        assert xapi("login", env=env).code == 0
        service.revoke_tokens()
    service.expires_in = 3600
    logins = service.logins
    if before == "expired":
        time.sleep(1)  # the lifetime of a token is in whole seconds

    outcomes = _fleet(xapi, env, *ME, each=each)

    assert _codes(outcomes) == {0: MACHINES * each}, [one.err for one in outcomes if one.code][:3]
    assert {json.loads(one.out)["email"] for one in outcomes} == {MASTER.email}
    assert service.logins == service.login_attempts == logins + 1


@each_size
def test_processes_of_8_machines_with_a_wrong_password_try_it_once(
    xapi: Xapi, service: OneTokenSandbox, env: Env, each: int
) -> None:
    outcomes = _fleet(xapi, {**env, "XAPI_PASSWORD": "wrong"}, *ME, each=each)

    assert _codes(outcomes) == {10: MACHINES * each}
    assert service.login_attempts == 1
    assert xapi(*ME, env={**env, **on(xapi, 9)}).code == 0


def test_a_failed_login_is_shared_with_the_machines_that_wait_for_it(xapi: Xapi, shared_redis: RedisServer) -> None:
    gate = Gate()
    broken = b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n"
    with Server([Peer.read_request, gate.reached, _until(gate), lambda peer: peer.sock.sendall(broken)]) as server:
        env: Env = {**shared_redis.environ, "XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x"}
        holder = xapi.start("token", "show", env={**env, **on(xapi, 0)})
        gate.wait()
        waiting = [xapi.start("token", "show", env={**env, **on(xapi, number)}) for number in (1, 2, 3)]
        _wait_for_polls(shared_redis)
        gate.open.set()
        outcomes = _ended([holder, *waiting])

    assert _codes(outcomes) == {5: 4}
    assert sum("(reported by another xapi process)" in one.err for one in outcomes) == 3
    assert len(server.received) == 1


def test_a_fresh_token_that_is_rejected_stops_the_logins_of_all_machines(xapi: Xapi, shared_redis: RedisServer) -> None:
    grant = json.dumps({"access_token": "fresh-but-unknown"}).encode()

    def respond(peer: Peer) -> None:
        while True:
            start = len(peer.received)
            peer.read_request()
            is_login = peer.received[start:].startswith(b"POST")
            status, body = (b"200 OK", grant) if is_login else (b"401 Unauthorized", b"")
            peer.sock.sendall(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))

    with Server([respond]) as server:
        env: Env = {**shared_redis.environ, "XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x"}
        first = xapi(*ME, env={**env, **on(xapi, 0)})
        second = xapi(*ME, env={**env, **on(xapi, 1)})
        logins = sum(data.count(b"POST ") for data in server.received)

    assert (first.code, second.code, logins) == (10, 10, 1)
    assert "the API rejected a fresh token less than a minute ago" in second.err


def _until(gate: Gate) -> Callable[[Peer], None]:
    def step(peer: Peer) -> None:
        assert gate.open.wait(60)

    return step


def _wait_for_polls(server: RedisServer, count: int = 20) -> None:
    """Wait until the processes that wait for the lock have asked for it *count* times."""

    def scripts() -> int:
        info: Any = server.oracle.info("commandstats")
        return int(info.get("cmdstat_eval", {}).get("calls", 0))

    start = scripts()
    _wait_until(lambda: scripts() >= start + count)


def _wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


# processes that are killed or stopped


class Grants:
    """A token endpoint that issues `token1`, `token2`, … and holds the first login until the gate is open."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.number = 0

    def __call__(self, peer: Peer) -> None:
        peer.read_request()
        self.number += 1
        body = json.dumps({"access_token": f"token{self.number}"}).encode()
        if self.number == 1:
            self.gate.reached(peer)
            assert self.gate.open.wait(60)
        peer.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


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
    found: Any = server.oracle.keys("*:lock")
    assert len(found) == 1
    assert 0 < int(server.oracle.pttl(found[0])) <= 45_000
    server.oracle.delete(*found)


def test_a_killed_holder_does_not_block_its_own_machine(xapi: Xapi, held: Env, grants: Grants) -> None:
    holder = xapi.start("token", "show", env={**held, **on(xapi, 0)})
    grants.gate.wait()
    holder.kill()
    holder.wait()
    with Stopwatch() as watch:
        outcome = xapi("token", "show", env={**held, **on(xapi, 0)})

    assert (outcome.code, outcome.out) == (0, "token2\n")
    assert watch.seconds < 10


def test_the_lock_of_a_machine_that_failed_expires(
    xapi: Xapi, held: Env, grants: Grants, shared_redis: RedisServer
) -> None:
    holder = xapi.start("token", "show", env={**held, **on(xapi, 0)})
    grants.gate.wait()
    holder.kill()
    holder.wait()
    waiting = xapi.start("token", "show", env={**held, **on(xapi, 1)})
    _wait_for_polls(shared_redis, 4)
    assert waiting.poll() is None
    _expire_lock(shared_redis)

    (outcome,) = _ended([waiting])
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
    (outcome,) = _ended([holder])

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
    (outcome,) = _ended([holder])

    assert (outcome.code, outcome.out) == (0, "token1\n")
    assert "warning: the new token could not be stored: another process took over the login lock" in outcome.err
    assert shared_redis.keys() == []


def test_a_login_stores_nothing_after_a_logout_on_another_machine(
    xapi: Xapi, held: Env, grants: Grants, shared_redis: RedisServer
) -> None:
    holder = xapi.start("token", "show", env={**held, **on(xapi, 0)})
    grants.gate.wait()
    assert xapi("logout", env={**held, **on(xapi, 1)}).code == 0
    grants.gate.open.set()
    (outcome,) = _ended([holder])

    assert (outcome.code, outcome.out) == (0, "token1\n")
    assert "the account was logged out in the meantime, so the new token is not stored" in outcome.err
    assert shared_redis.keys() == ["logout"]


def test_processes_that_wait_for_a_login_send_no_password_after_a_logout(
    xapi: Xapi, held: Env, grants: Grants, shared_redis: RedisServer
) -> None:
    holder = xapi.start("token", "show", env={**held, **on(xapi, 0)})
    grants.gate.wait()
    commands = enumerate((("token", "show", "--fresh"), ("token", "show", "--fresh"), ("login",)), 1)
    waiting = [xapi.start(*command, env={**held, **on(xapi, number)}) for number, command in commands]
    _wait_for_polls(shared_redis)
    (lock,) = _keys(shared_redis, "*:lock")
    shared_redis.oracle.set(lock.replace(b":lock", b":logout"), "of-a-logout")
    grants.gate.open.set()
    outcomes = _ended([holder, *waiting])

    assert _codes(outcomes) == {0: 1, 10: 2, 13: 1}
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
            for key in _keys(shared_redis, "*:lock"):
                assert 0 < int(shared_redis.oracle.pttl(key)) <= 45_000
        with Stopwatch() as watch:
            assert xapi("token", "show", "--fresh", env=env).code == 0
        assert watch.seconds < 10
        if process.returncode == 0:
            break
        killed += 1
    else:
        raise AssertionError("it never came to an end")
    assert killed >= (8 if others else 2)
    assert shared_redis.keys() == ["record"]


def _keys(server: RedisServer, pattern: str) -> list[bytes]:
    found: Any = server.oracle.keys(pattern)
    return list(found)


# a server that fails


@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.parametrize("command", ["request /x-api/me", "login", "logout", "token status", "token show --no-login"])
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
    assert min(took) < 4
    assert sandbox.login_attempts == 0


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

    without_url = xapi("logout", "--all", env={"XAPI_STORAGE": "redis"})

    assert without_url.code == 2
    assert f"xapi: logged out of {name(MEMBER.email)}\n" in without_url.err
    assert without_url.err.endswith(
        f"xapi: error: cannot log out of {name(MASTER.email)}: storage redis requires the setting redis_url; "
        "set XAPI_REDIS_URL, or run `xapi profile set redis_url redis://HOST`\n"
    )
    assert list((xapi.state / "tokens").iterdir()) == []

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
        outcomes = _ended(running)

        assert set(_codes(outcomes)) <= {0, 13}, [one.err for one in outcomes]
        assert sandbox.login_attempts - before <= 3  # before the crash, and after it, when its token was lost
        assert xapi(*ME, env=env).code == 0


def test_a_server_without_memory_serves_valid_tokens_and_causes_no_login(
    xapi: Xapi, sandbox: Sandbox, redis_server: RedisServer
) -> None:
    env: Env = {**sandbox.settings, **redis_server.environ}
    assert xapi("login", env=env).code == 0
    redis_server.oracle.config_set("maxmemory", "1")
    assert xapi(*ME, env=env).code == 0
    sandbox.revoke_tokens()

    outcomes = _fleet(xapi, env, *ME, each=1)
    login = xapi("login", env=env)
    doctor = xapi("doctor", "--json", env=env)

    assert _codes([*outcomes, login]) == {13: MACHINES + 1}
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

    assert _codes(outcomes) == {13: 3}
    assert {"is a replica, which cannot be written; set the URL of the primary" in one.err for one in outcomes} == {
        True
    }
    assert sandbox.logins == 1


# users, passwords, TLS, clusters


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
    page = (Path(__file__).parents[1] / "docs" / "many-machines.md").read_text()

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
        ("elsewhere:secret@", "does not allow this user to run the commands that xapi needs"),
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
    for args in (ME, ("login",), ("logout",)):
        outcome = xapi(*args, env={**sandbox.settings, "XAPI_STORAGE": "redis"})
        assert outcome.code == 2
        assert "storage redis requires the setting redis_url; set XAPI_REDIS_URL" in outcome.err


def test_without_the_extra_the_error_names_the_command_that_installs_it(xapi: Xapi, sandbox: Sandbox) -> None:
    code = "import sys; sys.modules['hiredis'] = None; from xapi_cli.__main__ import main; main()"
    env: Environ = {**sandbox.settings, "XAPI_STORAGE": "redis", "XAPI_REDIS_URL": "redis://127.0.0.1:1"}
    process = xapi.start("-c", code, *ME, argv=(str(PYTHON),), env=env)
    out, err = process.communicate(timeout=30)

    assert (process.returncode, out) == (2, b"")
    assert err == (
        b"xapi: error: storage redis needs packages that are not installed; run `pip install 'xapi-cli[redis]'`\n"
    )


def test_a_child_process_does_not_inherit_the_url(xapi: Xapi, sandbox: Sandbox, shared_redis: RedisServer) -> None:
    env: Env = {**sandbox.settings, **shared_redis.environ, "XAPI_PASSWORD": None}
    assert xapi("login", "--password-stdin", input=MASTER.password, env=env).code == 0

    assert "XAPI_REDIS_URL" not in xapi("exec", "env", env=env).out


class Tls:
    """A server with TLS on a port of loopback, for `localhost`, and the certificate of its CA."""

    def __init__(self, directory: Path) -> None:
        ca = trustme.CA()
        self.ca, self.other = directory / "ca.pem", directory / "other.pem"
        ca.cert_pem.write_to_path(self.ca)
        trustme.CA().cert_pem.write_to_path(self.other)
        certificate, key = directory / "cert.pem", directory / "key.pem"
        issued = ca.issue_cert("localhost")
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)
        self.port = free_port()
        options = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file", str(self.ca))
        self.server = RedisServer(*options, "--tls-auth-clients", "no", port=self.port, tls=True)


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[Tls]:
    required()
    tls = Tls(tmp_path)
    with tls.server:
        yield tls


def test_tls_is_verified(xapi: Xapi, sandbox: Sandbox, tls: Tls) -> None:
    env: Env = {**sandbox.settings, "XAPI_STORAGE": "redis", "XAPI_REDIS_URL": f"rediss://localhost:{tls.port}"}

    accepted = xapi("login", env={**env, "SSL_CERT_FILE": str(tls.ca)})
    assert (accepted.code, accepted.err.count("\n")) == (0, 1)
    assert xapi(*ME, "--ca-bundle", str(tls.ca), env={**env, "XAPI_PASSWORD": None}).code == 0
    other_name = {**env, "XAPI_REDIS_URL": f"rediss://127.0.0.1:{tls.port}", "SSL_CERT_FILE": str(tls.ca)}
    for refused in (env, {**env, "SSL_CERT_FILE": str(tls.other)}, other_name):
        outcome = xapi(*ME, env=refused)
        assert (outcome.code, "cannot establish a TLS connection to Redis at " in outcome.err) == (13, True), outcome
    assert sandbox.logins == 1
    with pytest.raises(ssl.SSLError):
        ssl.get_server_certificate(("127.0.0.1", tls.port), ca_certs=str(tls.other))  # the oracle agrees


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_a_server_with_the_other_scheme_is_an_error(xapi: Xapi, sandbox: Sandbox, tls: Tls, scheme: str) -> None:
    port = tls.port if scheme == "redis" else free_port()
    with RedisServer(port=free_port() if scheme == "redis" else port):
        url = f"{scheme}://localhost:{port}"
        outcome = xapi(*ME, env={**sandbox.settings, "XAPI_STORAGE": "redis", "XAPI_REDIS_URL": url})

    assert (outcome.code, sandbox.login_attempts) == (13, 0), outcome


def test_a_server_of_another_protocol_is_an_error(xapi: Xapi, sandbox: Sandbox) -> None:
    url = sandbox.base_url.replace("http", "redis")
    outcome = xapi(*ME, env={**sandbox.settings, "XAPI_STORAGE": "redis", "XAPI_REDIS_URL": url})

    assert (outcome.code, outcome.err.count("\n")) == (13, 1)


NODE = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")


def test_a_node_of_a_cluster_refers_to_the_node_that_has_the_keys(xapi: Xapi, sandbox: Sandbox) -> None:
    required()
    with RedisServer(*NODE, port=_port_of_node()) as first, RedisServer(*NODE, port=_port_of_node()) as second:
        _join(first, second)
        env: Env = {**sandbox.settings, "XAPI_STORAGE": "redis"}
        for server in (first, second):
            env["XAPI_REDIS_URL"] = f"redis://127.0.0.1:{server.port}"
            assert xapi("token", "show", "--fresh", env=env).code == 0
            assert xapi(*ME, env=env).code == 0
            assert '"redis", "status": "pass"' in xapi("doctor", "--json", env=env).out
        assert (first.keys(), second.keys()) == ([], ["record"])
        env["XAPI_REDIS_URL"] = f"redis://127.0.0.1:{second.port}/1"
        other = xapi(*ME, env=env)
        assert (other.code, "does not have this database" in other.err) == (13, True)


def test_a_token_is_read_while_its_slot_is_moved_to_another_node(xapi: Xapi, sandbox: Sandbox) -> None:
    required()
    with RedisServer(*NODE, port=_port_of_node()) as target, RedisServer(*NODE, port=_port_of_node()) as source:
        _join(target, source)
        env: Env = {**sandbox.settings, "XAPI_STORAGE": "redis"}
        urls = [f"redis://127.0.0.1:{server.port}" for server in (source, target)]
        assert xapi("login", env={**env, "XAPI_REDIS_URL": urls[0]}).code == 0
        (record,) = (key.decode() for key in _keys(source, "*"))
        slot = int(source.execute("CLUSTER", "KEYSLOT", record))
        source_id, target_id = (server.execute("CLUSTER", "MYID").decode() for server in (source, target))
        target.execute("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.execute("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        source.execute("MIGRATE", "127.0.0.1", target.port, record, 0, 5000)

        assert [server.keys() for server in (source, target)] == [[], ["record"]]
        assert [xapi(*ME, env={**env, "XAPI_REDIS_URL": url}).code for url in urls] == [0, 0]
        for server in (target, source):
            server.execute("CLUSTER", "SETSLOT", slot, "NODE", target_id)
        assert [xapi(*ME, env={**env, "XAPI_REDIS_URL": url}).code for url in urls] == [0, 0]
        assert xapi("token", "show", "--fresh", env={**env, "XAPI_REDIS_URL": urls[0]}).code == 0
        assert sandbox.logins == 2


def _port_of_node() -> int:
    """Return a port of loopback; a node also listens on the port that is greater by 10,000, and Redis 6 on no other."""
    while True:
        port = free_port()
        with suppress(OSError, OverflowError), socket.create_server(("127.0.0.1", port + 10_000)):
            return port


def _join(first: RedisServer, second: RedisServer) -> None:
    """Make a cluster of both servers, in which *second* has all slots."""
    second.execute("CLUSTER", "ADDSLOTS", *range(16384))
    first.execute("CLUSTER", "MEET", "127.0.0.1", second.port)

    def refers() -> bool:
        import redis

        try:
            first.oracle.get("key")
        except redis.exceptions.ResponseError as error:
            return str(error).startswith(("MOVED", "12539"))
        return False

    _wait_until(refers)


# prefix, and many calls


def test_the_prefix_separates_deployments(
    xapi: Xapi, service: OneTokenSandbox, env: Env, shared_redis: RedisServer
) -> None:
    assert xapi("login", env={**env, "XAPI_REDIS_PREFIX": "team/a:"}).code == 0

    assert [key.partition(b"{")[0] for key in _keys(shared_redis, "*")] == [b"team/a:"]
    assert xapi("token", "show", "--no-login", env=env).code == 10
    refused = xapi("token", "show", env={**env, "XAPI_REDIS_PREFIX": "a b{"})
    assert (refused.code, "is not a valid prefix of Redis keys" in refused.err) == (2, True)


def test_remember_is_refused(xapi: Xapi, env: Env, shared_redis: RedisServer) -> None:
    outcome = xapi("login", "--remember", env=env)

    assert (outcome.code, "which does not store passwords" in outcome.err) == (2, True)
    assert shared_redis.keys() == []


@pytest.mark.parametrize(
    "calls",
    [
        24,
        pytest.param(64, marks=pytest.mark.slow),
        pytest.param(20_000, marks=[pytest.mark.soak, pytest.mark.timeout(5400)]),
    ],
)
def test_calls_of_8_machines_succeed_while_the_token_is_revoked(
    xapi: Xapi, service: OneTokenSandbox, env: Env, shared_redis: RedisServer, calls: int
) -> None:
    """Each call reports failure and completion; a revocation is in the middle, as a second 401 would be final."""
    for machine in range(MACHINES):
        on(xapi, machine)
    call = 'XAPI_STATE_DIR="$HOME/machine$(($1 % 8))" "$0" request /x-api/me >/dev/null 2>>errors || echo "$?" >>failed'
    xargs = ("xargs", "-P", "16", "-I", "{}", "sh", "-c", f"{call}; echo >>done", str(PROGRAM), "{}")
    assert xapi("login", env=env).code == 0
    before = cast("Any", shared_redis.oracle.info("memory"))["used_memory"]
    process = xapi.start(stdin=subprocess.PIPE, env=env, argv=xargs)
    assert process.stdin is not None
    process.stdin.write(b"".join(b"%d\n" % number for number in range(calls)))
    process.stdin.close()
    _follow(process, lambda: _lines(xapi, "done") >= calls // 2)
    service.revoke_tokens()
    process.wait()

    assert (process.returncode, _lines(xapi, "done")) == (0, calls)
    assert not (xapi.home / "failed").exists(), (xapi.home / "errors").read_text()[:2000]
    assert service.logins == service.login_attempts == 2
    memory, clients = (cast("Any", shared_redis.oracle.info(section)) for section in ("memory", "clients"))
    assert shared_redis.keys() == ["record"]
    assert clients["connected_clients"] == 1  # the oracle
    assert memory["used_memory"] < before + 1024 * 1024


def _follow(process: "subprocess.Popen[bytes]", holds: Callable[[], bool]) -> None:
    while process.poll() is None and not holds():
        time.sleep(0.05)


def _lines(xapi: Xapi, name: str) -> int:
    path = xapi.home / name
    return path.read_bytes().count(b"\n") if path.exists() else 0

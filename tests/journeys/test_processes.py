"""Concurrent processes: a single login, no locked account, and no delay by a killed process."""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from tests.support.keyring_session import KeyringSession
from tests.support.program import Process, Xapi
from tests.support.servers import Server, Stopwatch, hang, request
from tests.support.stores import Env, lines
from tests.support.threads import Gate, wait_until, waiting_for_lock
from xapi_cli.features.sandbox import MASTER, MEMBER, Sandbox

if TYPE_CHECKING:
    from tests.support.credential_helpers import PasswordStore

pytestmark = pytest.mark.slow  # many processes

MANY = 64


@pytest.fixture
def stored(request: pytest.FixtureRequest) -> Env:
    """An environment with the storage to test; the keyring is a real one."""
    if request.param == "helper":  # parametrized indirectly; the real docker-credential-pass
        passwords: PasswordStore = request.getfixturevalue("shared_password_store")
        return {**passwords.environ, "XAPI_STORAGE": "helper", "XAPI_CREDENTIAL_HELPER": "pass"}
    if request.param != "keyring":
        return {"XAPI_STORAGE": request.param}
    session: KeyringSession = request.getfixturevalue("shared_gnome_keyring")
    return {**session.environ, "XAPI_STORAGE": "keyring"}


def _concurrently(xapi: Xapi, env: Mapping[str, str | None], *args: str, count: int = MANY) -> "list[Completed]":
    """Run the program *count* times concurrently; return the outcomes."""
    running = [xapi.start(*args, env=env) for _ in range(count)]
    return [Completed(process) for process in running]


class Completed:
    """The outcome of a process."""

    def __init__(self, process: Process) -> None:
        out, err = process.communicate()
        self.code, self.out, self.err = process.returncode, out.decode(), err.decode()


def _codes(ended: list[Completed]) -> dict[int, int]:
    return dict(Counter(each.code for each in ended))


@pytest.mark.parametrize(
    "stored, before",
    [
        ("file", "dead"),
        ("file", "expired"),
        ("keyring", "none"),
        ("helper", "dead"),
    ],
    indirect=["stored"],
)
def test_64_processes_that_need_a_token_trigger_one_login_and_all_succeed(
    xapi: Xapi, sandbox: Sandbox, stored: Env, before: str
) -> None:
    env = {**stored, **sandbox.settings}
    if before == "expired":
        sandbox.expires_in = 1
    if before != "none":
        assert xapi("login", env=env).code == 0
        sandbox.revoke_tokens()
    sandbox.expires_in = 3600
    logins = sandbox.logins
    if before == "expired":
        time.sleep(1)

    ended = _concurrently(xapi, env, "request", "/x-api/me")

    assert _codes(ended) == {0: MANY}, [each.err for each in ended if each.code][:3]
    assert {json.loads(each.out)["email"] for each in ended} == {MASTER.email}
    assert sandbox.logins == sandbox.login_attempts == logins + 1
    assert sum("logged in as" in each.err for each in ended) == 1


@pytest.mark.parametrize("stored", ["none", "keyring"], indirect=True)
def test_64_processes_with_a_wrong_password_try_it_once_and_the_right_one_works_immediately(
    xapi: Xapi, sandbox: Sandbox, stored: Env
) -> None:
    env: Env = {**sandbox.settings, **stored, "XAPI_PASSWORD": "wrong"}

    ended = _concurrently(xapi, env, "request", "/x-api/me")

    assert _codes(ended) == {10: MANY}, [each.err for each in ended if each.code != 10][:3]
    assert {each.out for each in ended} == {""}
    assert sandbox.login_attempts == 1
    assert xapi("request", "/x-api/me", env={**env, **sandbox.settings}).code == 0


def test_concurrent_accounts_trigger_one_login_each(xapi: Xapi) -> None:
    with Sandbox() as first, Sandbox() as second:
        accounts: list[Env] = [
            {**sandbox.settings, "XAPI_USERNAME": user.email, "XAPI_PASSWORD": user.password}
            for sandbox in (first, second)
            for user in (MASTER, MEMBER)
        ]
        running = [xapi.start("token", "show", env=accounts[number % 4]) for number in range(32)]
        ended = [Completed(process) for process in running]

        assert _codes(ended) == {0: 32}, [each.err for each in ended if each.code][:3]
        assert (first.logins, second.logins) == (2, 2)
        assert len({each.out for each in ended}) == 4


WAITING = 8


def test_waiting_processes_share_the_rejection_of_a_password_from_a_command(xapi: Xapi, sandbox: Sandbox) -> None:
    """The command blocks in the first process until all others wait for the lock; each run writes a line."""
    script, runs, go = xapi.home / "getpw", xapi.home / "runs", xapi.home / "go"
    script.write_text(f"#!/bin/sh\necho >>{runs}\nread go <{go}\necho wrong\n")
    script.chmod(0o755)
    os.mkfifo(go)
    env: Env = {**sandbox.settings, "XAPI_PASSWORD": None}
    assert xapi("profile", "set", "password_command", str(script)).code == 0

    running = [xapi.start("token", "show", env=env) for _ in range(WAITING)]
    wait_until(lambda: _waiting_to_log_in(xapi) == WAITING - 1)
    with go.open("w") as gate:  # opens when the command reads; another run would also wait for a line
        print("\n" * WAITING, file=gate, flush=True)
        ended = [Completed(process) for process in running]

    assert _codes(ended) == {10: WAITING}
    assert sum("(reported by another xapi process)" in each.err for each in ended) == WAITING - 1
    assert (lines(xapi, "runs"), sandbox.login_attempts) == (1, 1)


def _waiting_to_log_in(xapi: Xapi) -> int:
    return sum(waiting_for_lock(lock) for lock in (xapi.state / "locks").glob("*.login.lock"))


@pytest.mark.parametrize("stored", ["none", "keyring"], indirect=True)
def test_8_processes_and_a_token_endpoint_that_hangs_all_end_in_time(xapi: Xapi, stored: Env) -> None:
    with Server([hang()]) as server:
        env: Env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x", **stored}
        ended = _concurrently(xapi, env, "request", "/x-api/me", "--timeout", "2", count=8)

    assert _codes(ended) == {12: 8}, [each.err for each in ended]
    assert len(server.received) <= 3


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_a_killed_or_stopped_lock_holder_does_not_block_for_long(xapi: Xapi, sandbox: Sandbox, how: str) -> None:
    gate = Gate()
    with Server([request(), gate.reached, hang()]) as server:
        env: Env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x", "XAPI_TIMEOUT": "1"}
        holder = xapi.start("token", "show", "--timeout", "60", env=env)
        gate.wait()
        holder.send_signal(signal.Signals[how])
        outcome = xapi("token", "show", env=env)

    assert outcome.code == 12
    if how == "SIGKILL":
        assert len(server.received) == 2
    else:
        assert "another xapi process has been logging in as me" in outcome.err
        holder.kill()


def test_max_time_ends_the_wait_for_another_login(xapi: Xapi) -> None:
    gate = Gate()
    with Server([request(), gate.reached, hang()]) as server:
        env: Env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x"}
        xapi.start("token", "show", env=env)
        gate.wait()
        with Stopwatch() as watch:
            assert xapi("token", "show", "--max-time", "1", env=env).code == 12
    assert watch.seconds < 20  # not the timeout of a login


def test_an_unresponsive_keyring_exits_with_13_in_time(xapi: Xapi, gnome_keyring: KeyringSession) -> None:
    env: Env = {**gnome_keyring.environ, "XAPI_STORAGE": "keyring", "XAPI_BASE_URL": "api.test", "XAPI_USERNAME": "me"}
    assert xapi("token", "status", env=env).code == 10
    gnome_keyring.freeze()
    for args in (("token", "show"), ("login",), ("logout",)):
        with Stopwatch() as watch:
            outcome = xapi(*args, env={**env, "XAPI_PASSWORD": "x"})
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (13, "", 1)
        remedy = "log out again" if args == ("logout",) else "run `xapi login --storage file` to"
        assert remedy in outcome.err
        assert watch.seconds < 30
    gnome_keyring.thaw()


# logout during a login


@pytest.mark.parametrize(
    "rounds, storage",
    [
        (5, "file"),
        (5, "keyring"),
    ],
)
def test_a_login_stores_nothing_after_a_concurrent_logout(
    xapi: Xapi, sandbox: Sandbox, request: pytest.FixtureRequest, rounds: int, storage: str
) -> None:
    env: Env = {**sandbox.settings, "XAPI_STORAGE": storage}
    if storage == "keyring":
        session: KeyringSession = request.getfixturevalue("shared_gnome_keyring")
        env |= session.environ
    for _ in range(rounds):
        racing = [xapi.start("token", "show", "--fresh", env=env) for _ in range(2)]
        attempts, end = sandbox.login_attempts, time.monotonic() + random.uniform(0, 1)
        while sandbox.login_attempts == attempts and time.monotonic() < end:
            time.sleep(0.01)
        before = sandbox.login_attempts  # one that begins while the logout ends may follow it, and is stored
        assert xapi("logout", env=env).code == 0
        message = [process.communicate()[1].decode() for process in racing]
        stored = xapi("token", "show", "--no-login", env=env).code == 0
        if sandbox.login_attempts == before:
            assert not stored, message
        elif stored:
            assert sum("logged out in the meantime" in each for each in message) < len(message)

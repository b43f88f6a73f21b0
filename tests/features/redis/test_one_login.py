"""Machines that share a Redis server: one login for all, and one attempt with a wrong password."""

import json
import time
from collections.abc import Callable

import pytest

from tests.features.redis.fleet import (
    MACHINES,
    ME,
    Env,
    OneTokenSandbox,
    ended,
    exit_codes,
    fleet,
    on,
    wait_until_waiting,
)
from tests.support.program import Xapi
from tests.support.redis_server import RedisServer
from tests.support.servers import Peer, Server, reject_new_tokens
from tests.support.threads import Gate
from xapi_cli.features.sandbox import MASTER

each_size = pytest.mark.parametrize("each", [2, pytest.param(16, marks=pytest.mark.slow)])


@each_size
@pytest.mark.parametrize("before", ["revoked", "none", pytest.param("expired", marks=pytest.mark.slow)])
def test_processes_of_many_machines_that_need_a_token_trigger_one_login_and_all_succeed(
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

    outcomes = fleet(xapi, env, *ME, each=each)

    assert exit_codes(outcomes) == {0: MACHINES * each}, [one.err for one in outcomes if one.code][:3]
    assert {json.loads(one.out)["email"] for one in outcomes} == {MASTER.email}
    assert service.logins == service.login_attempts == logins + 1


@each_size
def test_processes_of_many_machines_with_a_wrong_password_try_it_once(
    xapi: Xapi, service: OneTokenSandbox, env: Env, each: int
) -> None:
    outcomes = fleet(xapi, {**env, "XAPI_PASSWORD": "wrong"}, *ME, each=each)

    assert exit_codes(outcomes) == {10: MACHINES * each}
    assert service.login_attempts == 1
    assert xapi(*ME, env={**env, **on(xapi, 9)}).code == 0


def test_a_failed_login_is_shared_with_the_machines_that_wait_for_it(xapi: Xapi, shared_redis: RedisServer) -> None:
    gate = Gate()
    broken = b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n"
    with Server([Peer.read_request, gate.reached, _until(gate), lambda peer: peer.sock.sendall(broken)]) as server:
        env: Env = {**shared_redis.environ, "XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x"}
        holder = xapi.start("token", "show", "--timeout", "120", env={**env, **on(xapi, 0)})
        gate.wait()
        waiting = [
            xapi.start("token", "show", "--timeout", "120", env={**env, **on(xapi, number)}) for number in (1, 2, 3)
        ]
        wait_until_waiting(shared_redis, 3)
        gate.open.set()
        outcomes = ended([holder, *waiting])

    assert exit_codes(outcomes) == {5: 4}, outcomes
    assert sum("(reported by another xapi process)" in one.err for one in outcomes) == 3
    assert len(server.received) == 1


def test_a_fresh_token_that_is_rejected_stops_the_logins_of_all_machines(xapi: Xapi, shared_redis: RedisServer) -> None:
    with Server([reject_new_tokens]) as server:
        env: Env = {**shared_redis.environ, "XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x"}
        first = xapi(*ME, env={**env, **on(xapi, 0)})
        second = xapi(*ME, env={**env, **on(xapi, 1)})
        logins = sum(data.count(b"POST ") for data in server.received)

    assert (first.code, second.code, logins) == (10, 10, 1)
    assert "the API rejected a new token less than a minute ago" in second.err


def _until(gate: Gate) -> Callable[[Peer], None]:
    def step(peer: Peer) -> None:
        assert gate.open.wait(60)

    return step

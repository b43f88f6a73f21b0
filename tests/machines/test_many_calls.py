"""Many calls of machines that share a Redis server, and what they leave there."""

import subprocess
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.machines.fleet import MACHINES, Env, OneTokenSandbox, keys_like, on
from tests.support.program import PROGRAM, Xapi
from tests.support.redis_server import RedisServer


def test_the_prefix_separates_deployments(
    xapi: Xapi, service: OneTokenSandbox, env: Env, shared_redis: RedisServer
) -> None:
    assert xapi("login", env={**env, "XAPI_REDIS_PREFIX": "team/a:"}).code == 0

    assert [key.partition(b"{")[0] for key in keys_like(shared_redis, "*")] == [b"team/a:"]
    assert xapi("token", "show", "--no-login", env=env).code == 10
    refused = xapi("token", "show", env={**env, "XAPI_REDIS_PREFIX": "a b{"})
    assert (refused.code, "is not a valid prefix of Redis keys" in refused.err) == (2, True)


def test_remember_is_refused(xapi: Xapi, env: Env, shared_redis: RedisServer) -> None:
    outcome = xapi("login", "--remember", env=env)

    assert (outcome.code, "which does not store passwords" in outcome.err) == (2, True)
    assert shared_redis.keys() == []


@pytest.mark.parametrize(
    "calls",
    [24, 64],
)
@pytest.mark.slow
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

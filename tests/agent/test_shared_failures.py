"""Login failures of processes that share a keeper but no state directory, as containers do."""

import json
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.agent.conftest import process_state
from tests.agent.keeper_clients import connected
from tests.agent.keeper_programs import ME, without_password
from tests.machines.fleet import Env, ended, exit_codes, fleet, on
from tests.support.keeper_process import KeeperProcess
from tests.support.program import Xapi
from tests.support.servers import Peer, Server, reject_new_tokens
from tests.support.threads import Gate, wait_until
from xapi_cli.sandbox import Sandbox

_CONNECTED = "03"  # in /proc/net/unix
_UNAVAILABLE = b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def account(keeper: KeeperProcess) -> Env:
    """The environment with an account of a server that the test starts."""
    return {**keeper.environ, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x"}


def test_processes_with_a_wrong_password_try_it_once(xapi: Xapi, sandbox: Sandbox, env: Env) -> None:
    outcomes = fleet(xapi, {**env, "XAPI_PASSWORD": "wrong"}, *ME, each=1)

    assert exit_codes(outcomes) == {10: 8}
    assert sandbox.login_attempts == 1
    one_after_another = [xapi(*ME, env={**env, **on(xapi, number), "XAPI_PASSWORD": "wrong"}) for number in (20, 21)]
    assert exit_codes(one_after_another) == {10: 2}
    assert sandbox.login_attempts == 1

    assert xapi(*ME, env={**env, **on(xapi, 9)}).code == 0  # another password is sent at once


def test_an_explicit_login_sends_a_rejected_password_and_a_successful_one_deletes_the_failures(
    xapi: Xapi, sandbox: Sandbox, env: Env
) -> None:
    wrong = {**env, "XAPI_PASSWORD": "wrong"}
    assert xapi(*ME, env={**wrong, **on(xapi, 0)}).code == 10
    assert xapi("login", env={**wrong, **on(xapi, 1)}).code == 10
    assert sandbox.login_attempts == 2

    assert xapi("login", env={**env, **on(xapi, 2)}).code == 0
    assert xapi("token", "show", "--fresh", env={**wrong, **on(xapi, 3)}).code == 10
    assert sandbox.login_attempts == 4


def test_a_failed_login_is_shared_with_the_processes_that_wait_for_it(
    xapi: Xapi, keeper: KeeperProcess, account: Env
) -> None:
    gate = Gate()

    def respond(peer: Peer) -> None:
        assert gate.open.wait(60)
        peer.sock.sendall(_UNAVAILABLE)

    with Server([Peer.read_request, gate.reached, respond]) as server:
        env = {**account, "XAPI_BASE_URL": server.url}
        holder = xapi.start("token", "show", env={**env, **on(xapi, 0)})
        gate.wait()
        waiting = [xapi.start("token", "show", env={**env, **on(xapi, number)}) for number in (1, 2, 3)]
        _wait_for_lock(keeper, [holder, *waiting])
        gate.open.set()
        outcomes = ended([holder, *waiting])

    assert exit_codes(outcomes) == {5: 4}
    assert sum("(reported by another xapi process)" in one.err for one in outcomes) == 3
    assert len(server.received) == 1


def _wait_for_lock(keeper: KeeperProcess, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait until one of *processes* holds the lock of *keeper*, and the others wait for it.

    Each is connected then, and as nothing is left to do, no process runs. A connection that only reads a record ends.
    """
    pids = [process.pid for process in processes]

    def is_at_rest() -> bool:
        before = _connections(keeper)
        are_asleep = all(process_state(pid) == "S" for pid in (*pids, keeper.pid, *pids))
        return are_asleep and len(before) == len(pids) and _connections(keeper) == before

    wait_until(is_at_rest, "the others wait for the lock", timeout=60)


def _connections(keeper: KeeperProcess) -> set[str]:
    """Return the numbers of the sockets at which clients are connected to *keeper*."""
    with closing(connected(keeper)) as own:
        name = own.getpeername()
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return {row[6] for row in rows if (row[5], row[-1]) == (_CONNECTED, name)}


def test_a_password_command_that_fails_is_run_once(
    xapi: Xapi, sandbox: Sandbox, keeper: KeeperProcess, env: Env, tmp_path: Path
) -> None:
    runs, may_end = tmp_path / "runs", tmp_path / "may-end"
    script = f"echo run >>{runs}; while [ ! -e {may_end} ]; do sleep 0.02; done; exit 1"
    env = without_password(env)
    for number in range(4):
        config = Path(str(on(xapi, number)["XAPI_CONFIG_DIR"]))
        config.mkdir(mode=0o700)
        profile = {"base_url": sandbox.base_url, "password_command": ["sh", "-c", script]}
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in profile.items()]
        (config / "config.toml").write_text("".join(["[profiles.default]\n", *lines]))
    holder = xapi.start(*ME, env={**env, **on(xapi, 0)})
    wait_until(runs.exists, "the command runs", timeout=60)
    waiting = [xapi.start(*ME, env={**env, **on(xapi, number)}) for number in (1, 2, 3)]
    _wait_for_lock(keeper, [holder, *waiting])
    may_end.touch()

    assert exit_codes(ended([holder, *waiting])) == {10: 4}
    assert runs.read_text() == "run\n"


def test_a_fresh_token_that_is_rejected_stops_the_logins_of_all(xapi: Xapi, account: Env) -> None:
    with Server([reject_new_tokens]) as server:
        env = {**account, "XAPI_BASE_URL": server.url}
        first = xapi(*ME, env={**env, **on(xapi, 0)})
        second = xapi(*ME, env={**env, **on(xapi, 1)})
        logins = sum(data.count(b"POST ") for data in server.received)

    assert (first.code, second.code, logins) == (10, 10, 1)
    assert "the API rejected a new token less than a minute ago" in second.err


def test_a_rejected_password_is_not_sent_again_after_the_keeper_was_killed(
    xapi: Xapi, sandbox: Sandbox, keeper: KeeperProcess, env: Env
) -> None:
    wrong = {**env, "XAPI_PASSWORD": "wrong"}
    assert xapi(*ME, env=wrong).code == 10
    keeper.kill()
    without_keeper = xapi(*ME, env=wrong)
    keeper.start()
    with_another = xapi(*ME, env=wrong)

    assert (without_keeper.code, with_another.code, sandbox.login_attempts) == (10, 10, 1)
    assert "so this password is not sent again" in with_another.err
    assert xapi("login", env=wrong).code == 10
    assert sandbox.login_attempts == 2
    assert xapi(*ME, env=env).code == 0


def test_without_a_keeper_the_failures_are_in_the_state_directory(
    xapi: Xapi, sandbox: Sandbox, keeper: KeeperProcess, env: Env
) -> None:
    keeper.kill()
    wrong = {**env, "XAPI_PASSWORD": "wrong"}
    assert exit_codes(ended([xapi.start(*ME, env=wrong) for _ in range(6)])) == {10: 6}
    assert sandbox.login_attempts == 1

    keeper.start()
    assert xapi(*ME, env=env).code == 0

"""Machines that share a Redis cluster, also while a slot is moved from one node to another."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.machines.fleet import MACHINES, ME, Env, OneTokenSandbox, ended, exit_codes, keys_like, on
from tests.support.program import Xapi
from tests.support.redis_server import RedisServer, free_port, required
from tests.support.threads import wait_until
from xapi_cli.features.sandbox import Sandbox

if TYPE_CHECKING:
    import subprocess

_NODE = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")


class Cluster(NamedTuple):
    """Two nodes: at first, *source* has all slots."""

    source: RedisServer
    target: RedisServer

    def url(self, server: RedisServer) -> str:
        return f"redis://127.0.0.1:{server.port}"

    def begin_to_move(self, slot: int) -> None:
        """Let both nodes move *slot* to the target, in the order that the documentation of Redis prescribes."""
        self.target.execute("CLUSTER", "SETSLOT", slot, "IMPORTING", _id(self.source))
        self.source.execute("CLUSTER", "SETSLOT", slot, "MIGRATING", _id(self.target))

    def move_keys(self, slot: int) -> None:
        for key in self.source.execute("CLUSTER", "GETKEYSINSLOT", slot, 100):
            self.source.execute("MIGRATE", "127.0.0.1", self.target.port, key, 0, 5000)

    def end_to_move(self, slot: int) -> None:
        """Give *slot* to the target, and wait until both nodes know each other's new configuration."""
        for server in (self.target, self.source):
            server.execute("CLUSTER", "SETSLOT", slot, "NODE", _id(self.target))
        wait_until(lambda: _nodes(self.source) == _nodes(self.target))

    def slot(self) -> int:
        """Return the slot of the account that is stored."""
        (key,) = (key for server in self for key in keys_like(server, "*:account"))
        return int(self.source.execute("CLUSTER", "KEYSLOT", key))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    required()
    with RedisServer(*_NODE, port=_port_of_node()) as source, RedisServer(*_NODE, port=_port_of_node()) as target:
        source.execute("CLUSTER", "ADDSLOTS", *range(16384))
        target.execute("CLUSTER", "MEET", "127.0.0.1", source.port)
        wait_until(lambda: _refers(target))
        yield Cluster(source, target)


def test_a_node_of_a_cluster_refers_to_the_node_that_has_the_keys(
    xapi: Xapi, sandbox: Sandbox, cluster: Cluster
) -> None:
    env: Env = {**sandbox.settings, "XAPI_STORAGE": "redis"}
    for server in cluster:
        env["XAPI_REDIS_URL"] = cluster.url(server)
        assert xapi("token", "show", "--fresh", env=env).code == 0
        assert xapi(*ME, env=env).code == 0
        assert '"redis", "status": "pass"' in xapi("doctor", "--json", env=env).out
    assert (cluster.source.keys(), cluster.target.keys()) == (["record"], [])
    env["XAPI_REDIS_URL"] = cluster.url(cluster.source) + "/1"
    other = xapi(*ME, env=env)
    assert (other.code, "the database number" in other.err) == (13, True)


@pytest.mark.parametrize("state", ["not moved", "moved", "deleted"])
@pytest.mark.slow
def test_everything_works_while_the_slot_of_the_account_is_being_moved(
    xapi: Xapi, sandbox: Sandbox, cluster: Cluster, state: str
) -> None:
    """Until the move has ended, a script with several keys fails with TRYAGAIN, one that deletes its key with ASK."""
    env: Env = {**sandbox.settings, "XAPI_STORAGE": "redis", "XAPI_REDIS_URL": cluster.url(cluster.source)}
    assert xapi("login", env=env).code == 0
    slot = cluster.slot()
    cluster.begin_to_move(slot)
    if state == "moved":
        cluster.move_keys(slot)
    elif state == "deleted":
        cluster.source.oracle.flushall()

    commands = (ME, ("token", "show", "--fresh"), ("login",), ("logout",), ME, ("logout",))
    assert [xapi(*command, env=env).err for command in commands if xapi(*command, env=env).code] == []
    refused = xapi("token", "show", "--fresh", env={**env, "XAPI_PASSWORD": "wrong"})
    assert refused.code == 10
    kept = sorted(cluster.source.keys() + cluster.target.keys())
    assert kept == ["failure:refused", "logout"]

    cluster.move_keys(slot)
    cluster.end_to_move(slot)
    again = xapi("token", "show", "--fresh", env={**env, "XAPI_PASSWORD": "wrong"})
    assert "less than a minute ago, so this password is not sent again" in again.err
    assert xapi("login", env=env).code == 0
    assert cluster.target.keys() == ["logout", "record"]


@pytest.mark.parametrize("each", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_processes_of_8_machines_log_in_once_while_the_slot_is_moved(
    xapi: Xapi, service: OneTokenSandbox, cluster: Cluster, each: int
) -> None:
    env: Env = {**service.settings, "XAPI_STORAGE": "redis", "XAPI_REDIS_URL": cluster.url(cluster.source)}
    assert xapi("login", env={**env, **on(xapi, 0)}).code == 0
    slot = cluster.slot()
    other = (slot + 1) % 16384  # a node that has lost its last slot becomes a replica
    cluster.begin_to_move(other)
    cluster.end_to_move(other)
    for number in (2, 3, 4):
        service.revoke_tokens()
        running = [xapi.start(*ME, env={**env, **on(xapi, machine % MACHINES)}) for machine in range(MACHINES * each)]
        for step in (cluster.begin_to_move, cluster.move_keys, cluster.end_to_move):
            _wait_for_reads(cluster, 2 * each, running)
            step(slot)
        outcomes = ended(running)
        assert exit_codes(outcomes) == {0: MACHINES * each}, [one.err for one in outcomes if one.code][:3]
        assert service.login_attempts == number
        cluster = Cluster(cluster.target, cluster.source)


def _wait_for_reads(cluster: Cluster, count: int, running: "list[subprocess.Popen[bytes]]") -> None:
    """Wait until *running* processes have read records *count* times, or have ended."""

    def reads() -> int:
        infos: list[Any] = [server.oracle.info("commandstats") for server in cluster]
        return sum(int(info.get("cmdstat_hget", {}).get("calls", 0)) for info in infos)

    start = reads()
    wait_until(lambda: reads() >= start + count or all(process.poll() is not None for process in running))


def _id(server: RedisServer) -> str:
    return str(server.execute("CLUSTER", "MYID").decode())


def _nodes(server: RedisServer) -> list[list[str]]:
    """Return the ID, the epoch of the configuration and the slots of each node, as *server* knows them."""
    nodes = (line.split() for line in server.execute("CLUSTER", "NODES").decode().splitlines())
    return sorted([node[0], node[6], *node[8:]] for node in nodes)


def _port_of_node() -> int:
    """Return a port of loopback; a node also listens on the port that is greater by 10,000, and Redis 6 on no other."""
    while True:
        port = free_port()
        with suppress(OSError, OverflowError), socket.create_server(("127.0.0.1", port + 10_000)):
            return port


def _refers(server: RedisServer) -> bool:
    """Return whether *server* knows that another node has the slots."""
    import redis

    try:
        server.oracle.get("key")
    except redis.exceptions.ResponseError as error:
        return str(error).startswith(("MOVED", "12539"))
    return False

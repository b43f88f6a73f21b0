"""Processes of several machines that share a Redis server; in these tests, a machine is a state directory."""

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.support.program import Outcome, Xapi
from tests.support.redis_server import RedisServer
from tests.support.servers import Peer
from tests.support.threads import Gate, wait_until
from xapi_cli.features.sandbox import Sandbox

if TYPE_CHECKING:
    import subprocess

Env = dict[str, str | None]
ME = ("request", "/x-api/me")
MACHINES = 8


class OneTokenSandbox(Sandbox):
    """A service where a login revokes the previous token of the user."""

    def log_in(self, username: str, password: str) -> str | None:
        token = super().log_in(username, password)
        if token is not None:
            with self._lock:
                self._tokens = {token: self._tokens[token]}
        return token


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


def on(xapi: Xapi, machine: int) -> Env:
    """Return the environment of a separate machine."""
    state = xapi.home / f"machine{machine}"
    state.mkdir(exist_ok=True)
    return {"XAPI_STATE_DIR": str(state), "XAPI_CONFIG_DIR": str(state / "config")}


def ended(processes: "list[subprocess.Popen[bytes]]") -> list[Outcome]:
    """Wait until the processes have ended and return their outcomes."""
    outcomes = []
    for process in processes:
        out, err = process.communicate(timeout=100)
        outcomes.append(Outcome(process.returncode, out.decode(), err.decode()))
    return outcomes


def fleet(xapi: Xapi, env: Env, *args: str, each: int) -> list[Outcome]:
    """Run the program *each* times on each machine, concurrently."""
    return ended([xapi.start(*args, env={**env, **on(xapi, number % MACHINES)}) for number in range(MACHINES * each)])


def exit_codes(outcomes: list[Outcome]) -> dict[int, int]:
    """Return how many of *outcomes* have each exit code."""
    return dict(Counter(outcome.code for outcome in outcomes))


def wait_for_polls(server: RedisServer, count: int = 20) -> None:
    """Wait until the processes that wait for the lock have asked for it *count* times."""

    def scripts() -> int:
        info: Any = server.oracle.info("commandstats")
        return int(info.get("cmdstat_eval", {}).get("calls", 0))

    start = scripts()
    wait_until(lambda: scripts() >= start + count)


def keys_like(server: RedisServer, pattern: str) -> list[bytes]:
    """Return the keys that match *pattern*, in which `*` is any text."""
    found: Any = server.oracle.keys(pattern)
    return list(found)

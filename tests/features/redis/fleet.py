"""Processes of several machines that share a Redis server; in these tests, a machine is a state directory."""

from collections import Counter
from typing import Any

from tests.support.program import Outcome, Process, Xapi
from tests.support.redis_server import RedisServer
from tests.support.threads import wait_until
from xapi_cli.features.sandbox import Sandbox

Env = dict[str, str | None]
ME = ("request", "/x-api/me")
MACHINES = 4


class OneTokenSandbox(Sandbox):
    """A service where a login revokes the previous token of the user."""

    def log_in(self, username: str, password: str) -> str | None:
        token = super().log_in(username, password)
        if token is not None:
            with self._lock:
                self._tokens = {token: self._tokens[token]}
        return token


def on(xapi: Xapi, machine: int) -> Env:
    """Return the environment of a separate machine."""
    state = xapi.home / f"machine{machine}"
    state.mkdir(exist_ok=True)
    return {"XAPI_STATE_DIR": str(state), "XAPI_CONFIG_DIR": str(state / "config")}


def ended(processes: list[Process]) -> list[Outcome]:
    """Wait until the processes have ended and return their outcomes."""
    outcomes = []
    for process in processes:
        out, err = process.communicate()
        outcomes.append(Outcome(process.returncode, out.decode(), err.decode()))
    return outcomes


def fleet(xapi: Xapi, env: Env, *args: str, each: int) -> list[Outcome]:
    """Run the program *each* times on each of several machines, concurrently."""
    return ended([xapi.start(*args, env={**env, **on(xapi, number % MACHINES)}) for number in range(MACHINES * each)])


def exit_codes(outcomes: list[Outcome]) -> dict[int, int]:
    """Return how many of *outcomes* have each exit code."""
    return dict(Counter(outcome.code for outcome in outcomes))


def wait_until_waiting(server: RedisServer, processes: int) -> None:
    """Wait until *processes* processes have failed to get the lock, which is the only key that they set."""
    waiting: set[str] = set()
    clients: Any = server.oracle.client_list

    def all_wait() -> bool:
        waiting.update(client["id"] for client in clients() if client["cmd"] == "set")
        return len(waiting) >= processes

    wait_until(all_wait)

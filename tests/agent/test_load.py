"""The agent under load: many calls at once, and many calls in a row."""

import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.agent.api_server import PASSWORD, USERNAME, ApiServer
from tests.agent.conftest import all_stopped
from tests.agent.running import RunningAgent, running_agent
from tests.support.program import REAL, Outcome, Xapi
from tests.support.threads import wait_until
from xapi_cli.agent.call import READY_TIMEOUT

CONCURRENT = 4  # callers in a row
WARM_UP = 24  # calls until the processes have their usual size
GROWTH = 2048  # KiB


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def agent() -> Iterator[RunningAgent]:
    with running_agent() as running:
        yield running


@pytest.fixture
def environ(xapi: Xapi, api: ApiServer, agent: RunningAgent) -> dict[str, str]:
    """The environment of a caller that is logged in and uses the agent."""
    login = xapi("login", "--base-url", api.url, "-u", USERNAME, env={"XAPI_PASSWORD": PASSWORD})
    assert login.code == 0, login
    api.requests.clear()
    return xapi.environment(agent.environ)


def call(environ: dict[str, str], *args: str) -> Outcome:
    ended = subprocess.run(
        [*REAL, *args], env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=100, check=False, text=True
    )
    return Outcome(ended.returncode, ended.stdout, ended.stderr)


def test_a_call_waits_for_a_worker_for_less_than_half_a_second() -> None:
    assert READY_TIMEOUT < 0.5  # a measured time would depend on the load of the machine


@pytest.mark.parametrize("at_once", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_many_calls_at_once_all_succeed(
    environ: dict[str, str], api: ApiServer, agent: RunningAgent, at_once: int
) -> None:
    """Those that find no worker in time run without the agent, and no call is sent twice."""
    command = [*REAL, "request"]
    processes = [
        subprocess.Popen(
            [*command, f"/x-api/me?n={number}"], env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )
        for number in range(at_once)
    ]  # fmt: skip
    try:
        outcomes = [(*process.communicate(timeout=110), process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()

    assert Counter((code, err) for _, err, code in outcomes) == {(0, ""): at_once}
    assert len({out for out, _, _ in outcomes}) == 1
    sent = Counter(request.partition(b" HTTP/1.1")[0] for request in api.requests)
    assert sent == {f"GET /x-api/me?n={number}".encode(): 1 for number in range(at_once)}
    agent.wait_for_worker()
    status = agent.status()
    assert status["warm"] > 0
    assert status["cold"].keys() <= {"no worker in time", "no request in time"}
    counted = status["warm"] + sum(status["cold"].values())
    assert counted <= at_once  # the queue of the agent may be full; such a call is not counted


def test_a_call_to_an_agent_that_does_not_respond_succeeds(environ: dict[str, str], agent: RunningAgent) -> None:
    with all_stopped(*agent.processes()):
        outcome = call(environ, "request", "/x-api/me")

    assert (outcome.code, outcome.err) == (0, "")
    wait_until(lambda: agent.status()["cold"] == {"no worker in time": 1}, "a worker has read why it was not used")


@pytest.mark.parametrize(
    "calls",
    [
        20,
        pytest.param(160, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
        pytest.param(20_000, marks=[pytest.mark.soak, pytest.mark.timeout(7200)]),
    ],
)
def test_calls_in_a_row_do_not_make_the_agent_grow(calls: int, environ: dict[str, str], agent: RunningAgent) -> None:
    login = call({**environ, "XAPI_PASSWORD": PASSWORD}, "login", "--storage", "agent", "--no-remember")
    assert login.code == 0, login
    _call_in_a_row(environ, WARM_UP)
    before = agent.processes()
    served = agent.served()

    _call_in_a_row(environ, calls)

    after = agent.processes()
    status = agent.status()
    lasting = {status["pid"]: "master"} | {pid: name for name, pid in status["services"].items()}  # not the workers
    assert lasting.keys() == before.keys() & after.keys()
    print(f"{calls} calls: {status['warm']} run by the agent, others: {status['cold']}")  # noqa: T201 - for `make soak`
    for pid, name in lasting.items():
        print(f"{name}: {before[pid]} before, {after[pid]} after")  # noqa: T201 - as above
    assert [
        (pid, before[pid], after[pid])
        for pid in lasting
        if after[pid].kibibytes > before[pid].kibibytes + GROWTH or after[pid].descriptors > before[pid].descriptors + 2
    ] == []
    assert len(after) <= len(lasting) + CONCURRENT  # no process is left
    assert agent.served() > served  # those that found no worker in time ran without the agent


def _call_in_a_row(environ: dict[str, str], calls: int) -> None:
    me = ("request", "/x-api/me")
    commands = [me, ("token", "show"), ("request", "/status/404"), ("--version",), (*me, "--storage", "agent")]
    with ThreadPoolExecutor(CONCURRENT) as callers:
        codes = callers.map(lambda number: call(environ, *commands[number % len(commands)]).code, range(calls))
        assert [code for number, code in enumerate(codes) if code != (4 if number % len(commands) == 2 else 0)] == []

"""An agent that is starting or ending: other commands wait for it, and none reports an agent that is about to end."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from tests.agent.conftest import Agent, children, is_running
from tests.agent.keeper_programs import without_password
from tests.support.program import PYTHON, Environ, Outcome
from tests.support.threads import wait_until
from xapi_cli.agent import control, listener, protocol
from xapi_cli.errors import XapiError
from xapi_cli.sandbox import Sandbox

if TYPE_CHECKING:
    import subprocess

# The program, but the first argument is run in place of Python for the agent.
_STARTS_ANOTHER_AGENT = """
import sys
from xapi_cli.__main__ import main
sys.executable = sys.argv.pop(1)
main()
"""
# The agent, but it waits until a file exists: before it loads its modules, before a warm-up request or during one, or
# when it ends.
_HELD = """#!{python} -P
import os, sys, time
from xapi_cli.__main__ import main
from xapi_cli.agent import daemon, listener, preload

def held(function):
    def wait(*args, **variables):
        open({directory!r} + "/held", "w").close()
        while not os.path.exists({directory!r} + "/continue"):
            time.sleep(0.01)
        return function(*args, **variables)
    return wait

if {step!r} == "load":
    preload.load = held(preload.load)
elif {step!r} == "warm-up":
    preload._run = held(preload._run)
elif {step!r} == "response":
    preload._respond = held(preload._respond)
else:
    listener.Listeners.remove = held(listener.Listeners.remove)
if "--foreground" in sys.argv:
    main()
if "xapi_cli" in sys.argv:  # `python -P -m xapi_cli agent start` of a login, which starts the agent in the same way
    sys.executable, sys.argv[:] = sys.argv[0], ["xapi", *sys.argv[4:]]
    main()
daemon.run_in_background(sys.argv[4:])
"""
_at_once = pytest.mark.parametrize("count", [2, pytest.param(12, marks=pytest.mark.slow)])


class Held:
    """An agent that waits at a step until `go_on`; *process* is `xapi agent start`, which starts it or is the agent."""

    def __init__(self, agent: Agent, directory: Path, step: str, *, foreground: bool = False) -> None:
        script = _held(directory, step)
        self._agent, self._directory = agent, directory
        if foreground:
            self.process = agent.xapi.start("agent", "start", "--foreground", argv=(str(script),))
        else:
            starts = (str(PYTHON), "-Pc", _STARTS_ANOTHER_AGENT)
            self.process = agent.xapi.start(str(script), "agent", "start", argv=starts)

    def wait(self) -> int:
        """Wait until the agent is at the step; return its process id."""
        wait_until((self._directory / "held").exists, "the agent waits", timeout=60)
        holder = listener.holder(self._agent.directory)
        assert holder is not None
        assert holder.process is not None
        self._agent.pid = holder.process
        return holder.process

    def go_on(self) -> None:
        """Let the agent continue."""
        (self._directory / "continue").touch()

    def end(self) -> Outcome:
        """Return the outcome of the command that started it."""
        return _ended(self.process)


def _held(directory: Path, step: str) -> Path:
    """Return the program of an agent that waits at *step* until a file exists in the new *directory*."""
    directory.mkdir()
    script = directory / "python"
    script.write_text(_HELD.format(python=PYTHON, directory=str(directory), step=step))
    script.chmod(0o700)
    return script


@pytest.fixture
def hold(stopped: Agent, tmp_path: Path) -> Iterator[Callable[[str], Held]]:
    """Start an agent that waits at a step."""
    held: list[Held] = []

    def start(step: str) -> Held:
        held.append(Held(stopped, tmp_path / f"held{len(held)}", step))
        return held[-1]

    yield start
    for each in held:
        each.go_on()


@pytest.fixture
def env(sandbox: Sandbox) -> Environ:
    return {**sandbox.settings, "XAPI_STORAGE": "agent"}


def _ended(process: "subprocess.Popen[bytes]") -> Outcome:
    out, err = process.communicate(timeout=100)
    return Outcome(process.returncode, out.decode(), err.decode())


def _state(agent: Agent) -> str:
    state: str = json.loads(agent.xapi("agent", "status").out)["state"]
    return state


def _agents(directory: Path) -> list[int]:
    """Return the processes of agents with the *directory* of sockets, without their children."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if os.fsencode(directory) in words and int(process.name):
                found.append(int(process.name))
    return [pid for pid in found if not any(pid in children(other) for other in found)]


# many at once


@_at_once
def test_parallel_first_logins_start_one_agent_and_all_succeed(stopped: Agent, env: Environ, count: int) -> None:
    running = [stopped.xapi.start("login", env=env) for _ in range(count)]
    outcomes = [_ended(process) for process in running]

    assert [each for each in outcomes if each.code != 0] == []
    stopped.attach()
    assert _agents(stopped.directory) == [stopped.pid]
    assert stopped.report()["tokens"] == 1


@_at_once
def test_parallel_starts_start_one_agent_and_all_succeed(stopped: Agent, count: int) -> None:
    running = [stopped.xapi.start("agent", "start") for _ in range(count)]
    outcomes = [_ended(process) for process in running]

    stopped.attach()
    started = f"xapi: agent started (process {stopped.pid})\n"
    found = f"xapi: the agent is already running (process {stopped.pid})\n"
    assert sorted(each.err for each in outcomes) == [started] + [found] * (count - 1)
    assert {each.code for each in outcomes} == {0}
    assert _agents(stopped.directory) == [stopped.pid]


@pytest.mark.slow
def test_parallel_starts_and_stops_all_succeed(stopped: Agent) -> None:
    commands = ["start", "start", "start", "stop"] * 2
    outcomes = [_ended(process) for process in [stopped.xapi.start("agent", command) for command in commands]]

    assert [each for each in outcomes if each.code != 0] == []
    assert stopped.xapi("agent", "start").code == 0
    stopped.attach()
    wait_until(lambda: _agents(stopped.directory) == [stopped.pid], "one agent runs")


@pytest.mark.slow
def test_a_stop_followed_by_a_login_or_a_start(stopped: Agent, env: Environ) -> None:
    for _ in range(3):
        assert stopped.xapi("login", env=env).code == 0
        assert stopped.xapi("agent", "stop").err.startswith("xapi: agent stopped")
        assert stopped.xapi("agent", "start").err.startswith("xapi: agent started")
        assert stopped.xapi("agent", "stop").code == 0
    assert stopped.xapi("login", env=env).code == 0
    assert stopped.xapi("token", "show", "--no-login", env=without_password(env)).code == 0
    stopped.attach()


# starting


def test_others_wait_for_an_agent_whose_start_was_killed(
    stopped: Agent, hold: Callable[[str], Held], env: Environ
) -> None:
    first = hold("load")
    pid = first.wait()
    first.process.kill()
    first.end()
    assert not (stopped.directory / "control").exists()

    status = stopped.xapi("agent", "status")
    assert (status.code, json.loads(status.out)) == (1, {"running": False, "state": "starting"})
    assert status.err == "xapi: error: the agent is starting; run `xapi agent start` to wait until one is ready\n"
    second, login = stopped.xapi.start("agent", "start"), stopped.xapi.start("login", env=env)
    first.go_on()

    assert _ended(second) == Outcome(0, "", f"xapi: the agent is already running (process {pid})\n")
    assert _ended(login).code == 0
    stopped.attach()
    assert (stopped.pid, stopped.report()["tokens"]) == (pid, 1)


def test_others_start_an_agent_in_place_of_one_that_was_killed_while_it_started(
    stopped: Agent, hold: Callable[[str], Held]
) -> None:
    first = hold("load")
    pid = first.wait()
    second = stopped.xapi.start("agent", "start")
    os.kill(pid, signal.SIGKILL)

    hint = "run `xapi agent start --foreground` to see why"
    assert first.end() == Outcome(1, "", f"xapi: error: the agent failed to start; {hint}\n")
    assert _ended(second).code == 0
    stopped.attach()
    assert stopped.pid != pid


def test_a_stop_ends_an_agent_that_is_starting(stopped: Agent, hold: Callable[[str], Held]) -> None:
    first = hold("load")
    pid = first.wait()
    stop = stopped.xapi.start("agent", "stop")
    first.go_on()

    assert first.end() == Outcome(0, "", f"xapi: agent started (process {pid})\n")
    assert _ended(stop) == Outcome(0, "", f"xapi: agent stopped (process {pid})\n")
    wait_until(lambda: not is_running(pid), "the agent has ended")
    assert _state(stopped) == "stopped"


def test_a_start_in_the_foreground_waits_for_one_that_is_starting(stopped: Agent, hold: Callable[[str], Held]) -> None:
    first = hold("load")
    first.wait()
    foreground = stopped.xapi.start("agent", "start", "--foreground")
    first.go_on()

    assert first.end().code == 0
    outcome = _ended(foreground)
    assert (outcome.code, "the agent is already running" in outcome.err) == (1, True)


def test_a_signal_that_ends_a_starting_agent_is_not_reported_as_a_success(
    stopped: Agent, hold: Callable[[str], Held]
) -> None:
    first = hold("warm-up")
    os.kill(first.wait(), signal.SIGTERM)

    assert "the agent failed to start" in first.end().err
    assert _state(stopped) == "stopped"
    assert {path.name for path in stopped.directory.iterdir()} == {"lock"}


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGTERM, signal.SIGHUP))]
)
def test_a_signal_during_a_warm_up_request_ends_an_agent_in_the_foreground(
    stopped: Agent, tmp_path: Path, number: signal.Signals
) -> None:
    first = Held(stopped, tmp_path / "held", "response", foreground=True)
    os.kill(first.wait(), number)
    first.go_on()

    assert first.end() == Outcome(128 + number, "", "")
    assert {path.name for path in stopped.directory.iterdir()} == {"lock"}


def test_a_signal_during_a_warm_up_request_is_not_reported_as_a_success(
    stopped: Agent, hold: Callable[[str], Held]
) -> None:
    first = hold("response")
    os.kill(first.wait(), signal.SIGTERM)
    first.go_on()

    assert "the agent failed to start" in first.end().err
    assert _state(stopped) == "stopped"


def test_ctrl_c_in_a_terminal_while_a_login_starts_the_agent(stopped: Agent, env: Environ, tmp_path: Path) -> None:
    held = tmp_path / "held"
    login_there = ("-Pc", _STARTS_ANOTHER_AGENT, str(_held(held, "load")), "login")
    try:
        with stopped.xapi.on_terminal(*login_there, program=PYTHON, env=env) as terminal:
            wait_until((held / "held").exists, "the agent is starting")
            terminal.type("\x03")
            assert terminal.wait() in {130, -signal.SIGINT}
    finally:
        (held / "continue").touch()

    login = stopped.xapi("login", env=env)
    assert login.code == 0, login
    assert "already running" in stopped.xapi("agent", "start").err
    stopped.attach()
    assert stopped.report()["tokens"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("kills_agent", [False, True], ids=["the command", "the agent"])
def test_kill_at_any_moment_of_a_start_leaves_a_usable_agent_or_none(
    stopped: Agent, env: Environ, kills_agent: bool
) -> None:
    for step in range(8):
        start = stopped.xapi.start("agent", "start")
        time.sleep(step * 0.2)  # the moment of the kill is what varies
        holder = listener.holder(stopped.directory)
        if not kills_agent:
            start.kill()
        elif holder is not None and holder.process is not None:
            os.kill(holder.process, signal.SIGKILL)
        start.communicate(timeout=100)

        login = stopped.xapi("login", env=env)
        assert login.code == 0, (step, login)
        assert stopped.xapi("token", "show", "--no-login", env=without_password(env)).code == 0
        stopped.attach()
        assert {path.name for path in stopped.directory.iterdir() if path.is_dir()} <= _warm_ups(stopped)
        assert stopped.xapi("agent", "stop").code == 0


def _warm_ups(agent: Agent) -> set[str]:
    """Return the names that directories of warm-up requests of the processes of *agent* have."""
    return {f".warm-up.{pid:016x}.new" for pid in (agent.pid, *children(agent.pid))}


def test_an_agent_that_does_not_serve_this_process_is_an_error_after_the_deadline(runtime: Path) -> None:
    """As in a container with the directory of the sockets: workers close the connections of other namespaces."""
    environ = {"XDG_RUNTIME_DIR": str(runtime)}
    listeners = listener.Listeners(runtime / "xapi", ["control"])
    listeners.publish()
    control_socket = listeners.sockets["control"]
    control_socket.setblocking(True)

    def respond() -> None:
        connection, _ = control_socket.accept()
        with connection:
            protocol.receive(connection)
            protocol.send(connection, b"A", b"{}")

    thread = Thread(target=respond)
    thread.start()
    with control_socket, pytest.raises(XapiError, match="the running agent does not serve this process"):
        control.find_current(environ, time.monotonic() - 1)
    thread.join()


# ending


@pytest.mark.slow
def test_others_wait_for_an_agent_that_is_ending(stopped: Agent, hold: Callable[[str], Held], env: Environ) -> None:
    first = hold("end")
    assert first.end().code == 0
    stopped.attach()
    os.kill(stopped.pid, signal.SIGTERM)
    pid = first.wait()
    (stopped.directory / "control").unlink()  # as the first step of its end

    assert _state(stopped) == "ending"
    start, login = stopped.xapi.start("agent", "start"), stopped.xapi.start("login", env=env)
    first.go_on()
    assert _ended(start).code == 0
    assert _ended(login).code == 0
    stopped.attach()
    assert (stopped.pid != pid, stopped.report()["tokens"]) == (True, 1)


# the directory of warm-up requests


def test_no_directory_of_warm_up_requests_outlives_a_killed_agent(stopped: Agent) -> None:
    stopped.start()
    assert [path for path in stopped.directory.iterdir() if path.is_dir()] == []

    processes = [stopped.pid, *children(stopped.pid)]
    os.kill(stopped.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, processes)), "all processes have ended")
    assert [path for path in stopped.directory.iterdir() if path.is_dir()] == []


def test_the_directory_of_an_agent_that_is_killed_during_a_warm_up_request_is_removed(
    stopped: Agent, hold: Callable[[str], Held]
) -> None:
    first = hold("warm-up")
    pid = first.wait()
    assert (stopped.directory / f".warm-up.{pid:016x}.new").is_dir()
    os.kill(pid, signal.SIGKILL)

    assert first.end().code == 1
    assert {path.name for path in stopped.directory.iterdir()} == {"lock"}


def test_the_directory_of_a_worker_that_is_killed_is_removed(agent: Agent) -> None:
    worker = agent.workers()[0]
    left = agent.directory / f".warm-up.{worker:016x}.new" / "xapi"
    left.mkdir(parents=True)
    os.kill(worker, signal.SIGKILL)

    wait_until(lambda: not left.parent.exists(), "the directory has been removed")

"""What the master does if processes cannot be started, fail, or end at an unfavorable moment."""

import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest

import xapi_cli
from tests.agent.conftest import PATIENT, Agent, is_running
from tests.support.program import PYTHON, REAL
from tests.support.servers import OK, Server, request, send, wait_for
from tests.support.threads import wait_until

TOKEN = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": "http://127.0.0.1:9"}
SHOW = ("token", "show")
ME = ("request", "/x-api/me")

# Runs the agent with replaced functions; reports on stdout that it is ready.
_RUN = """
import errno, os, sys, time
from pathlib import Path
from xapi_cli.agent import daemon, master, preload, services
flags = Path(sys.argv[2])

{replace}

def warn(text):
    print(text, file=sys.stderr, flush=True)

daemon.run(sys.argv[1], 3600.0, ready=lambda: print("ready", flush=True), warn=warn)
"""
_FORK_FAILS = """
fork = os.fork
def fail():
    if (flags / "no-fork").exists():
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
    return fork()
os.fork = fail
"""
_SLOW_WAIT = """
wait, main = os.waitpid, os.getpid()
def slow(*args):
    if os.getpid() == main and (flags / "hold").exists():
        (flags / "held").touch()
        while (flags / "hold").exists():
            time.sleep(0.01)
    return wait(*args)
os.waitpid = slow
"""
_WARM_UP_FAILS = """
warm_up, main = preload.warm_up, os.getpid()
def fail(directory):
    if os.getpid() != main and (flags / "no-warm-up").exists():
        with (flags / "attempts").open("a") as file:
            file.write("x")
        raise RuntimeError("no warm-up")
    warm_up(directory)
preload.warm_up = fail
"""


class Replaced:
    """An agent in the foreground with replaced functions, which look at the files in *flags*."""

    def __init__(self, agent: Agent, flags: Path, replace: str) -> None:
        self.agent, self.flags = agent, flags
        self.process = subprocess.Popen(
            [PYTHON, "-Pc", _RUN.replace("{replace}", replace), agent.directory, flags],
            env=agent.xapi.environment({}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        agent.pid = self.process.pid

    def await_ready(self) -> None:
        """Wait until it is ready."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"
        self.agent.attach()

    def stop(self) -> bytes:
        """Stop it and return what it wrote to stderr."""
        assert self.agent.xapi("agent", "stop").code == 0
        out, err = self.process.communicate(timeout=30)
        assert (self.process.returncode, out) == (0, b"")
        return err


def test_a_start_of_a_process_that_fails_is_tried_again(stopped: Agent, tmp_path: Path) -> None:
    agent = Replaced(stopped, tmp_path, _FORK_FAILS)
    agent.await_ready()
    may_respond = threading.Event()
    with Server([request(), wait_for(may_respond), send(OK)]) as server:
        (tmp_path / "no-fork").touch()
        call = stopped.xapi.start(*ME, env={"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": server.url}, argv=PATIENT)
        wait_until(lambda: bool(server.received and server.received[-1]), "the request has arrived")
        os.kill(stopped.services["relay"], signal.SIGKILL)
        wait_until(lambda: "relay" not in str(stopped.status()["services"]), "the relay has ended")
        wait_until(lambda: "no process for" in str(stopped.status()["last_failure"]), "a fork has failed")
        may_respond.set()

        assert call.communicate(timeout=30)[0] == b"ok"
        assert call.returncode == 0
    (tmp_path / "no-fork").unlink()
    wait_until(lambda: stopped.status()["services"].keys() == {"keeper", "relay"}, "the relay runs again")
    assert b"a process of the agent failed: no process for the" in agent.stop()


def test_a_start_fails_if_no_process_can_be_started(stopped: Agent, tmp_path: Path) -> None:
    (tmp_path / "no-fork").touch()
    agent = Replaced(stopped, tmp_path, _FORK_FAILS)
    _, err = agent.process.communicate(timeout=30)

    assert agent.process.returncode == 1
    assert b"the agent failed to start: no process for the" in err
    assert not (stopped.directory / "agent").exists()


def test_a_worker_that_is_killed_as_soon_as_it_has_reported_its_command(stopped: Agent, tmp_path: Path) -> None:
    agent = Replaced(stopped, tmp_path, _SLOW_WAIT)
    agent.await_ready()
    wait_until(lambda: len(stopped.workers()) == 2, "two workers run")
    spare = stopped.workers()[0]
    (tmp_path / "hold").touch()
    os.kill(spare, signal.SIGKILL)
    wait_until((tmp_path / "held").exists, "the agent is about to look for processes that ended")
    may_respond = threading.Event()
    with Server([request(), wait_for(may_respond)]) as server:
        call = stopped.xapi.start(*ME, env={"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": server.url}, argv=PATIENT)
        wait_until(lambda: bool(server.received and server.received[-1]), "the request has arrived")
        (worker,) = (pid for pid in stopped.workers() if pid != spare)
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: not is_running(worker), "the worker has ended")
        (tmp_path / "hold").unlink()

        assert call.wait(30) == -signal.SIGKILL
        may_respond.set()
    assert stopped.status()["running_commands"] == 0
    agent.stop()


def test_workers_that_fail_are_started_again_after_growing_delays(stopped: Agent, tmp_path: Path) -> None:
    agent = Replaced(stopped, tmp_path, _WARM_UP_FAILS)
    agent.await_ready()
    (tmp_path / "no-warm-up").touch()
    for worker in stopped.workers():
        os.kill(worker, signal.SIGKILL)
    attempts = tmp_path / "attempts"
    wait_until(lambda: attempts.exists() and attempts.stat().st_size >= 4, "workers have failed")

    assert stopped.status()["last_failure"] == "worker: RuntimeError: no warm-up"
    assert stopped.status()["failures"] == pytest.approx(attempts.stat().st_size + 2, abs=2)
    call = stopped.xapi.start(*SHOW, env=TOKEN, argv=REAL)  # a forked program would wait longer for a worker
    assert (call.communicate(timeout=30)[0], call.returncode) == (b"t0ken\n", 0)
    assert b"a process of the agent failed: worker: RuntimeError: no warm-up\n" in agent.stop()


def test_a_start_fails_if_the_first_worker_fails(stopped: Agent, tmp_path: Path) -> None:
    (tmp_path / "no-warm-up").touch()
    agent = Replaced(stopped, tmp_path, _WARM_UP_FAILS)
    out, err = agent.process.communicate(timeout=30)

    assert (agent.process.returncode, out) == (1, b"")
    assert b"the agent failed to start: worker: RuntimeError: no warm-up" in err


def test_a_start_ends_when_the_services_run(stopped: Agent) -> None:
    stopped.start()

    assert stopped.services.keys() == {"keeper", "relay"}


def test_an_upgrade_while_the_modules_are_loaded_is_noticed(stopped: Agent, tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "xapi_cli"
    shutil.copytree(Path(xapi_cli.__file__).parent, package)
    code = (
        "import os, sys; from xapi_cli.agent import daemon, preload; load = preload.load\n"
        "def touch(directory): load(directory); os.utime(sys.argv[2], ns=(1, 1))\n"
        "preload.load = touch; daemon.run(sys.argv[1], 60.0, ready=lambda: None, warn=print)"
    )
    environ = stopped.xapi.environment({"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"})
    ended = subprocess.run(
        [PYTHON, "-Pc", code, stopped.directory, package],
        env=environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert ended.returncode == 1
    assert "xapi was upgraded while the agent started" in ended.stderr


def test_ctrl_c_in_the_terminal_of_the_agent_does_not_interrupt_commands(stopped: Agent) -> None:
    may_respond = threading.Event()
    with Server([request(), wait_for(may_respond), send(OK)]) as server:
        terminal = stopped.xapi.start("agent", "start", "--foreground", argv=REAL)  # its own session
        stopped.pid = terminal.pid
        wait_until(lambda: stopped.status().get("services", {}).keys() == {"keeper", "relay"}, "the services run")
        call = subprocess.Popen(
            [*PATIENT, *ME],
            env=stopped.xapi.environment({"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": server.url}),
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        wait_until(lambda: bool(server.received and server.received[-1]), "the request has arrived")
        assert stopped.status()["warm"] == 1
        os.killpg(os.getpgid(terminal.pid), signal.SIGINT)
        wait_until(lambda: not (stopped.directory / "agent").exists(), "the agent stops")
        may_respond.set()

        assert call.communicate(timeout=30)[0] == b"ok"
        assert call.returncode == 0
    assert terminal.communicate(timeout=30) == (b"", b"")

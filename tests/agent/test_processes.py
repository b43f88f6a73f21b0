"""What happens when a client, a worker or the agent is killed, and what a worker adopts from its client."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import xapi_cli
from tests.agent.conftest import PATIENT, Agent, is_running
from tests.support.ownership import OTHER_USER
from tests.support.program import PYTHON
from tests.support.servers import OK, Server, request, send, wait_for
from tests.support.threads import wait_until

TOKEN = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": "http://127.0.0.1:9"}
SHOW = ("token", "show")
ME = ("request", "/x-api/me")
# The program, but the client gets SIGTERM as soon as it has sent its request and *file* exists.
_SIGNALED_AT_ONCE = """#!{python}
import os, signal, sys, time
from xapi_cli.__main__ import main
from xapi_cli.agent import call, protocol

def send_request(*arguments, send_request=protocol.send_request):
    send_request(*arguments)
    while not os.path.exists({file!r}):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)

protocol.send_request, call.READY_TIMEOUT, call.WORKER_TIMEOUT = send_request, 60, 60
sys.exit(main())
"""
# The program, but Ctrl-Z stops the client before it sends its request.
_STOPPED_AT_ONCE = """
import os, signal
from xapi_cli.__main__ import main
from xapi_cli.agent import call, protocol

def send_request(*arguments, send_request=protocol.send_request):
    os.kill(os.getpid(), signal.SIGTSTP)
    send_request(*arguments)

protocol.send_request, call.READY_TIMEOUT = send_request, 60
main()
"""
# The program, but the client sends one byte more when its command has begun. If the kernel reported the arrival of the
# request late, this would look the same to a worker that waits for events of the connection.
_SENDS_MORE = """
import contextlib, select
from xapi_cli.__main__ import main
from xapi_cli.agent import call, protocol

def send_request(connection, *arguments, send_request=protocol.send_request):
    send_request(connection, *arguments)
    select.select([connection], [], [])
    with contextlib.suppress(OSError):  # the command may have ended already
        connection.send(b"?")

protocol.send_request, call.READY_TIMEOUT = send_request, 60
main()
"""
# The agent in the foreground; a worker gets SIGTERM as soon as its command has ended.
_SIGNALED_AT_END = """
import os, signal, sys
from xapi_cli.agent import daemon, worker

def do_not_end_with(lifeline, do_not_end_with=worker._do_not_end_with):
    do_not_end_with(lifeline)
    os.kill(os.getpid(), signal.SIGTERM)

worker._do_not_end_with = do_not_end_with
daemon.run(sys.argv[1], 3600.0, ready=lambda: print("ready", flush=True), warn=lambda _: None)
"""
_AS_OTHER_USER = f"--regid={OTHER_USER} --clear-groups --reuid={OTHER_USER}"


class Blocked:
    """A command, the worker that runs it, and a server that received its request but does not respond yet."""

    def __init__(self, agent: Agent, server: Server, may_respond: threading.Event, argv: tuple[str, ...]) -> None:
        self.server = server
        self.may_respond = may_respond
        env = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": server.url}
        self.process = agent.xapi.start(*ME, env=env, argv=argv)
        wait_until(lambda: bool(server.received and server.received[-1]), "the request has arrived")
        self.worker = agent.running_worker()


@contextmanager
def blocked(agent: Agent, argv: tuple[str, ...] = PATIENT) -> Iterator[Blocked]:
    may_respond = threading.Event()
    with Server([request(), wait_for(may_respond), send(OK)]) as server:
        yield Blocked(agent, server, may_respond, argv)
        may_respond.set()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGQUIT, signal.SIGUSR1])
def test_a_worker_ends_when_its_client_is_killed(agent: Agent, number: signal.Signals) -> None:
    with blocked(agent) as call:
        call.process.send_signal(number)

        assert call.process.wait(30) == -number
        wait_until(lambda: not is_running(call.worker), "the worker has ended")
    assert agent.xapi(*SHOW, env=TOKEN).out == "t0ken\n"


def test_a_stopped_worker_ends_when_its_client_is_killed(agent: Agent) -> None:
    with blocked(agent) as call:
        os.kill(call.worker, signal.SIGSTOP)
        call.process.kill()

        wait_until(lambda: not is_running(call.worker), "the worker has ended")


def test_a_signal_to_a_client_that_has_just_sent_its_request_interrupts_the_command(
    agent: Agent, tmp_path: Path
) -> None:
    program, file = tmp_path / "bin" / "xapi", tmp_path / "file"
    program.parent.mkdir()
    program.write_text(_SIGNALED_AT_ONCE.format(python=PYTHON, file=str(file)))
    program.chmod(0o700)
    with blocked(agent, (str(program),)) as call:
        file.touch()

        out, err = call.process.communicate(timeout=30)
        assert (call.process.returncode, out, err) == (143, b"", b"")
        wait_until(lambda: not is_running(call.worker), "the worker has ended")


def test_what_arrives_on_the_connection_does_not_end_the_worker(agent: Agent) -> None:
    with blocked(agent, (str(PYTHON), "-Pc", _SENDS_MORE)) as call:
        call.may_respond.set()
        out, err = call.process.communicate(timeout=30)

        assert (call.process.returncode, out, err) == (0, b"ok", b"")


def test_a_client_that_is_stopped_before_it_sends_its_request_runs_the_command_itself(agent: Agent) -> None:
    with subprocess.Popen(
        [PYTHON, "-Pc", _STOPPED_AT_ONCE, *SHOW], env=agent.xapi.environment(TOKEN), process_group=0,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as client:  # fmt: skip
        try:
            wait_until(lambda: agent.status()["cold"] == {"no request in time": 1}, "the worker has given up")
        finally:
            client.send_signal(signal.SIGCONT)

        assert (*client.communicate(timeout=30), client.returncode) == (b"t0ken\n", b"", 0)


def test_a_signal_after_the_end_of_a_command_does_not_change_its_exit_code(stopped: Agent) -> None:
    with subprocess.Popen(
        [PYTHON, "-Pc", _SIGNALED_AT_END, stopped.directory], env=stopped.xapi.environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        stopped.pid = process.pid
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        outcome = stopped.xapi(*SHOW, env=TOKEN)
        warm = stopped.status()["warm"]
        stopped.xapi("agent", "stop")

    assert (outcome.code, outcome.out, outcome.err, warm) == (0, "t0ken\n", "", 1)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_client_ends_as_its_worker_was_killed(agent: Agent, number: signal.Signals) -> None:
    with blocked(agent) as call:
        os.kill(call.worker, number)

        out, err = call.process.communicate(timeout=30)
        assert (call.process.returncode, out, err) == (-number, b"", b"")
        assert len(call.server.received) == 1


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str)
def test_a_signal_to_the_client_interrupts_the_command(agent: Agent, number: signal.Signals, code: int) -> None:
    with blocked(agent) as call:
        call.process.send_signal(number)

        out, err = call.process.communicate(timeout=30)
        assert (call.process.returncode, out, err) == (code, b"", b"")
        wait_until(lambda: not is_running(call.worker), "the worker has ended")


def test_a_running_command_survives_the_agent(own_agent: Agent) -> None:
    with blocked(own_agent) as call:
        rest = [pid for pid in own_agent.workers() if pid != call.worker]
        os.kill(own_agent.pid, signal.SIGKILL)
        wait_until(lambda: not any(map(is_running, rest)), "idle workers, keeper and relay have ended")

        call.may_respond.set()
        out, _ = call.process.communicate(timeout=30)
        assert (call.process.returncode, out) == (0, b"ok")


def test_a_client_whose_worker_and_agent_were_killed_fails(own_agent: Agent) -> None:
    with blocked(own_agent) as call:
        for pid in (own_agent.pid, call.worker):
            os.kill(pid, signal.SIGKILL)

        out, err = call.process.communicate(timeout=30)
        assert (call.process.returncode, out) == (1, b"")
        assert err == b"xapi: error: the agent ended before the command completed; the request may have been sent\n"
        assert len(call.server.received) == 1  # it is not sent again


def test_a_stopped_agent_finishes_its_commands(own_agent: Agent) -> None:
    with blocked(own_agent) as call:
        stopping = own_agent.xapi("agent", "stop")
        assert stopping.code == 0
        assert (
            stopping.err
            == f"xapi: stopping the agent (process {own_agent.pid}); 1 command in progress completes first\n"
        )
        assert own_agent.xapi(*SHOW, env=TOKEN).out == "t0ken\n"
        assert is_running(own_agent.pid)

        call.may_respond.set()
        assert call.process.communicate(timeout=30)[0] == b"ok"
    wait_until(lambda: not is_running(own_agent.pid), "the agent has ended")


@pytest.mark.slow  # test_stops kills a stopped agent and starts another
def test_a_killed_agent_is_replaced(own_agent: Agent) -> None:
    os.kill(own_agent.pid, signal.SIGKILL)
    wait_until(lambda: not is_running(own_agent.pid), "the agent has ended")
    assert own_agent.xapi(*SHOW, env=TOKEN).out == "t0ken\n"

    own_agent.start()
    assert own_agent.xapi(*SHOW, env=TOKEN).out == "t0ken\n"
    assert own_agent.status()["warm"] == 1


@pytest.mark.parametrize("is_replaced", [pytest.param(False, marks=pytest.mark.slow), True])
def test_an_agent_whose_sockets_were_removed_ends(own_agent: Agent, is_replaced: bool) -> None:
    """Like the end of a login session: nothing could reach it, nor the tokens that it holds."""
    old = own_agent.pid
    shutil.rmtree(own_agent.directory)
    if is_replaced:
        own_agent.start()
    with suppress(ProcessLookupError):  # it may have noticed already, and ended
        os.kill(old, signal.SIGCHLD)  # wakes it

    wait_until(lambda: not is_running(old), "the agent has ended")
    if is_replaced:
        assert own_agent.xapi(*SHOW, env=TOKEN).out == "t0ken\n"
        assert own_agent.status()["warm"] == 1


def test_killed_workers_and_services_are_replaced(agent: Agent) -> None:
    before = agent.workers()
    for pid in before:
        os.kill(pid, signal.SIGKILL)

    wait_until(
        lambda: len(agent.workers()) == len(before) and not set(before) & set(agent.workers()), "they were replaced"
    )
    assert agent.xapi(*SHOW, env=TOKEN).out == "t0ken\n"


def test_nothing_of_the_agent_can_be_read_by_other_processes(agent: Agent) -> None:
    with blocked(agent) as call:
        for pid in (agent.pid, *agent.workers(), call.process.pid):
            # the files of a process that is not dumpable belong to root, and only root can read its environment
            limits = Path(f"/proc/{pid}/limits").read_text()
            assert "Max core file size        0 " in limits
        owners = {os.stat(f"/proc/{pid}/environ").st_uid for pid in (agent.pid, call.worker, call.process.pid)}
        assert owners == {0}


@pytest.mark.parametrize(
    "env",
    [{"XAPI_TOKEN": "t0ken"}, {"XAPI_PASSWORD": "p"}, {"https_proxy": "http://user:secret@proxy.test:3128"}],
    ids=lambda env: next(iter(env)),
)
def test_a_client_whose_environment_has_secrets_leaves_no_core_dump(agent: Agent, env: dict[str, str]) -> None:
    """The limit is the part of `own_process` that a process with all privileges can see."""
    arguments = ("-H", "Authorization: none") if "XAPI_TOKEN" not in env else ()
    may_respond = threading.Event()
    with Server([request(), wait_for(may_respond), send(OK)]) as server:
        client = agent.xapi.start(
            *ME, *arguments, env={"XAPI_BASE_URL": server.url, **env}, argv=("prlimit", "--core=1000", *PATIENT)
        )
        wait_until(lambda: bool(server.received and server.received[-1]), "the request has arrived")
        limits = Path(f"/proc/{client.pid}/limits")
        wait_until(lambda: "Max core file size        0 " in limits.read_text(), "the client has changed its limit")
        may_respond.set()
        assert client.wait(30) == 0
    assert agent.status()["warm"] == 1


# upgrade


class _Upgraded:
    """A copy of the package in *directory* that can be upgraded, in place of the program of *agent*."""

    def __init__(self, agent: Agent, directory: Path) -> None:
        self._package = directory / "site-packages" / "xapi_cli"
        shutil.copytree(Path(xapi_cli.__file__).parent, self._package)
        search = {"PYTHONPATH": str(self._package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        self._environ = agent.xapi.environment({**TOKEN, **search})

    def start(self, *args: str) -> "subprocess.CompletedProcess[str]":
        """Run the program with *args*."""
        command = [sys.executable, "-P", *PATIENT, *args]
        return subprocess.run(command, env=self._environ, capture_output=True, text=True, timeout=60, check=True)

    def run(self, *args: str) -> str:
        """Run the program with *args* and return its output."""
        return self.start(*args).stdout

    def upgrade(self) -> None:
        """Replace the version."""
        init, new = self._package / "__init__.py", self._package / "new"
        new.write_text(init.read_text().replace(f'"{xapi_cli.__version__}"', '"99.0"'))
        new.replace(init)


def test_after_an_upgrade_the_next_command_runs_the_new_code(stopped: Agent, tmp_path: Path) -> None:
    upgraded = _Upgraded(stopped, tmp_path)
    upgraded.run("agent", "start")
    stopped.pid = json.loads(upgraded.run("agent", "status"))["pid"]
    old = upgraded.run("--version")
    assert json.loads(upgraded.run("agent", "status"))["warm"] == 1
    upgraded.upgrade()

    assert (old, upgraded.run("--version")) == (f"xapi {xapi_cli.__version__}\n", "xapi 99.0\n")
    wait_until(lambda: not is_running(stopped.pid), "the old agent has ended")


@pytest.mark.slow
def test_a_start_after_an_upgrade_replaces_the_agent(stopped: Agent, tmp_path: Path) -> None:
    upgraded = _Upgraded(stopped, tmp_path)
    upgraded.run("agent", "start")
    old = stopped.pid = json.loads(upgraded.run("agent", "status"))["pid"]
    upgraded.upgrade()

    note = upgraded.start("agent", "start").stderr
    stopped.pid = json.loads(upgraded.run("agent", "status"))["pid"]
    assert (stopped.pid != old, note) == (True, f"xapi: agent started (process {stopped.pid})\n")
    assert upgraded.run("--version") == "xapi 99.0\n"
    assert json.loads(upgraded.run("agent", "status"))["warm"] == 1
    wait_until(lambda: not is_running(old), "the old agent has ended")


def test_another_installation_does_not_use_or_replace_the_agent(agent: Agent) -> None:
    def run(*args: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [PYTHON, "-O", *PATIENT, *args],
            env=agent.xapi.environment(TOKEN), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    assert run("token", "show").stdout == "t0ken\n"
    cold = {"another installation or mode of Python": 1}
    wait_until(lambda: agent.status()["cold"] == cold, "a worker has read why it was not used")
    assert agent.status()["warm"] == 0
    start = run("agent", "start")
    error = "xapi: error: the running agent belongs to another installation of xapi"
    hint = "run `xapi agent stop`, which erases its tokens, then `xapi agent start`"
    assert (start.returncode, start.stderr) == (1, f"{error}; {hint}\n")
    assert agent.status()["pid"] == agent.pid

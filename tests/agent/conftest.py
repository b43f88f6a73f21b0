"""A running agent, a relay or a keeper in directories of one test."""

import json
import os
import signal
import socket
import ssl
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.agent import relays
from tests.agent.relays import Relay
from tests.agent.runtimes import guarded_directory
from tests.http.clients import tls_of
from tests.support.fork_server import ForkServer
from tests.support.keeper_process import KeeperProcess
from tests.support.program import PROGRAM, Xapi
from tests.support.threads import wait_until
from tests.support.user_namespace import as_root
from xapi_cli.agent import control, protocol
from xapi_cli.errors import AgentError
from xapi_cli.sandbox import Sandbox
from xapi_cli.store.agent.client import KeeperClient

PATIENT = (str(Path(__file__).with_name("patient") / "xapi"),)  # a real start that waits for a worker
_GREETING_TIMEOUT = 60  # seconds


def is_running(pid: int) -> bool:
    """Return whether the process *pid* exists and is not a zombie."""
    return process_state(pid) not in {"Z", "X"}


@contextmanager
def all_stopped(*processes: int) -> Iterator[None]:
    """Stop *processes* for a `with` block, except workers that are just ending."""
    for pid in filter(is_running, processes):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    for pid in processes:
        wait_until(lambda pid=pid: process_state(pid) in "TZX", "it is stopped")  # type: ignore[misc]  # see B023
    try:
        yield
    finally:
        for pid in processes:
            with suppress(ProcessLookupError):  # the agent replaces workers that are stopped
                os.kill(pid, signal.SIGCONT)


def process_state(pid: int) -> str:
    """Return the state of the process *pid* as in proc(5), X if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def handles_signal(pid: int, number: int) -> bool:
    """Return whether the process *pid* has a handler for the signal *number*; False if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    mask = int(status.partition("SigCgt:\t")[2].partition("\n")[0], 16)
    return bool(mask >> (number - 1) & 1)


def children(pid: int) -> list[int]:
    """Return the children of the process *pid* that are not zombies."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [child for child in map(int, listed) if is_running(child)]


def wait_for_workers(directory: Path, count: int = 1) -> set[int]:
    """Wait until *count* workers of the agent in *directory* are ready for a command; return their process ids.

    Each has greeted a client, which left without a request, so that the worker waits for the next one.
    """
    ready: set[int] = set()
    while len(ready) < count:  # a worker may serve two clients if the first one takes long
        with ExitStack() as clients:
            ready = {_greeted(clients.enter_context(socket.socket(socket.AF_UNIX)), directory) for _ in range(count)}
    return ready


def _greeted(client: socket.socket, directory: Path) -> int:
    """Connect *client* and return the process id of the worker that has greeted it."""
    client.settimeout(_GREETING_TIMEOUT)
    client.connect(str(directory / "agent"))
    kind, content = protocol.receive(client)
    assert kind == b"R"
    return int(content.split()[0])


def use_patiently(xapi: Xapi, runtime: str) -> None:
    """Let *xapi* use the agent in the runtime directory; commands that a shell starts wait for a worker too."""
    xapi.environ["XDG_RUNTIME_DIR"] = runtime
    xapi.environ["PATH"] = os.pathsep.join([os.path.dirname(PATIENT[0]), xapi.environ["PATH"]])


class Agent:
    """The agent that the commands of *xapi* use."""

    def __init__(self, xapi: Xapi, runtime: Path) -> None:
        self.xapi = xapi
        self.directory = runtime / "xapi"
        self._before: dict[str, Any] = {}  # its status when it began to count
        use_patiently(xapi, str(runtime))

    def start(self, *options: str, argv: tuple[str, ...] = ()) -> None:
        """Start the agent, with the program *argv* if it is given, and wait until it can run commands at once."""
        process = self.xapi.start("agent", "start", *options, argv=argv)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, b""), err
        self.attach()
        self.wait_for_workers(2)

    def attach(self) -> None:
        """Take an agent that is running as this one."""
        status = self.status()
        self.pid: int = status["pid"]
        self.services: dict[str, int] = status["services"]

    def count_from_now(self) -> None:
        """Let the status count only later commands."""
        self._before = self.status()

    def status(self) -> dict[str, Any]:
        """Return the status of its master, empty if none runs; raises AgentError if it does not respond.

        No command runs for it, because tests that wait for a change call this repeatedly.
        """
        found = control.status(self.xapi.environ) or {}
        if self._before and found:
            found["warm"] -= self._before["warm"]
            found["cold"] = dict(Counter(found["cold"]) - Counter(self._before["cold"]))
        return found

    def report(self) -> dict[str, Any]:
        """Return what `xapi agent status` reports, which includes the tokens and connections of the services."""
        report: dict[str, Any] = json.loads(self.xapi("agent", "status", "--json").out)
        return report

    def wait_for_workers(self, count: int = 1) -> set[int]:
        """Wait until *count* workers, at most 2, are ready: otherwise a command may run without the agent."""
        return wait_for_workers(self.directory, count)

    def workers(self) -> list[int]:
        """Return the process ids of its workers."""
        return [each for each in children(self.pid) if each not in self.services.values()]

    def running_worker(self) -> int:
        """Return the process id of the worker that runs the only command, which has begun.

        Unlike an idle worker, it handles the signals that terminate a command; a worker that was just created may still
        have the handlers of the agent.
        """
        found: list[int] = []

        def is_unique() -> bool:
            found[:] = [pid for pid in self.workers() if handles_signal(pid, signal.SIGTERM)]
            return len(found) == 1

        wait_until(is_unique, "one worker runs a command")
        return found[0]

    def end(self) -> None:
        """Kill the agent and its workers."""
        pid = getattr(self, "pid", 0)
        for each in (pid, *children(pid)) if pid else ():
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        wait_until(lambda: not pid or not is_running(pid), "the agent has ended")


@pytest.fixture(scope="session")
def runtimes() -> Iterator[Path]:
    """The directory of all runtime directories of these tests, which ends with them."""
    with guarded_directory() as directory:
        directory.chmod(0o711)  # a test may let other users enter its own
        yield directory


@pytest.fixture
def runtime(runtimes: Path) -> Path:
    """A private directory with a short path."""
    return Path(tempfile.mkdtemp(dir=runtimes))


@pytest.fixture
def stopped(xapi: Xapi, runtime: Path) -> Iterator[Agent]:
    """An agent that the test starts."""
    found = Agent(xapi, runtime)
    yield found
    xapi.end()
    found.end()


@pytest.fixture
def own_agent(stopped: Agent) -> Agent:
    """A running agent of the test's own, which it may end."""
    stopped.start()
    return stopped


class _Shared:
    """The agent that tests share, and those that it replaced."""

    def __init__(self, home: Path, runtimes: Path, forks: ForkServer | None) -> None:
        self._home, self._runtimes, self._forks = home, runtimes, forks
        self._agents: list[Agent] = []

    def runtime(self) -> Path:
        """Return the runtime directory of an agent whose processes are running, and none of its commands."""
        if not self._agents or not self._is_usable(self._agents[-1]):
            number = len(self._agents)
            agent = Agent(Xapi(self._home / str(number), self._forks), Path(tempfile.mkdtemp(dir=self._runtimes)))
            self._agents.append(agent)
            agent.start()
        return self._agents[-1].directory.parent

    @staticmethod
    def _is_usable(agent: Agent) -> bool:
        if not all(map(is_running, [agent.pid, *agent.services.values()])):
            return False
        with suppress(AssertionError, AgentError):  # the commands of the last test may just be ending
            wait_until(lambda: agent.status().get("running_commands") == 0, "no command is running", timeout=5)
            return agent.status().get("services") == agent.services
        return False

    def end(self) -> None:
        """Kill all."""
        for agent in self._agents:
            agent.xapi.end()
            agent.end()


@pytest.fixture(scope="session")
def _shared_agent(
    runtimes: Path, tmp_path_factory: pytest.TempPathFactory, forks: ForkServer | None
) -> Iterator[_Shared]:
    found = _Shared(tmp_path_factory.mktemp("shared-agents"), runtimes, forks)
    yield found
    found.end()


@pytest.fixture
def agent(xapi: Xapi, _shared_agent: _Shared) -> Agent:
    """A running agent for all tests that leave its processes running, except workers; it counts from their start."""
    found = Agent(xapi, _shared_agent.runtime())
    found.attach()
    found.count_from_now()
    found.wait_for_workers(2)
    return found


@pytest.fixture(scope="session")
def root() -> Iterator[tuple[str, ...]]:
    """The arguments to put before a command that needs root privileges."""
    with as_root() as arguments:
        yield arguments


@pytest.fixture
def open_agent(stopped: Agent, root: tuple[str, ...]) -> Agent:
    """A running agent whose memory and descriptors the test can read; *root* comes before commands that can use it."""
    stopped.start(argv=(*root, str(PROGRAM)))
    return stopped


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    """The relay without the rest of the agent."""
    with relays.running(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def bundle(ca: trustme.CA, tmp_path: Path) -> Path:
    """The file with the certificate of the CA."""
    path = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(path)
    return path


@pytest.fixture(scope="module")
def server_tls(ca: trustme.CA) -> ssl.SSLContext:
    return tls_of(ca.issue_cert("localhost", "127.0.0.1"))


@pytest.fixture
def process(tmp_path: Path) -> Iterator[KeeperProcess]:
    """The keeper without the rest of the agent."""
    with KeeperProcess(tmp_path / "run") as started:
        yield started


@pytest.fixture
def client(process: KeeperProcess) -> KeeperClient:
    """A client of that keeper."""
    return KeeperClient(process.environ, timeout=20)


@pytest.fixture
def env(keeper: KeeperProcess, sandbox: Sandbox) -> dict[str, str | None]:
    """The environment with storage `agent`, in the keeper `keeper`, and an account of the sandbox."""
    return {**sandbox.settings, **keeper.environ}

"""What a worker adopts from its client, and what it cannot adopt; one agent serves all tests."""

import shutil
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.conftest import use_patiently, wait_for_workers
from tests.agent.running import RunningAgent, running_agent
from tests.support.ownership import OTHER_USER, needs_root
from tests.support.program import PYTHON, Xapi
from tests.support.servers import OK, Server, request, send
from tests.support.skips import IMPOSSIBLE

TOKEN = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": "http://127.0.0.1:9"}
_AS_OTHER_USER = f"--regid={OTHER_USER} --clear-groups --reuid={OTHER_USER}"


class Shell:
    """Runs lines of shell, in which `xapi` is the program, with *agent*; counts what the agent does from now on.

    *before* comes before the shell.
    """

    def __init__(self, xapi: Xapi, agent: RunningAgent, before: tuple[str, ...] = ()) -> None:
        self.home = xapi.home
        self._before_shell = before
        self._xapi, self._agent = xapi, agent
        use_patiently(xapi, agent.environ["XDG_RUNTIME_DIR"])
        self._before = agent.status()

    def __call__(self, *shell: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[bytes]":
        environ = self._xapi.environment({**TOKEN, **(env or {})})
        command = [*self._before_shell, "bash", "-c", "\n".join(shell)]
        return subprocess.run(command, env=environ, capture_output=True, timeout=60, check=False, cwd=self.home)

    @property
    def counts(self) -> tuple[int, dict[str, int]]:
        """How many commands were warm, and how many were cold, by reason."""
        wait_for_workers(Path(self._agent.environ["XDG_RUNTIME_DIR"]) / "xapi", 2)  # they have read why it was cold
        status = self._agent.status()
        cold = Counter(status["cold"])
        cold.subtract(self._before["cold"])
        return status["warm"] - self._before["warm"], dict(+cold)


@pytest.fixture(scope="module")
def shared_agent() -> Iterator[RunningAgent]:
    with running_agent() as agent:
        yield agent


@pytest.fixture
def shell(xapi: Xapi, shared_agent: RunningAgent) -> Shell:
    return Shell(xapi, shared_agent)


@pytest.fixture(scope="module")
def agent_of_root(root: tuple[str, ...]) -> Iterator[RunningAgent]:
    with running_agent(before=root) as agent:
        yield agent


@pytest.fixture
def shell_of_root(xapi: Xapi, agent_of_root: RunningAgent, root: tuple[str, ...]) -> Shell:
    return Shell(xapi, agent_of_root, root)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server([request(), send(OK)]) as listening:
        yield listening


def test_the_umask_is_that_of_the_client(shell: Shell, server: Server) -> None:
    for umask in ("000", "027", "077"):
        path = shell.home / umask
        shell(f"umask {umask}", f"xapi request / --base-url $URL -o {path}", env={"URL": server.url})
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~int(umask, 8)
    assert shell.counts == (3, {})


@pytest.mark.parametrize(
    "line, reason",
    [
        ("PYTHONWARNINGS=ignore xapi token show", "another installation or mode of Python"),
        ("LD_BIND_NOW=1 xapi token show", "different environment variables"),
        ("XAPI_CA_BUNDLE=/dev/fd/9 xapi token show", "argument under /dev/fd or /proc"),
        ("ulimit -n 100; xapi token show", "resource limit (open files)"),
        ("ulimit -v 4000000; xapi token show", "resource limit (memory)"),
        ("ulimit -s 4096; xapi token show", "resource limit (memory)"),
        ("chrt -b 0 xapi token show", "different scheduling policy"),
        ("xapi exec -- printenv XAPI_TOKEN", "exec"),
        ("setpriv --no-new-privs xapi token show", "different privileges (NoNewPrivs)"),
        ("xapi -- token show", "command after --"),
        ("xapi -- exec -- printenv XAPI_TOKEN", "command after --"),
        pytest.param(
            f"setpriv --regid={OTHER_USER} --keep-groups xapi token show",
            "different privileges (Gid)",
            marks=needs_root,
        ),
        pytest.param(
            f"export XAPI_CONFIG_DIR=/none XAPI_STATE_DIR=/none; setpriv {_AS_OTHER_USER} xapi token show",
            None,
            marks=needs_root,
        ),
    ],
    ids=lambda each: str(each)[:30],
)
def test_what_a_worker_cannot_adopt_runs_without_the_agent(shell: Shell, line: str, reason: str | None) -> None:
    if _AS_OTHER_USER in line and not _other_user_can_run_python():
        pytest.skip(f"{IMPOSSIBLE}another user cannot run this Python")

    outcome = shell(line)

    assert (outcome.stdout, outcome.returncode) == (b"t0ken\n", 0), outcome.stderr
    assert shell.counts == (0, {reason: 1} if reason else {})


def test_a_client_in_another_namespace_or_with_fewer_capabilities_runs_without_the_agent(shell_of_root: Shell) -> None:
    cold = {"different privileges (CapPrm)": 1}
    assert _printed_only_the_token(shell_of_root("setpriv --bounding-set=-sys_time xapi token show"))
    assert shell_of_root.counts == (0, cold)

    for count, namespace in enumerate(("--uts", "--mount", "--net", "--pid --fork --mount-proc"), start=1):
        assert _printed_only_the_token(shell_of_root(f"unshare {namespace} xapi token show"))
        assert shell_of_root.counts == (0, {**cold, "different namespace or root directory": count})
    assert _printed_only_the_token(shell_of_root("xapi token show"))
    assert shell_of_root.counts[0] == 1


def _printed_only_the_token(outcome: subprocess.CompletedProcess[bytes]) -> bool:
    return (outcome.stdout, outcome.stderr, outcome.returncode) == (b"t0ken\n", b"", 0)


@pytest.mark.parametrize(
    "line",
    [
        "ulimit -n 1000; xapi token show",
        "ulimit -f 100; xapi token show",
        "ulimit -c unlimited; xapi token show",
        "nice -n 5 xapi token show",
        "taskset -c 0 xapi token show",
        "trap '' HUP INT TERM; xapi token show",
        "TZ=Asia/Tokyo xapi token show",
        "LC_ALL=POSIX LANGUAGE=de xapi token show",
        "nohup xapi token show",
        "xapi token show 3>/dev/null",
        "(xapi token show)",
        "xapi token show | cat",
        "xapi token show </dev/null 2>&1",
        "cd /; xapi token show",
        "mkdir gone; cd gone; rmdir ../gone; xapi token show",
    ],
    ids=lambda each: str(each)[:30],
)
def test_what_a_worker_adopts(shell: Shell, line: str) -> None:
    outcome = shell(line)

    assert (outcome.stdout, outcome.returncode) == (b"t0ken\n", 0), outcome.stderr
    assert shell.counts == (1, {})


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_behaves_as_without_the_agent(shell: Shell, closed: str) -> None:
    warm = shell(f"xapi token show {closed}")
    cold = shell(f"XAPI_AGENT=off xapi token show {closed}")

    assert shell.counts == (0, {"closed standard stream": 1})
    assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)


def test_a_closed_stream_whose_number_a_library_has_taken_behaves_as_without_the_agent(shell: Shell) -> None:
    code = "import os, sys; os.open(os.devnull, os.O_RDWR); sys.argv[1:] = ['token', 'show']"
    code += "; from xapi_cli.__main__ import main; main()"
    outcome = shell(f'{PYTHON} -c "{code}" >&-')

    assert shell.counts == (0, {"closed standard stream": 1})
    assert outcome.returncode == 14
    assert outcome.stderr == b"xapi: error: stdout is closed; redirect it to a file or to /dev/null\n"


def test_limits_apply_to_the_command(shell: Shell, server: Server) -> None:
    outcome = shell("ulimit -f 0; xapi request / --base-url $URL -o file", env={"URL": server.url})
    cold = shell("ulimit -f 0; XAPI_AGENT=off xapi request / --base-url $URL -o file", env={"URL": server.url})

    assert (outcome.returncode, outcome.stderr) == (cold.returncode, cold.stderr)
    assert outcome.returncode == 14


def test_the_streams_are_closed_when_the_client_ends(shell: Shell) -> None:
    outcome = shell("exec 5< <(xapi token show); cat <&5; echo end")

    assert outcome.stdout == b"t0ken\nend\n"


def test_a_process_that_is_traced_runs_without_the_agent(shell: Shell) -> None:
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    outcome = shell("strace -qq -o /dev/null xapi token show")

    assert outcome.stdout == b"t0ken\n"
    assert shell.counts == (0, {"traced (strace, debugger)": 1})


def _other_user_can_run_python() -> bool:
    """Return whether the directories of the interpreter allow another user to run it.

    `env` starts it, because setpriv may still have the capabilities of root when it starts a program.
    """
    command = ["setpriv", *_AS_OTHER_USER.split(), "env", sys.executable, "-c", "import xapi_cli"]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0

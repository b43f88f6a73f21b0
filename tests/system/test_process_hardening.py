"""xapi writes no core dump, which would contain secrets; COMMAND of `exec` may, if the user allows it."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.program import PROGRAM, PYTHON, Outcome, Xapi
from tests.support.servers import Server, hang, request
from tests.support.skips import IMPOSSIBLE
from tests.support.threads import Gate
from xapi_cli.sandbox import MASTER, Sandbox

ALLOWED = 4096 * 1024  # bytes, as `ulimit -c` counts them in blocks


@pytest.fixture(autouse=True)
def allowed() -> None:
    """Core dumps are allowed up to the hard limit of the test process."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard != resource.RLIM_INFINITY and hard < ALLOWED:
        pytest.skip(f"{IMPOSSIBLE}its hard limit allows no cores")


DUMPABLE = "import ctypes; print(ctypes.CDLL(None).prctl(3))"  # PR_GET_DUMPABLE
linux = pytest.mark.skipif(sys.platform != "linux", reason=f"{IMPOSSIBLE}prctl() is Linux's")

# A shell in which cores are allowed becomes the program.
ALLOWING = ("bash", "-c", f'ulimit -S -c {ALLOWED // 1024}; exec "$@"', "bash", str(PROGRAM))


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGABRT, signal.SIGSEGV])
def test_a_process_killed_by_a_core_dumping_signal_leaves_no_core_dump(xapi: Xapi, number: signal.Signals) -> None:
    gate = Gate()
    with Server([request(), gate.reached, hang()]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "canary"}
        process = xapi.start("request", "/x", env=env, argv=ALLOWING)
        gate.wait()
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        process.send_signal(number)
        process.wait(30)

    (line,) = (line for line in limits.splitlines() if line.startswith("Max core file size"))
    assert line.split()[4] == "0"
    assert process.returncode == -number
    assert [path for path in xapi.home.iterdir() if path.name.startswith("core")] == []


def test_the_command_of_exec_has_the_core_limit_of_the_user(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = _run(xapi, "exec", "--", "bash", "-c", "ulimit -S -c", env=sandbox.settings)

    assert outcome == Outcome(0, f"{ALLOWED // 1024}\n", outcome.err)


def test_the_password_command_leaves_no_core_dump(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi.config.mkdir()
    (xapi.home / "password").write_text(MASTER.password)
    command = "ulimit -S -c >limit; cat password"
    (xapi.config / "config.toml").write_text(f"[profiles.default]\npassword_command = ['bash', '-c', '{command}']\n")
    outcome = _run(xapi, "token", "show", env={**sandbox.settings, "XAPI_PASSWORD": ""})

    assert outcome.code == 0
    assert (xapi.home / "limit").read_text() == "0\n"


@pytest.fixture
def held(xapi: Xapi) -> Iterator["subprocess.Popen[bytes]"]:
    """The program, in the middle of a request, with the password in its environment."""
    gate = Gate()
    with Server([request(), gate.reached, hang()]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "canary", "XAPI_PASSWORD": "canary"}
        process = xapi.start("request", "/x", env=env, argv=ALLOWING)
        gate.wait()
        yield process


@linux
def test_no_core_is_dumped_to_a_pipe_handler(xapi: Xapi, held: "subprocess.Popen[bytes]") -> None:
    """The limit does not apply if core dumps are piped to a program; raising it from outside is equivalent."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.prlimit(held.pid, resource.RLIMIT_CORE, (hard, hard))
    held.send_signal(signal.SIGQUIT)
    _, status = os.waitpid(held.pid, 0)

    assert os.WTERMSIG(status) == signal.SIGQUIT
    assert not os.WCOREDUMP(status)
    assert [path for path in xapi.home.iterdir() if path.name.startswith("core")] == []


@linux
@pytest.mark.skipif(os.geteuid() == 0, reason=f"{IMPOSSIBLE}root can read the environment of every process")
def test_another_process_of_the_user_cannot_read_its_environment(held: "subprocess.Popen[bytes]") -> None:
    with pytest.raises(PermissionError):
        Path(f"/proc/{held.pid}/environ").read_bytes()


@linux
def test_neither_the_command_of_exec_nor_the_password_command_is_affected(xapi: Xapi, sandbox: Sandbox) -> None:
    asking = xapi.home / "asking.py"
    asking.write_text(f"{DUMPABLE}\nprint({MASTER.password!r})")

    outcome = xapi("exec", "--", str(PYTHON), "-c", DUMPABLE, env=sandbox.settings)
    login = xapi(
        *("login", "--base-url", sandbox.base_url, "-u", MASTER.email),
        *("--password-command", f"sh -c '{PYTHON} asking.py >answer; tail -n 1 answer'"),
    )

    assert (outcome.code, outcome.out) == (0, "1\n")
    assert login.code == 0
    assert (xapi.home / "answer").read_text().startswith("1\n")


@linux
def test_a_program_that_uses_the_library_is_not_affected(xapi: Xapi, sandbox: Sandbox) -> None:
    code = f"import xapi_cli; xapi_cli.open_client().get('/x-api/me'); {DUMPABLE}"
    env = xapi.environment(sandbox.settings)

    assert subprocess.run([PYTHON, "-c", code], env=env, capture_output=True, check=True).stdout == b"1\n"


def _run(xapi: Xapi, *args: str, env: dict[str, str]) -> Outcome:
    process = xapi.start(*args, env=env, argv=ALLOWING)
    out, err = process.communicate(timeout=30)
    return Outcome(process.returncode, out.decode(), err.decode())

"""A forked run of the program is equivalent to a started one."""

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.support.fork_server import KEYRINGS, ForkServer
from tests.support.program import PROGRAM, PYTHON, REAL, Environ, Outcome, Xapi
from tests.support.servers import Server, hang, request
from tests.support.threads import Gate

# The state that a process inherits, as seen by the command that replaces xapi.
STATE = """
import os, resource, sys
fds = {}
for fd in range(64):
    try: fds[fd] = oct(os.fstat(fd).st_mode >> 12)
    except OSError: pass
status = open("/proc/self/status").read().split()
signals = {name: status[status.index(name) + 1] for name in ("SigBlk:", "SigIgn:", "SigCgt:")}
leads = os.getpid() == os.getsid(0) == os.getpgid(0)
try: tty = os.open("/dev/tty", os.O_RDWR)
except OSError: tty = None
print(fds, signals, leads, tty, os.getcwd(), os.umask(0), sys.argv[1:], resource.getrlimit(resource.RLIMIT_CORE))
print(dict(sorted((name, value) for name, value in os.environ.items() if not name.startswith("COVERAGE_"))))
"""
WORDS = ("exec", "--", str(PYTHON), "-c", STATE, "\u00e9", b"\xff", "a\nb", "")


def ended(process: "subprocess.Popen[bytes]", data: bytes | None = None) -> Outcome:
    out, err = process.communicate(data, timeout=30)
    return Outcome(process.returncode, out.decode(), err.decode())


def test_a_forked_process_behaves_like_a_started_one(xapi: Xapi, tmp_path: Path) -> None:
    env = {"XAPI_TOKEN": "abc", "OTHER": "\udcff"}
    forked = ended(xapi.start(*WORDS, env=env, cwd=tmp_path))
    started = ended(xapi.start(*WORDS, env=env, cwd=tmp_path, argv=REAL))

    assert forked == started
    assert (forked.code, forked.err) == (0, "")
    assert f" {tmp_path} " in forked.out


def test_a_fork_on_a_terminal_is_like_a_started_process(xapi: Xapi) -> None:
    seen = []
    for program in (None, PROGRAM):
        with xapi.on_terminal(*WORDS, env={"XAPI_TOKEN": "abc"}, program=program) as terminal:
            assert terminal.wait() == 0
            seen.append(terminal.seen)

    assert seen[0] == seen[1] != b""


@pytest.mark.parametrize("arguments", [("token", "--help"), ("--version",), ("nonsense",), ("profile", "show")])
def test_a_fork_has_the_same_output_and_exit_code(xapi: Xapi, arguments: tuple[str, ...]) -> None:
    assert ended(xapi.start(*arguments)) == ended(xapi.start(*arguments, argv=REAL))


def test_a_fork_has_its_own_stdin(xapi: Xapi) -> None:
    arguments = ("exec", "--", "cat")
    data = os.urandom(1_000_000)
    process = xapi.start(*arguments, stdin=subprocess.PIPE, env={"XAPI_TOKEN": "abc"})

    assert process.communicate(data, timeout=30) == (data, b"")
    assert xapi(*arguments, env={"XAPI_TOKEN": "abc"}) == Outcome(0)


def test_a_fork_can_be_waited_for_and_signalled(xapi: Xapi) -> None:
    gate = Gate()
    with Server([request(), gate.reached, hang()]) as server:
        process = xapi.start("request", "/x", env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "abc"})
        gate.wait()
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == process.poll() == 143
        killed = xapi.start("request", "/x", env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "abc"})
        killed.kill()
        assert killed.wait(30) == -signal.SIGKILL


def test_several_threads_can_start_forks(xapi: Xapi) -> None:
    outcomes: dict[int, Outcome] = {}

    def run(number: int) -> None:
        outcomes[number] = xapi("exec", "--", "sh", "-c", f"exit {number}", env={"XAPI_TOKEN": "abc"})

    threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert {number: outcome.code for number, outcome in outcomes.items()} == {number: number for number in range(16)}


@pytest.mark.parametrize(
    "env, first, can",
    [
        ({"XAPI_TOKEN": "abc", "NO_COLOR": "1"}, "request", True),
        ({"PYTHON_KEYRING_BACKEND": "fake_keyrings.Plain", "PYTHONPATH": KEYRINGS}, "request", True),
        ({"PYTHONPATH": "elsewhere"}, "request", False),
        ({"PYTHONPROFILEIMPORTTIME": "1"}, "request", False),
        ({"LC_ALL": "C"}, "request", False),
        ({"LANG": None}, "request", False),
        ({}, "--show-completion=zsh", False),
    ],
)
def test_runs_that_need_a_real_start_are_not_forked(
    xapi: Xapi, forks: ForkServer, env: Environ, first: str, can: bool
) -> None:
    assert forks.can_fork([first, "/x-api/me"], xapi.environment(env)) is can

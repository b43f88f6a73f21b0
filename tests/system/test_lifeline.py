"""Programs end with the process that runs them, also where the kernel does not kill them, and no other process does."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import xapi_cli
from tests.support.threads import wait_until
from xapi_cli.system import lifeline

_PACKAGE = Path(xapi_cli.__file__).parents[1]
_RUNNER = """
import fcntl, os, sys
from xapi_cli.system import lifeline, programs
if {platform!r} != "linux":
    del fcntl.F_SETSIG
invocation = programs.Invocation(("sh", "-c", {script!r}), os.environ, 100, in_background={in_background})
with lifeline.opened() as source:
    programs.run(invocation._replace(lifeline=source), lambda: print("runs", flush=True) or 90)
"""


def is_running(pid: int) -> bool:
    """Return whether the process *pid* exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(") ")[2][0] not in "ZX"


_SCRIPT = "sleep 90 & echo $$ $! >{fifo}; wait"


@contextmanager
def _killed_runner(directory: Path, *, platform: str, in_background: bool) -> Iterator[list[int]]:
    """Kill a process that runs a program with a child process; return their process IDs."""
    fifo = directory / "fifo"
    os.mkfifo(fifo)
    script = _SCRIPT.format(fifo=fifo)
    code = _RUNNER.format(platform=platform, script=script, in_background=in_background)
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(_PACKAGE)}
    with subprocess.Popen([sys.executable, "-c", code], env=environ, cwd="/", stdout=subprocess.PIPE) as process:
        found = list(map(int, fifo.read_text().split()))
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        process.kill()
    try:
        yield found
    finally:
        for pid in filter(is_running, found):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("platform", ["linux", "other"])
@pytest.mark.parametrize("in_background", [True, False])
def test_a_program_ends_with_the_killed_process_that_runs_it(
    tmp_path: Path, platform: str, in_background: bool
) -> None:
    with _killed_runner(tmp_path, platform=platform, in_background=in_background) as (program, child):
        wait_until(lambda: not is_running(program), "the program has ended")
        if in_background or platform == "other":
            wait_until(lambda: not is_running(child), "its child process has ended")


def test_what_a_program_leaves_running_outlives_the_process_that_ran_it() -> None:
    with lifeline.opened() as source:
        assert source is not None
        process = subprocess.Popen(["sleep", "90"], pass_fds=(source,))
        with lifeline.killed_at_end(source, process.pid):
            pass
    assert process.poll() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL


def test_a_child_of_fork_does_not_keep_the_pipe_open() -> None:
    with lifeline.opened() as source:
        assert source is not None
        child = os.fork()
        if child == 0:
            try:
                os.fstat(source)
            except OSError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0

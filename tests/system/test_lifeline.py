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
from tests.agent.conftest import is_running
from tests.support.threads import wait_until
from xapi_cli.system import boot_time, lifeline

_PACKAGE = Path(xapi_cli.__file__).parents[1]
_RUNNER = """
import fcntl, os, sys
from xapi_cli.system import lifeline, programs
if {platform!r} != "linux":
    del fcntl.F_SETSIG
invocation = programs.Invocation(("sh", "-c", {script!r}), os.environ, 100, in_background={in_background})
lock = os.open({lock!r}, os.O_RDWR | os.O_CREAT, 0o600)
with lifeline.recorded(lock, lambda: 9.0) as source:
    programs.run(invocation._replace(lifeline=source), lambda: print("runs", flush=True) or 90)
"""
_SCRIPT = "sleep 90 & echo $$ $! >{fifo}; wait"


@contextmanager
def _killed_runner(directory: Path, *, platform: str, in_background: bool) -> Iterator[list[int]]:
    """Kill a process that runs a program with a child process; return their process IDs."""
    fifo, lock = directory / "fifo", directory / "lock"
    os.mkfifo(fifo)
    script = _SCRIPT.format(fifo=fifo)
    code = _RUNNER.format(platform=platform, script=script, in_background=in_background, lock=str(lock))
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
        with _recorded(tmp_path):
            assert not is_running(child)
        assert (tmp_path / "lock").read_bytes() == b""


@contextmanager
def _recorded(directory: Path) -> Iterator[int]:
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with lifeline.recorded(lock, lambda: 9.0) as source:
            assert source is not None
            yield source
    finally:
        os.close(lock)


def test_what_a_program_leaves_running_outlives_the_process_that_ran_it(tmp_path: Path) -> None:
    with _recorded(tmp_path) as source:
        process = subprocess.Popen(["sleep", "90"], pass_fds=(source,))
        with lifeline.killed_at_end(source, process.pid):
            pass
    assert process.poll() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL


_RECORDS = ["another-boot {since} {pipe}", "{boot} {later} {pipe}", "{boot} x {pipe}", "garbage"]


@pytest.mark.parametrize("record", _RECORDS)
def test_no_process_is_killed_that_has_not_inherited_the_pipe_from_the_killed_one(tmp_path: Path, record: str) -> None:
    source, sink = os.pipe()
    with subprocess.Popen(["sleep", "90"], pass_fds=(source,)) as process:
        since = boot_time.since_boot() - 60
        values = {"boot": boot_time.boot_id(), "since": since, "later": since + 70, "pipe": os.fstat(source).st_ino}
        os.close(source)
        os.close(sink)
        (tmp_path / "lock").write_text(record.format(**values))
        with _recorded(tmp_path):
            assert process.poll() is None
        process.kill()


def test_a_child_of_fork_does_not_keep_the_pipe_open(tmp_path: Path) -> None:
    with _recorded(tmp_path) as source:
        child = os.fork()
        if child == 0:
            try:
                os.fstat(source)
            except OSError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0

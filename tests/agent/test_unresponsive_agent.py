"""An agent whose processes are stopped before a command needs them: it is replaced, and nothing hangs."""

from pathlib import Path

import pytest

from tests.agent.conftest import Agent, is_running, wait_until
from tests.program import PYTHON

TOKEN = {"XAPI_TOKEN": "t0ken"}
# The program, but the agent must start within two seconds, and the first argument is run in place of Python for it.
_STARTS_ANOTHER_AGENT = """
import sys
from xapi_cli.__main__ import main
from xapi_cli.agent import daemon

daemon.START_TIMEOUT = 2.0
sys.executable = sys.argv.pop(1)
main()
"""
_STOPPED_MASTER = """#!/bin/sh
echo $$ > {name}
kill -STOP $$
"""
_STOPPED_WORKER = """#!{python} -P
import os, signal, sys
from pathlib import Path
from xapi_cli.agent import daemon, preload

def stop(directory, warm_up=preload.warm_up, master=os.getpid()):
    if os.getpid() != master:
        Path({name!r}).write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
    warm_up(directory)

preload.warm_up = stop
daemon.run_in_background(sys.argv[4:])
"""


@pytest.mark.parametrize("program", [_STOPPED_MASTER, _STOPPED_WORKER], ids=["master", "worker"])
def test_an_agent_that_is_stopped_while_it_starts_is_killed(stopped: Agent, tmp_path: Path, program: str) -> None:
    script, name = tmp_path / "python", tmp_path / "process"
    script.write_text(program.format(python=PYTHON, name=str(name)))
    script.chmod(0o700)
    start = stopped.xapi.start(
        *(str(script), "agent", "start"), argv=(str(PYTHON), "-Pc", _STARTS_ANOTHER_AGENT)
    )  # fmt: skip

    assert start.communicate(timeout=60) == (
        b"",
        b"xapi: error: the agent did not start within 2 s; run `xapi agent start --foreground` to see why\n",
    )
    assert start.returncode == 1
    if name.exists():  # on a busy machine, the worker had not been started
        process = int(name.read_text())
        wait_until(lambda: not is_running(process), "the stopped process has ended")
    stopped.start()
    assert stopped.xapi("token", "show", env=TOKEN).out == "t0ken\n"
    assert stopped.status()["warm"] == 1

"""Agents that a killed test run left are ended."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.agent.conftest import is_running
from tests.support.threads import wait_until
from tests.tools.documents import ROOT

_RUN = """
import json, time
from tests.agent.running import running_agent
with running_agent() as agent:
    print(json.dumps([agent.environ["XDG_RUNTIME_DIR"], *agent.processes()]), flush=True)
    time.sleep(60)
"""


def test_the_agents_of_a_killed_process_end() -> None:
    process = subprocess.Popen([sys.executable, "-c", _RUN], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        directory, *agent = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        process.wait(30)

    wait_until(lambda: not any(map(is_running, agent)), "the agent has ended")
    wait_until(lambda: not Path(directory).exists(), "its directory has been removed")

"""The unit files in docs/systemd: systemd accepts them, and the agent starts as they tell systemd to start it."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.agent.api_server import PASSWORD, USERNAME, ApiServer
from tests.agent.conftest import PATIENT
from tests.support.program import PROGRAM, Xapi
from tests.support.threads import wait_until
from tests.tools.documents import ROOT

UNITS = ROOT / "docs" / "systemd"

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")


def setting(unit: str, name: str, specifiers: Mapping[str, str]) -> str:
    """Return the value of *name* in the file *unit*, with the *specifiers* of systemd replaced."""
    found = re.search(rf"^{name}=(.*)$", (UNITS / unit).read_text(), re.MULTILINE)
    assert found is not None
    return re.sub("%.", lambda match: specifiers[match[0]], found[1])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory with the program at the place of the unit file."""
    program = tmp_path / ".local" / "bin" / "xapi"
    program.parent.mkdir(parents=True)
    program.symlink_to(PROGRAM)
    return tmp_path


@needs_systemd
def test_systemd_accepts_the_units(home: Path, runtime: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_RUNTIME_DIR": str(runtime)}
    analyze = ["systemd-analyze", "--user", "--man=no", "--recursive-errors=no", "verify"]

    for unit in sorted(UNITS.iterdir()):
        verified = subprocess.run(
            [*analyze, unit], env=environ, capture_output=True, text=True, timeout=30, check=False
        )
        assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", ""), unit.name


@needs_systemd
def test_the_first_call_starts_the_agent_and_later_ones_use_it(xapi: Xapi, home: Path, runtime: Path) -> None:
    specifiers = {"%h": str(home), "%t": str(runtime)}
    socket = Path(setting("xapi-agent.socket", "ListenStream", specifiers))
    socket.parent.mkdir(mode=0o700)
    command = setting("xapi-agent.service", "ExecStart", specifiers).split()
    environ = {"XDG_RUNTIME_DIR": str(runtime)}
    variables = [f"--setenv={name}={value}" for name, value in xapi.environment(environ).items()]
    manager = xapi.start("-l", str(socket), *variables, *command, argv=("systemd-socket-activate",))
    wait_until(socket.exists, "the socket exists")
    with ApiServer() as server:
        login = xapi("login", "--base-url", server.url, "-u", USERNAME, env={"XAPI_PASSWORD": PASSWORD})
        assert login.code == 0, login

        for count in (1, 2):  # the first one starts the agent
            assert call(xapi, environ) == 0
            assert served(xapi, environ) == count

    manager.send_signal(signal.SIGTERM)  # as `systemctl stop`; the manager has become the agent
    assert manager.wait(20) == 0
    assert socket.exists()  # it belongs to systemd


def served(xapi: Xapi, environ: Mapping[str, str]) -> int:
    """Return how many calls the agent has served."""
    status = xapi("agent", "status", "--json", env=environ)
    return int(json.loads(status.out).get("commands", 0))


def call(xapi: Xapi, environ: Mapping[str, str]) -> int:
    process = xapi.start("request", "/x-api/me", env=environ, argv=PATIENT)
    out, _ = process.communicate(timeout=60)
    assert b'"id": 7' in out
    return process.returncode

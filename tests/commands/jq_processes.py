"""The processes of --jq."""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.threads import wait_until

if TYPE_CHECKING:
    import subprocess

ENDLESS = "def f: f; f"


def without_library(directory: Path) -> dict[str, str]:
    """Return the environment in which libjq is not installed; *directory* is on sys.path."""
    (directory / "sitecustomize.py").write_text("import sys; sys.modules['jq'] = None\n")
    return {"PYTHONPATH": str(directory)}


def children(pid: int) -> set[int]:
    """Return the child processes of *pid*."""
    found = set[int]()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found.update(map(int, task.read_text().split()))
    return found


def wait_for_busy_children(process: "subprocess.Popen[bytes]") -> list[int]:
    """Return the children of *process* that have used more CPU time than it takes to start, once there are any."""
    while not (busy := [child for child in children(process.pid) if _cpu_seconds(child) > 0.3]):
        assert process.poll() is None
        time.sleep(0.02)
    return busy


def wait_until_ended(pid: int, seconds: float = 10) -> None:
    """Wait until the process *pid* has ended; a zombie that nobody waits for has."""
    wait_until(lambda: _state(pid) in ("", "Z"), f"the end of process {pid}", seconds)


def _cpu_seconds(pid: int) -> float:
    fields = _fields(pid)
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def _state(pid: int) -> str:
    fields = _fields(pid)
    return fields[0] if fields else ""


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name; none if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []

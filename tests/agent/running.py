"""An agent that runs during a test."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from tests.agent.conftest import wait_for_workers
from tests.agent.runtimes import guarded_directory
from tests.support.program import PROGRAM, clean_environ
from xapi_cli.agent import control


class Usage(NamedTuple):
    """What a process uses."""

    kibibytes: int  # of resident memory
    descriptors: int  # open ones; the size of their table, if the process hides them


class RunningAgent:
    """Run an agent with its sockets in *directory* within a `with` block; *environ* makes calls use it.

    *changes* are made to the environment that it starts in; None removes a variable. *before* comes before the program.
    """

    def __init__(self, directory: Path, changes: Mapping[str, str | None], before: tuple[str, ...] = ()) -> None:
        self._program = (*before, str(PROGRAM))
        self._sockets = directory / "xapi"
        self.environ = {"XDG_RUNTIME_DIR": str(directory)}
        home = directory / "home"
        home.mkdir()
        environ = {**clean_environ(home), **self.environ, **changes}
        self._own_environ = {name: value for name, value in environ.items() if value is not None}

    def __enter__(self) -> Self:
        self._run("start")
        return self

    def __exit__(self, *_: object) -> None:
        self._run("stop")

    def wait_for_worker(self) -> None:
        """Wait until a worker is ready: otherwise the next call may run without the agent."""
        wait_for_workers(self._sockets)

    def status(self) -> dict[str, Any]:
        """Return the status of the master process."""
        status = control.status(self.environ)
        assert status is not None, "the agent has ended"
        return status

    def served(self) -> int:
        """Return how many calls workers have run, or are running."""
        warm: int = self.status()["warm"]
        return warm

    def processes(self) -> dict[int, "Usage"]:
        """Return the resources of the master process and of its children, by process id."""
        master: int = self.status()["pid"]
        children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
        return {pid: usage for pid in [master, *map(int, children)] if (usage := _usage(pid))}

    def _run(self, *args: str) -> None:
        ended = subprocess.run(
            [*self._program, "agent", *args], env=self._own_environ, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended


@contextmanager
def running_agent(
    changes: Mapping[str, str | None] = MappingProxyType({}), before: tuple[str, ...] = ()
) -> Iterator[RunningAgent]:
    """Run an agent that ends with this process, even if it is killed; *changes* and *before* as for RunningAgent."""
    with guarded_directory() as directory, RunningAgent(directory, changes, before) as agent:
        yield agent


def _usage(pid: int) -> Usage | None:
    """Return what the process *pid* uses, None if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        memory = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
        table = re.search(r"^FDSize:\s+(\d+)$", status, re.MULTILINE)
        descriptors = len(os.listdir(f"/proc/{pid}/fd")) if os.geteuid() == 0 else int(table[1]) if table else 0
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Usage(int(memory[1]), descriptors) if memory else None

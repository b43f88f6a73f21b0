"""A keeper as a separate process, at the socket where xapi looks for it, without the rest of the agent."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from tests.support.program import PYTHON

_SERVE = """
import os, sys
from pathlib import Path
from xapi_cli.agent import listener
from xapi_cli.agent.keeper import server as keeper
listeners = listener.Listeners(Path(sys.argv[1]).parent, ["keeper"])
listeners.publish()
os.write(1, b"ready")
os.close(1)
keeper.serve(listeners.sockets["keeper"], 0)
"""


class KeeperProcess:
    """The keeper of the agent of XDG_RUNTIME_DIR *runtime*; *prefix* is a command that runs it."""

    def __init__(self, runtime: Path, *, prefix: tuple[str, ...] = ()) -> None:
        runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = runtime / "xapi" / "keeper"
        self.environ = {"XDG_RUNTIME_DIR": str(runtime), "XAPI_STORAGE": "agent"}
        self._prefix = prefix
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The process ID of the keeper, or of its prefix."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._process = process = subprocess.Popen(
            [*self._prefix, str(PYTHON), "-c", _SERVE, str(self.path)],
            stdin=subprocess.PIPE,  # the lifeline
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.read() == b"ready"

    def cut_lifeline(self) -> int:
        """End it as the death of the agent does; return its exit code."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(30)

    def wait(self) -> int:
        """Wait until it ends; return its exit code."""
        assert self._process is not None
        return self._process.wait(30)

    def kill(self) -> None:
        """Kill it, if it runs."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        with suppress(OSError):
            process.stdin.close()

    def signal(self, number: int) -> None:
        """Send a signal to it."""
        os.killpg(self.pid, number)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[KeeperProcess]:
    """A keeper."""
    with KeeperProcess(tmp_path / "run") as process:
        yield process

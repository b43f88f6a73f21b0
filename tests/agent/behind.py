"""Runs the tests of the program with the agent behind it: `pytest -p tests.agent.behind`, or `make test-agent`.

Each pytest process has an agent, which all its runs of the program use. A run that neither the agent ran nor a worker
refused, with a reason, fails its test. What cannot be equal is listed in `differences`.
"""

import json
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.agent.differences import DIFFERENCES, LEFT_OUT, UNCOUNTED
from tests.support import differences
from tests.support.program import PROGRAM, REAL, Environ, Xapi, clean_environ
from xapi_cli.agent import control

_MIN_WARM = 0.8  # of all runs; the rest has a reason that `adoption` knows
_MAX_DELAY = 3.0  # seconds until all commands are counted
_REPORT = "agent"  # the key in `workeroutput`


class _Behind:
    """The agent of this process, and what it did for each test."""

    def __init__(self, runtime: Path) -> None:
        self.environ = clean_environ(runtime) | {"XDG_RUNTIME_DIR": str(runtime)}
        self.runtime = runtime
        self.counts: Counter[str] = Counter()
        self.starts = 0  # of the program in the current test, with this agent

    def on_start(self, args: Sequence[str | bytes], argv: Sequence[str | bytes], environ: Environ) -> None:
        """Note that the program starts."""
        if tuple(argv) in {(), REAL} and args[:1] != ("agent",) and environ.get("XAPI_AGENT") != "off":
            if environ.get("XDG_RUNTIME_DIR") == str(self.runtime):
                self.starts += 1
            else:
                self.counts["another runtime directory"] += 1

    def start(self) -> None:
        """Start the agent; it ends when it is idle, in case the tests are killed."""
        self._run("start", "--idle", "10m")

    def stop(self) -> None:
        """End the agent and remove its directory."""
        self._run("stop")
        shutil.rmtree(self.runtime, ignore_errors=True)

    def _run(self, *args: str) -> None:
        subprocess.run([PROGRAM, "agent", *args], env=self.environ, check=True, timeout=60, capture_output=True)

    def served(self) -> Counter[str]:
        """Return how many commands the agent ran, as "", and how many it refused, by reason."""
        status = control.status(self.environ)
        assert status is not None, "the agent has ended"
        return Counter({"": status["warm"], **status["cold"]})

    def served_since(self, before: Counter[str]) -> Counter[str]:
        """Return what `served` returns, less *before*, when it counts all starts.

        A worker counts a command that did not wait for one only when it is ready.
        """
        end = time.monotonic() + _MAX_DELAY
        while (served := self.served() - before).total() < self.starts and time.monotonic() < end:
            time.sleep(0.02)
        return served


_behind: _Behind | None = None
_total: Counter[str] = Counter()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Start the agent, unless this process only distributes the tests."""
    global _behind  # noqa: PLW0603 - a plugin is a module
    if getattr(session.config.option, "dist", "no") != "no" and not hasattr(session.config, "workerinput"):
        return
    _behind = _Behind(Path(tempfile.mkdtemp(prefix="xapi-behind-")))
    _behind.start()
    Xapi.runtime = str(_behind.runtime)
    Xapi.on_start = _behind.on_start


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `differences` lists, and expect the listed failures; a test that passes in spite of it fails."""
    differences.apply(config, items, LEFT_OUT, DIFFERENCES)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Fail a test of which a run used no agent, without a reason."""
    assert _behind is not None
    before, _behind.starts = _behind.served(), 0
    yield
    served = _behind.served_since(before)
    silent = _behind.starts - served.total()
    _behind.counts += served
    if silent > 0:
        _behind.counts["silently"] += silent
        if _name(item) not in UNCOUNTED:
            pytest.fail(f"{silent} of {_behind.starts} runs did not use the agent, which has no reason for it")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the agent; fail if it ran too few of the commands."""
    if _behind is not None:
        _behind.stop()
        _total.update(_behind.counts)
    if hasattr(session.config, "workerinput"):
        session.config.workeroutput[_REPORT] = json.dumps(_total)  # type: ignore[attr-defined]  # of pytest-xdist
    elif session.exitstatus == pytest.ExitCode.OK and _total[""] < _MIN_WARM * _total.total():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the counts of another process."""
    _total.update(json.loads(getattr(node, "workeroutput", {}).get(_REPORT, "{}")))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how many commands the agent ran, and the reasons for the others."""
    terminalreporter.section("commands behind the agent")
    terminalreporter.line(f"{_total['']} of {_total.total()} were warm; at least {_MIN_WARM:.0%} must be")
    for reason, count in _total.most_common():
        if reason:
            terminalreporter.line(f"{count:6} cold: {reason}")


def _name(item: pytest.Item) -> str:
    """Return the file and the name of a test, without its parameters."""
    return f"{Path(item.nodeid.partition('::')[0]).relative_to('tests')}::{getattr(item, 'originalname', item.name)}"

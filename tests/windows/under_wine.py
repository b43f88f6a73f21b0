"""Runs the tests of the program for Windows under Wine: `pytest -p tests.windows.under_wine`, or `make test-windows`.

What cannot be equal there is listed in `differences`.
"""

import re
import subprocess

import pytest

from tests.support import differences
from tests.support.program import PYTHON, Outcome, Xapi
from tests.windows.differences import LEFT_OUT

# The drive Z: has the files of the Unix file system.
_PATH = re.compile(r"\bZ:((?:\\[^\s\\:;,'\"`]+)+)")

# xapi never fails without a message. Wine ends a program in this way, rarely, where the system does not permit what
# `wine` does against it.
_ENDED_BY_WINE = Outcome(1)
_REASON = "Wine ended the program"


def _as_on_unix(_: Xapi, outcome: Outcome) -> Outcome:
    assert outcome != _ENDED_BY_WINE, _REASON
    return Outcome(outcome.code, _with_unix_paths(outcome.out), _with_unix_paths(outcome.err))


def _with_unix_paths(text: str) -> str:
    return _PATH.sub(lambda match: match[1].replace("\\", "/"), text)


Xapi.can_fork = False
Xapi.is_imitated = True
Xapi.starts_slowly = True
Xapi.handles_signals = False  # they end Wine
setattr(Xapi, "as_on_unix", _as_on_unix)  # noqa: B010 - mypy rejects an assignment


def pytest_configure(config: pytest.Config) -> None:
    """Keep the server of Wine running until the tests end: it ends programs that start while it stops."""
    if hasattr(config, "workerinput"):
        return
    process = subprocess.Popen(
        [PYTHON, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline(), process.communicate()

    def end() -> None:
        process.communicate(timeout=60)

    config.add_cleanup(end)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `differences` lists; rerun a test once if Wine ended the program."""
    differences.apply(config, items, LEFT_OUT)
    for item in items:
        item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=_REASON), append=False)

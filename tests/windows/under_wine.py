"""Runs the tests of the program for Windows under Wine: `pytest -p tests.windows.under_wine`, or `make test-windows`.

What cannot be equal there is listed in `differences`.
"""

import re
import subprocess

import pytest

from tests.support import differences
from tests.support.program import PYTHON, Xapi
from tests.windows.differences import LEFT_OUT

# The drive Z: has the files of the Unix file system.
_PATH = re.compile(r"\bZ:((?:\\[^\s\\:;,'\"`]+)+)")

Xapi.can_fork = False
Xapi.is_imitated = True
Xapi.handles_signals = False  # they end Wine
setattr(Xapi, "translate", lambda _, text: _PATH.sub(lambda match: match[1].replace("\\", "/"), text))  # noqa: B010 - mypy rejects an assignment


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
    """Leave out what `differences` lists."""
    differences.apply(config, items, LEFT_OUT)

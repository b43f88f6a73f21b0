"""Runs the tests of the program for Windows under Wine: `pytest -p tests.windows.under_wine`, or `make test-windows`.

What cannot be equal there is listed in `differences`.
"""

import re

import pytest

from tests.support import differences
from tests.support.program import Xapi
from tests.windows.differences import LEFT_OUT

# The drive Z: has the files of the Unix file system.
_PATH = re.compile(r"\bZ:((?:\\[^\s\\:;,'\"`]+)+)")

Xapi.can_fork = False
Xapi.is_imitated = True
setattr(Xapi, "translate", lambda _, text: _PATH.sub(lambda match: match[1].replace("\\", "/"), text))  # noqa: B010 - mypy rejects an assignment


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `differences` lists."""
    differences.apply(config, items, LEFT_OUT)

"""Runs the tests of the program as on macOS: `pytest -p tests.macos.imitated`, or `make test-macos`.

The home directory of each test is reached through a symbolic link, as /tmp and /var are there. What cannot be equal is
listed in `differences`.
"""

import sys
from pathlib import Path

import pytest

from tests.macos.differences import LEFT_OUT
from tests.support import differences
from tests.support.program import Xapi

Xapi.can_fork = sys.platform == "linux"
Xapi.is_imitated = True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `differences` lists."""
    differences.apply(config, items, LEFT_OUT)


@pytest.fixture(autouse=True)
def home_behind_a_link(tmp_path: Path) -> None:
    """Make the home directory a symbolic link before the program uses it."""
    (tmp_path / "private").mkdir()
    (tmp_path / "home").symlink_to("private")

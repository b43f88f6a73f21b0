"""Fixtures of the tests of the commands."""

from pathlib import Path

import pytest


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The file of a download, in a directory of its own."""
    (tmp_path / "downloads").mkdir()
    return tmp_path / "downloads" / "out"

"""Fixtures of the tests of the features."""

from pathlib import Path

import pytest


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The file of a download, in its own directory."""
    (tmp_path / "downloads").mkdir()
    return tmp_path / "downloads" / "out"

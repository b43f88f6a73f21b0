"""Fixtures of the tests of the commands."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.commands.jq_engines import without_library


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The file of a download, in a directory of its own."""
    (tmp_path / "downloads").mkdir()
    return tmp_path / "downloads" / "out"


@pytest.fixture(params=["library", "program"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, str]:
    """The environment that selects an engine of --jq; without the library, xapi uses the program."""
    return without_library(tmp_path) if request.param == "program" else {}

"""Fixtures of the tests of accounts."""

from pathlib import Path

import pytest

from tests.auth.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "state")

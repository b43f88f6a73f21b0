"""Files and directories that belong to another user, or that everyone can write."""

import os
import stat
from pathlib import Path

import pytest

OTHER_USER = 12345

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def give_away(path: Path) -> None:
    os.chown(path, OTHER_USER, OTHER_USER, follow_symlinks=False)


def make_unsafe(path: Path, how: str) -> None:
    path = path.parent if how.endswith("above") else path
    if how.startswith("another"):
        give_away(path)
    else:
        path.chmod(path.stat().st_mode | stat.S_IWOTH)

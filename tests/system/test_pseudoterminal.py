"""Programs on a pseudoterminal, for `xapi demo`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xapi_cli.system import pseudoterminal


def _run(code: str, tmp_path: Path, *, timeout: float = 30) -> "subprocess.CompletedProcess[str]":
    return pseudoterminal.run([sys.executable, "-c", code], cwd=tmp_path, env=os.environ, columns=50, timeout=timeout)


def test_both_streams_are_terminals_of_the_width_and_stdin_is_empty(tmp_path: Path) -> None:
    done = _run(
        "import os, sys; print(os.isatty(1), os.isatty(2), os.get_terminal_size(2).columns, repr(sys.stdin.read()));"
        "print('no', file=sys.stderr); sys.exit(3)",
        tmp_path,
    )

    assert (done.returncode, done.stdout, done.stderr) == (3, "True True 50 ''\n", "no\n")


def test_long_output_is_complete(tmp_path: Path) -> None:
    done = _run("import sys; print('x' * 300_000); print('y' * 300_000, file=sys.stderr)", tmp_path)

    assert (len(done.stdout), len(done.stderr)) == (300_001, 300_001)


def test_a_program_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        _run("import os; open('pid', 'w').write(str(os.getpid())); import time; time.sleep(60)", tmp_path, timeout=2)

    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = os.listdir("/dev/fd")
    _run("print(1)", tmp_path)
    with pytest.raises(FileNotFoundError):
        pseudoterminal.run(["/nowhere"], cwd=tmp_path, env={}, columns=50, timeout=30)

    assert os.listdir("/dev/fd") == before

import os
import subprocess
import time
from pathlib import Path

import pytest

from xapi_cli.system.programs import describe_failure, find, run


def shell(script: str, seconds: float = 20, *, data: bytes = b"", in_background: bool = False) -> tuple[bytes, int]:
    end = time.monotonic() + seconds
    command = ("sh", "-c", script)
    return run(
        command, os.environ, lambda: end - time.monotonic(), max_output=100, data=data, in_background=in_background
    )


@pytest.mark.parametrize(
    "script, data, result",
    [
        ("echo out; echo err >&2; exit 3", b"", (b"out\n", 3)),
        ("cat", b"in", (b"in", 0)),
        ("true", b"unread" * 100_000, (b"", 0)),
        ("read line || echo empty", b"", (b"empty\n", 0)),
        ("kill -KILL $$", b"", (b"", -9)),
        ("sleep 30 & echo left running", b"", (b"left running\n", 0)),
        ("exec >&-; sleep 0.2; exit 4", b"", (b"", 4)),
    ],
)
def test_a_program_is_run_for_its_output(script: str, data: bytes, result: tuple[bytes, int]) -> None:
    assert shell(script, data=data) == result


@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize("script", ["exec sleep 30", "sleep 30", "exec >&-; sleep 30"])
def test_a_program_that_takes_too_long_is_killed(script: str, in_background: bool) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        shell(script, 0.2, in_background=in_background)


def test_a_program_that_prints_too_much_is_killed() -> None:
    output, code = shell("exec yes")
    assert (len(output) > 100, code) == (True, -9)


@pytest.mark.parametrize("code, text", [(3, "failed with exit code 3"), (-9, "was terminated by SIGKILL")])
def test_a_failure_is_described(code: int, text: str) -> None:
    assert describe_failure(code) == text


def test_a_program_is_never_found_by_a_relative_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    assert find("./tool", {}) == "./tool"
    assert find("tool", {"PATH": f".::{tmp_path}"}) == str(tmp_path / "tool")
    with pytest.raises(FileNotFoundError):
        find("tool", {"PATH": ".::bin"})

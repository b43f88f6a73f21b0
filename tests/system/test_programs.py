import os
import subprocess
import time
from pathlib import Path

import pytest

from xapi_cli.system.programs import Invocation, describe_failure, find, run


def shell(script: str, **options: bytes | bool) -> Invocation:
    return Invocation(("sh", "-c", script), os.environ, 100, **options)  # type: ignore[arg-type]  # of both kinds


RUNS: list[tuple[Invocation, tuple[bytes, int]]] = [
    (shell("echo out; echo err >&2; exit 3"), (b"out\n", 3)),
    (shell("cat", data=b"in"), (b"in", 0)),
    (shell("true", data=b"unread" * 100_000), (b"", 0)),
    (shell("read line || echo empty"), (b"empty\n", 0)),
    (shell("kill -KILL $$"), (b"", -9)),
    (shell("sleep 30 & echo left running"), (b"left running\n", 0)),
    (shell("exec >&-; sleep 0.2; exit 4"), (b"", 4)),
]


@pytest.mark.parametrize("program, result", RUNS, ids=lambda each: str(each[0]))
def test_a_program_is_run_for_its_output(program: Invocation, result: tuple[bytes, int]) -> None:
    started = time.monotonic()
    assert run(program, 20) == result
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize("script", ["exec sleep 30", "sleep 30", "exec >&-; sleep 30"])
def test_a_program_that_takes_too_long_is_killed(script: str, in_background: bool) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run(shell(script, in_background=in_background), 0.2)


def test_a_program_that_prints_too_much_is_killed() -> None:
    output, code = run(shell("exec yes"), 20)
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

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.program import Outcome, Xapi
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
    assert time.monotonic() - started < 10


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


UNUSABLE: list[tuple[bytes | None, int, str]] = [
    (None, 127, "not found; check the name and PATH"),
    (b"echo ran\n", 126, "cannot be executed: it has no #! line; add one, such as #!/bin/sh, or name its interpreter"),
    (b"#!/bin/sh\r\necho ran\r\n", 126, "cannot be executed: the line #!/bin/sh ends as on Windows; convert the line"),
    (b"#!/no/such thing\n", 126, "cannot be executed: its interpreter /no/such thing was not found; check its #! line"),
]


@pytest.mark.parametrize("content, code, problem", UNUSABLE)
def test_the_cause_is_named_if_a_command_cannot_be_executed(
    xapi: Xapi, content: bytes | None, code: int, problem: str
) -> None:
    if content is not None:
        (xapi.home / "script").write_bytes(content)
        (xapi.home / "script").chmod(0o755)
    outcome = xapi("exec", "--", "./script", env={"XAPI_TOKEN": "t", "XAPI_BASE_URL": "http://127.0.0.1:9"})
    assert outcome == Outcome(code, "", outcome.err)
    assert outcome.err.startswith(f"xapi: error: ./script: {problem}")

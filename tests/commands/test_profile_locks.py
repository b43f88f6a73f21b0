"""Concurrent edits of the config file, one of which is stopped or killed: none that exits with 0 is lost."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands.profiles import config_of, write_config
from tests.support.program import PROGRAM, Outcome, Xapi
from tests.support.threads import wait_until
from xapi_cli.features.sandbox import Sandbox


@contextmanager
def _stopped_editor(xapi: Xapi, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start `profile ARGS`, which stops before it replaces the config file; it is killed at the end."""
    log = xapi.home / "trace"
    stop = ("strace", "-f", "-qq", "-o", str(log), "-e", "trace=fsync", "-e", "inject=fsync:signal=STOP:when=1")
    env = {"PYTHONDONTWRITEBYTECODE": "1"}
    process = xapi.start("profile", *args, env=env, argv=(*stop, str(PROGRAM)))
    wait_until(lambda: log.exists() and "stopped by SIGSTOP" in log.read_text())
    try:
        yield process
    finally:
        if process.poll() is None:
            for each in _children(process.pid):
                os.kill(each, signal.SIGKILL)
        process.communicate(timeout=60)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_waited_for(lock: Path) -> bool:
    waiting = [line for line in Path("/proc/locks").read_text().splitlines() if "->" in line]
    return any(f":{lock.stat().st_ino} " in line for line in waiting)


@pytest.mark.slow
def test_an_edit_that_cannot_be_excluded_from_a_stopped_one_exits_with_14_and_writes_nothing(
    xapi: Xapi, sandbox: Sandbox
) -> None:
    write_config(xapi)
    assert xapi("profile", "set", "timeout", "6", "-p", "home").code == 0  # creates the state directory
    before = config_of(xapi)
    with _stopped_editor(xapi, "set", "timeout", "7", "-p", "home") as stopped:
        refused = xapi("profile", "set", "timeout", "8", "-p", "work")
        login = xapi("login", "-p", "home", env=sandbox.settings)
        assert config_of(xapi) == before
        for each in _children(stopped.pid):
            os.kill(each, signal.SIGCONT)
        stopped.communicate(timeout=60)

    problem = f"{xapi.config}/config.toml cannot be written: another xapi process has been editing it for more than 5 s"
    remedy = "try again, or end that process if it hangs"
    assert refused == Outcome(14, "", f"xapi: error: {problem}; {remedy}\n")
    assert login.code == 0
    assert f"xapi: warning: the profile could not be written: {problem}; {remedy}\n" in login.err
    assert stopped.returncode == 0
    assert "timeout = 7" in config_of(xapi)
    assert "timeout = 8" not in config_of(xapi)


def test_a_killed_edit_does_not_block_the_next_one(xapi: Xapi) -> None:
    assert xapi("profile", "set", "timeout", "6", "-p", "a").code == 0
    with _stopped_editor(xapi, "set", "timeout", "7", "-p", "a"):
        pass
    assert xapi("profile", "set", "timeout", "8", "-p", "a").code == 0


@pytest.mark.parametrize("args", [("use", "a"), ("remove", "a"), ("unset", "timeout"), ("set", "username", "me")])
def test_an_edit_that_waited_uses_the_file_as_another_one_has_left_it(xapi: Xapi, args: tuple[str, ...]) -> None:
    """The profile `a`, which is the default, is removed while the edit waits."""
    assert xapi("profile", "set", "timeout", "8", "-p", "a").code == 0
    assert xapi("profile", "use", "a").code == 0
    with _stopped_editor(xapi, "remove", "a") as stopped:
        waiting = xapi.start("profile", *args)
        wait_until(lambda: _is_waited_for(xapi.state / "locks" / "config.lock"))
        for each in _children(stopped.pid):
            os.kill(each, signal.SIGCONT)
        err = waiting.communicate(timeout=60)[1].decode()

    if args[0] in {"use", "remove"}:
        assert (waiting.returncode, "profile 'a' does not exist" in err) == (2, True)
        assert "profiles.a" not in config_of(xapi)
    else:
        assert (waiting.returncode, "timeout = 8" in config_of(xapi)) == (0, False), err


def test_concurrent_edits_exclude_each_other_without_a_state_directory(xapi: Xapi) -> None:
    env = {"XAPI_STATE_DIR": "/sys/xapi"}
    running = [xapi.start("profile", "set", "timeout", "1", "-p", f"p{number}", env=env) for number in range(12)]
    assert [(process.communicate(timeout=60)[1][:0], process.returncode) for process in running] == [(b"", 0)] * 12

    names = [each["name"] for each in json.loads(xapi("profile", "list", "--json").out)]
    assert sorted(names) == sorted(f"p{number}" for number in range(12))

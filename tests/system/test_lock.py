import os
import signal
import stat
import subprocess
import sys
import threading
from itertools import chain, repeat
from pathlib import Path

import pytest

import xapi_cli
from xapi_cli.system.files import StateDirectory, StateFile
from xapi_cli.system.lock import LockTimeout, LockUnavailable, locked

_PACKAGE = Path(xapi_cli.__file__).parents[1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "one.lock"


def file_at(path: Path) -> StateFile:
    return StateDirectory(path.parent).file(path.name)


def started(code: str, path: Path) -> "subprocess.Popen[str]":
    """Start a process with the variable `file`, the lock file."""
    preamble = (
        "import subprocess, sys, time\nfrom pathlib import Path\nfrom xapi_cli.system.lock import LockTimeout, locked\n"
        "from xapi_cli.system.files import StateDirectory\n"
        f"lock = Path({str(path)!r})\nfile = StateDirectory(lock.parent).file(lock.name)\n"
    )
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(_PACKAGE)}
    environ |= {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    command = [sys.executable, "-c", preamble + code]
    return subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd="/")


def holder(path: Path, more: str = "") -> "subprocess.Popen[str]":
    """Return a process that holds the lock until it is killed."""
    process = started(
        f"with locked(file, timeout=5):\n    {more}\n    print('held', flush=True); time.sleep(300)", path
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def test_processes_exclude_each_other(path: Path, tmp_path: Path) -> None:
    count = tmp_path / "count"
    count.write_text("0")
    code = (
        f"count = Path({str(count)!r})\n"
        "for _ in range(10):\n"
        "    with locked(file, timeout=60):\n"
        "        number = int(count.read_text()); time.sleep(0.001); count.write_text(str(number + 1))\n"
    )
    for process in [started(code, path) for _ in range(4)]:
        process.communicate()
    assert count.read_text() == "40"


def test_threads_exclude_each_other(path: Path) -> None:
    inside: list[int] = []
    greatest: list[int] = []

    def work() -> None:
        for _ in range(20):
            with locked(file_at(path), timeout=60):
                inside.append(1)
                greatest.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert greatest == [1] * 120


def test_a_wait_ends_when_no_time_is_left(path: Path) -> None:
    process = holder(path)
    left = chain([60.0] * 4, repeat(0.0))
    for timeout in (0, 0.1, left.__next__):
        with pytest.raises(LockTimeout), locked(file_at(path), timeout=timeout):
            pass
    end(process)


def test_what_the_timeout_raises_ends_the_wait(path: Path) -> None:
    process = holder(path)

    def interrupt() -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), locked(file_at(path), timeout=interrupt):
        pass
    end(process)
    with locked(file_at(path), timeout=60):
        pass


def test_a_stopped_process_keeps_the_lock_and_a_killed_one_does_not(path: Path) -> None:
    process = holder(path)
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(LockTimeout), locked(file_at(path), timeout=0.1):
        pass
    end(process)
    with locked(file_at(path), timeout=60):
        pass


def test_a_program_that_the_holder_has_started_does_not_keep_the_lock(path: Path) -> None:
    process = holder(path, "child = subprocess.Popen(['sleep', '30'], stdout=subprocess.DEVNULL)")
    end(process)
    with locked(file_at(path), timeout=5):
        pass


def test_an_exception_releases_the_lock(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(file_at(path), timeout=1):
        raise ZeroDivisionError
    with locked(file_at(path), timeout=0):
        pass


def test_the_lock_file_remains_and_is_private(path: Path) -> None:
    old = os.umask(0)
    try:
        with locked(file_at(path), timeout=1):
            inode = path.stat().st_ino
    finally:
        os.umask(old)
    assert path.stat().st_ino == inode
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_what_cannot_be_a_lock_file_is_reported(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(LockUnavailable, match=r"one\.lock: Is a directory"), locked(file_at(path), timeout=1):
        pass
    path.rmdir()
    path.touch()
    with pytest.raises(LockUnavailable, match="Not a directory"), locked(file_at(path / "locks" / "a"), timeout=1):
        pass

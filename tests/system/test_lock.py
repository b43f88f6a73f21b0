import os
import signal
import stat
import subprocess
import sys
import threading
import time
from itertools import chain, repeat
from pathlib import Path

import pytest

import xapi_cli
from tests.support.threads import wait_until, waiting_for_lock
from xapi_cli.system.lock import LockTimeout, LockUnavailable, locked
from xapi_cli.system.private_files import StateDirectory, StateFile

_PACKAGE = Path(xapi_cli.__file__).parents[1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "one.lock"


def file_at(path: Path) -> StateFile:
    return StateDirectory(path.parent).file(path.name)


def started(code: str, path: Path, *prefix: str) -> "subprocess.Popen[str]":
    """Start a process with the variables `file`, the lock file, and `lock`, its path."""
    preamble = (
        "import os, subprocess, sys, time\nfrom pathlib import Path\n"
        "from xapi_cli.system.lock import LockTimeout, locked\n"
        "from xapi_cli.system.private_files import StateDirectory\n"
        f"lock = Path({str(path)!r})\n"
        "file = StateDirectory(lock.parent).file(lock.name)\n"
    )
    coverage = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", preamble + code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_PACKAGE), **coverage},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    )


def holder(path: Path, more: str = "") -> "subprocess.Popen[str]":
    """Return a process that holds the lock for a minute."""
    process = started(f"with locked(file, timeout=5):\n    {more}\n    print('held', flush=True); time.sleep(60)", path)
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
        "for _ in range(25):\n"
        "    with locked(file, timeout=60):\n"
        "        number = int(count.read_text()); time.sleep(0.001); count.write_text(str(number + 1))\n"
    )
    processes = [started(code, path) for _ in range(8)]
    for process in processes:
        process.communicate(timeout=60)
    assert count.read_text() == "200"


def test_threads_exclude_each_other(path: Path) -> None:
    inside: list[int] = []

    def work() -> None:
        for _ in range(20):
            with locked(file_at(path), timeout=30):
                inside.append(1)
                assert len(inside) == 1
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside == []


def test_waiting_ends_at_the_timeout(path: Path) -> None:
    process = holder(path)
    waited: list[str] = []
    start = time.monotonic()
    with pytest.raises(LockTimeout), locked(file_at(path), timeout=0.5, on_wait=lambda: waited.append("once")):
        pass
    assert 0.5 <= time.monotonic() - start < 5
    assert waited == ["once"]
    end(process)


def test_a_timeout_can_change(path: Path) -> None:
    process = holder(path)
    start = time.monotonic()
    left = chain([60.0] * 4, repeat(0.0))
    with pytest.raises(LockTimeout), locked(file_at(path), timeout=left.__next__):
        pass
    assert time.monotonic() - start < 30
    end(process)


def test_a_free_lock_is_acquired_with_a_timeout_of_zero(path: Path) -> None:
    waited: list[str] = []
    with locked(file_at(path), timeout=0, on_wait=lambda: waited.append("never")):
        pass
    assert waited == []


def test_the_lock_of_a_killed_process_is_released(path: Path) -> None:
    process = holder(path)
    process.kill()
    with locked(file_at(path), timeout=30):
        pass
    process.communicate()


def test_a_stopped_process_keeps_the_lock(path: Path) -> None:
    process = holder(path)
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(LockTimeout), locked(file_at(path), timeout=0.3):
        pass
    process.send_signal(signal.SIGCONT)
    end(process)


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_a_killed_or_stopped_waiting_process_does_not_block_others(path: Path, how: str) -> None:
    wait = "with locked(file, timeout=30, on_wait=lambda: print('waiting', flush=True)): pass"
    with locked(file_at(path), timeout=1):
        line = [started(wait, path) for _ in range(4)]
        for process in line:
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n"
        for process in (line[0], line[2]):
            process.send_signal(signal.Signals[how])
            # a process that is stopped while it holds the lock would block the others
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    for process in (line[1], line[3]):
        process.communicate(timeout=20)
        assert process.returncode == 0
    for process in (line[0], line[2]):
        end(process)


def test_a_waiter_that_timed_out_does_not_acquire_the_lock_later(path: Path) -> None:
    with locked(file_at(path), timeout=1):
        for _ in range(3):
            with pytest.raises(LockTimeout), locked(file_at(path), timeout=0.1):
                pass
    for _ in range(3):
        with locked(file_at(path), timeout=10):
            pass


def test_an_interrupted_waiter_leaves_the_queue(path: Path) -> None:
    process = holder(path)

    def interrupt() -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), locked(file_at(path), timeout=interrupt):
        pass
    end(process)
    with locked(file_at(path), timeout=10):
        pass


def test_a_child_of_the_holder_does_not_keep_the_lock(path: Path) -> None:
    process = holder(path, "child = subprocess.Popen(['sleep', '30'], stdout=subprocess.DEVNULL)")
    end(process)
    with locked(file_at(path), timeout=1):
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


def test_a_lock_file_removed_while_held_affects_only_later_processes(path: Path) -> None:
    process = holder(path)
    waiter = started("with locked(file, timeout=10): print(os.stat(lock).st_nlink)", path)
    wait_until(lambda: waiting_for_lock(path) == {waiter.pid}, "it waits for the lock")
    path.unlink()
    out, _ = waiter.communicate(timeout=20)
    assert out == "1\n"  # it locked the existing file
    end(process)


def test_a_symbolic_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o644)
    path.parent.mkdir()
    path.symlink_to(victim)
    with pytest.raises(LockUnavailable), locked(file_at(path), timeout=1):
        pass
    assert victim.read_text() == "precious"
    assert stat.S_IMODE(victim.stat().st_mode) == 0o644


def test_a_lock_file_that_is_not_a_private_file_is_rejected(path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path)
    with pytest.raises(LockUnavailable, match="not a regular file"), locked(file_at(path), timeout=1):
        pass
    path.unlink()
    path.mkdir()
    with pytest.raises(LockUnavailable, match="Is a directory"), locked(file_at(path), timeout=1):
        pass
    if os.geteuid() == 0:
        path.rmdir()
        path.touch()
        os.chown(path, 12345, 12345)
        with pytest.raises(LockUnavailable, match="belongs to another user"), locked(file_at(path), timeout=1):
            pass


def test_a_directory_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(LockUnavailable) as caught,
        locked(file_at(tmp_path / "file" / "locks" / "a"), timeout=1),
    ):
        pass
    assert caught.value.reason == "Not a directory"


def test_importing_the_module_does_not_import_filelock(path: Path) -> None:
    code = "print('filelock' in sys.modules)\nwith locked(file, timeout=1): print('filelock' in sys.modules)"
    assert started(code, path).communicate(timeout=20)[0] == "False\nTrue\n"


@pytest.mark.slow
def test_waiting_processes_acquire_the_lock_in_bounded_time(path: Path) -> None:
    code = (
        "end = time.monotonic() + 4\nworst = 0\n"
        "while time.monotonic() < end:\n"
        "    start = time.monotonic()\n"
        "    with locked(file, timeout=30): worst = max(worst, time.monotonic() - start); time.sleep(0.01)\n"
        "    time.sleep(0.03)\n"
        "print(worst)"
    )
    processes = [started(code, path) for _ in range(8)]
    assert max(float(process.communicate(timeout=60)[0]) for process in processes) < 3

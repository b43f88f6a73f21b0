"""A pipe that ends with the process that created it, so that the programs that it runs end too, even after kill -9.

A credential helper must not outlive the process that runs it: while it waits for a passphrase, the next command would
have to wait for it, and what it stores late would undo a newer record or a logout. It inherits the pipe, not the lock,
so that the lock is free as soon as its holder is killed. Two mechanisms end the helper:

1. At the end of the pipe, the kernel kills it, or its process group if it has one. This needs no code in the
   child process and, unlike prctl(2), does not depend on a thread. It works only on Linux; elsewhere, a small process
   waits for the end of the pipe.
2. A helper that may use the terminal has to be in the process group of xapi. The kernel kills it alone, and its child
   processes, such as `pass` and `gpg`, could complete what they do. Nor does the kernel kill a helper if xapi is killed
   just after it has started it. So the holder of the lock records the pipe in the lock file, and removes the record
   before it releases the lock. If the next holder finds a record, the previous holder was killed. It then kills all
   processes that have inherited the pipe, before it does anything else. Those that were started before the record have
   not inherited it: the client of the agent, which passes the pipe on, is not killed.

A record is valid during one boot, in which no two pipes that exist have the same number. Daemons close what they
inherit. Only Linux shows which processes have a pipe.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from xapi_cli.system import boot_time, forks

_PAUSE = 0.005  # seconds between two searches for processes that have not ended yet
_MAX_RECORD = 200  # bytes
_START_TIME = 19  # the index of the start time in proc_pid_stat(5), after the name of the program
_END_AT_END_OF_FILE = (
    'end() { [ "$1" -lt 0 ] || for each in $(pgrep -P "$1"); do end "$each"; done; kill -9 "$1"; }; read -r _; end "$1"'
)


class LeftRunning(Exception):
    """Processes that a killed process has left running do not end."""


class _Pipe:
    """A pipe that is closed in the child processes of os.fork(): it is to end with this process."""

    def __init__(self) -> None:
        self.source, self._sink = os.pipe()
        self._is_open = True
        forks.register(self)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self.source)
            os.close(self._sink)

    after_fork = close


@contextmanager
def recorded(lock: int | None, left: Callable[[], float]) -> Iterator[int | None]:
    """Yield the end of a pipe that programs are to inherit for a `with` block, None on Windows.

    It is recorded in the open lock file *lock*, which this process holds, unless that is None. First, ends what a
    killed holder has left running; raises LeftRunning if that is not possible before *left* returns zero.
    """
    if sys.platform == "win32":
        yield None
        return
    if sys.platform == "linux" and lock is not None:
        _end_what_is_recorded(lock, left)
    pipe = _Pipe()
    try:
        if lock is not None and boot_time.boot_id():
            with suppress(OSError):  # for example, if the disk is full: the kernel kills the program nevertheless
                record = f"{boot_time.boot_id()} {boot_time.since_boot()!r} {os.fstat(pipe.source).st_ino}\n"
                os.pwrite(lock, record.encode(), 0)
        yield pipe.source
    finally:
        if lock is not None:
            with suppress(OSError):
                os.ftruncate(lock, 0)
        pipe.close()


@contextmanager
def killed_at_end(source: int | None, process: int) -> Iterator[None]:
    """Kill the process, or the group -*process*, if the pipe *source* ends within a `with` block."""
    guard = None if source is None else kill_at_end(source, process)
    try:
        yield
    finally:
        if guard is not None:
            guard.kill()
            guard.wait()
        if source is not None and sys.platform == "linux":
            import fcntl

            fcntl.fcntl(source, fcntl.F_SETOWN, 0)  # what the program leaves running may outlive this process


def kill_at_end(source: int, process: int) -> "subprocess.Popen[bytes] | None":
    """Have the process, or the group -*process*, killed at the end of the pipe *source*, which it inherits.

    Only this process holds the other end open, so the pipe ends with it. The inherited descriptor keeps the setting in
    force. If the kernel cannot do it, returns the process that will, or None if that cannot be started. It must be
    killed when *process* has ended: it must not kill another one that gets the same ID later.
    """
    if sys.platform == "linux":  # other systems send SIGIO, which they ignore by default
        with suppress(OSError, AttributeError):  # the system, or the Python, does not support the signal
            kill_by_kernel(source, process)
            return None
    with suppress(OSError):
        return subprocess.Popen(
            ["/bin/sh", "-c", _END_AT_END_OF_FILE, "sh", str(process)],
            stdin=source,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            process_group=0,
        )
    return None


if sys.platform == "linux":

    def kill_by_kernel(source: int, process: int) -> None:
        """Have the kernel kill *process*, or the group -*process*, when nobody can write to the pipe *source*."""
        import fcntl

        fcntl.fcntl(source, fcntl.F_SETOWN, process)
        fcntl.fcntl(source, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(source, fcntl.F_SETFL, os.O_ASYNC)

    def _end_what_is_recorded(lock: int, left: Callable[[], float]) -> None:
        """Kill the processes that inherited the pipe in the record, and wait for their end; removes the record."""
        try:
            boot, since, pipe = os.pread(lock, _MAX_RECORD, 0).decode("ascii").split()
            started = float(since)
        except (OSError, ValueError):
            return
        while boot == boot_time.boot_id() and _kill_holders(f"pipe:[{pipe}]", started):
            if left() <= 0:
                raise LeftRunning
            time.sleep(_PAUSE)
        with suppress(OSError):
            os.ftruncate(lock, 0)

    def _kill_holders(pipe: str, started: float) -> bool:
        """Kill the processes that have *pipe* open and are younger than *started*; return whether there were any."""
        found = False
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with suppress(OSError):  # it has ended, or belongs to another user
                if _holds(pid, pipe, started):
                    _kill(pid, partial(_holds, pid, pipe, started))
                    found = True
        return found

    def _holds(pid: int, pipe: str, started: float) -> bool:
        names = (os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd"))
        if pipe not in names:
            return False
        with open(f"/proc/{pid}/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[_START_TIME])
        return (ticks + 1) / os.sysconf("SC_CLK_TCK") > started

    def _kill(pid: int, is_meant: Callable[[], bool]) -> None:
        """Kill the process *pid* if *is_meant* is still true: another one may have its ID now."""
        try:
            process = os.pidfd_open(pid)
        except (AttributeError, OSError):  # Linux before 5.3
            os.kill(pid, signal.SIGKILL)
            return
        try:
            if is_meant():
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)

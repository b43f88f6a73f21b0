"""A pipe that ends with the process that created it, so that the programs that it runs end too, even after kill -9.

A credential helper must not outlive the process that runs it: while it waits for a passphrase, the next command would
have to wait for it, and what it stores late would undo a newer record or a logout. It inherits the pipe, not the lock,
so that the lock is free as soon as its holder is killed. At the end of the pipe, the kernel kills it, or its process
group if it has one. This needs no code in the child process and, unlike prctl(2), does not depend on a thread. It works
only on Linux; elsewhere, a small process waits for the end of the pipe.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from xapi_cli.system import forks

_END_AT_END_OF_FILE = (
    'end() { [ "$1" -lt 0 ] || for each in $(pgrep -P "$1"); do end "$each"; done; kill -9 "$1"; }; read -r _; end "$1"'
)


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
def opened() -> Iterator[int | None]:
    """Yield the end of a pipe that programs are to inherit for a `with` block, None on Windows."""
    if sys.platform == "win32":
        yield None
        return
    pipe = _Pipe()
    try:
        yield pipe.source
    finally:
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

"""A child process that runs a jq filter: it can be killed at any time."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

from xapi_cli.request.jq.child import BLOCK, LENGTH

_HEADER = 1 + LENGTH  # bytes
_PIPE_SIZE = 1024 * 1024  # bytes; the usual 64 KiB make the processes wait for each other more often
_CPU_TIME = 2  # of all threads of a process, user and system


class FilterProcess(subprocess.Popen[bytes]):
    """A process that runs *command*, in its own process group; raises OSError if it cannot be started.

    It reads blocks and writes frames, as the module `child` describes. On Linux, *memory* limits its address
    space, in bytes.
    """

    def __init__(self, command: list[str], environ: Mapping[str, str], *, memory: int) -> None:
        self._memory = memory
        self._received = bytearray()  # the beginning of a frame
        super().__init__(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # libjq prints that there is no more memory, and then ends the process
            env=environ,
            process_group=None if os.name == "nt" else 0,  # Ctrl-C reaches xapi only, which kills it
        )
        if sys.platform == "linux":
            _limit_memory(self.pid, memory)
            _enlarge(self.stdin)
            _enlarge(self.stdout)

    def read_frames(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the kind and the data of each frame, as they arrive, until the process ends."""
        assert self.stdout is not None  # noqa: S101 - it is a pipe
        while data := self.stdout.read1(BLOCK):  # type: ignore[attr-defined]  # a BufferedReader
            yield from self.received(data)

    def received(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the kind and the data of each frame that is complete with *data*, which the process has written."""
        received = self._received
        received += data
        while len(received) >= _HEADER:
            end = _HEADER + int.from_bytes(received[1:_HEADER], "big")
            if len(received) < end:
                return
            frame = bytes(received[:1]), bytes(received[_HEADER:end])
            del received[:end]
            yield frame

    def reason_of_end(self) -> str:
        """Return why the process has ended without being stopped."""
        code = self.wait()
        if code >= 0:
            return f"its process ended with exit code {code}"
        is_limited = sys.platform == "linux"
        cause = f"exceeded the memory limit of {self._memory // 2**30} GiB" if is_limited else "used too much memory"
        return f"jq was killed, possibly because it {cause}"

    def cpu_seconds(self) -> float | None:
        """Return the CPU time that the process has used, or None if the system does not report it."""
        if sys.platform != "linux" or self.returncode is not None:
            return None
        try:
            return time.clock_gettime(~self.pid << 3 | _CPU_TIME)  # clock_getcpuclockid(3), which Python lacks
        except OSError:
            return None

    def lower_priority(self, steps: int) -> None:
        """Give the process a niceness *steps* above that of xapi; this cannot be undone."""
        if sys.platform != "win32":
            with suppress(OSError):  # it has ended
                os.setpriority(os.PRIO_PROCESS, self.pid, os.getpriority(os.PRIO_PROCESS, 0) + steps)

    def try_end(self) -> bool:
        """Do what `end` does without waiting for the process; return whether it has ended."""
        self.kill()
        if self.poll() is None:
            return False
        self.end()
        return True

    def end(self) -> None:
        """Kill the process if it is still running, and close its pipes."""
        if self.returncode is None:
            self.kill()
            self.wait()
        for pipe in (self.stdin, self.stdout):
            if pipe is not None:
                with suppress(OSError):  # it did not read the rest
                    pipe.close()


if sys.platform == "linux":
    from typing import IO

    def _enlarge(pipe: IO[bytes] | None) -> None:
        """Enlarge the buffer of *pipe*, unless the limit for all pipes of the user is reached."""
        import fcntl

        if pipe is not None:
            with suppress(OSError):
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)

    def _limit_memory(pid: int, limit: int) -> None:
        """Limit the memory of the process *pid* to *limit* bytes; a lower limit of the user stays in force."""
        import resource

        lowest = min([limit, *(each for each in resource.getrlimit(resource.RLIMIT_AS) if each >= 0)])
        with suppress(OSError):  # it has ended already
            resource.prlimit(pid, resource.RLIMIT_AS, (lowest, lowest))

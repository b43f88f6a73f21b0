"""The workers that wait for a command, and which of them can be replaced without the loss or repetition of one."""

import os
import signal
from collections.abc import Iterator

_STOPPED = {"T", "t"}  # states in proc(5): by a signal, by a debugger


class Permit:
    """What a worker must take before it greets a client; a worker without it gets no command.

    The kernel gives it to either the worker or the master. If the master takes it, it can kill the worker at any time.
    A client sends its command only after the greeting, so one that the worker has greeted is not affected.
    """

    def __init__(self) -> None:
        self._descriptor = os.eventfd(1, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def take(self) -> bool:
        """Take it; return False if the other process has it."""
        try:
            os.eventfd_read(self._descriptor)
        except BlockingIOError:
            return False
        return True

    def give_back(self) -> None:
        """Give it back, after the client has left without a command."""
        os.eventfd_write(self._descriptor, 1)

    def close(self) -> None:
        """Close it in this process."""
        os.close(self._descriptor)


class IdleWorkers:
    """The idle workers, by their process ids."""

    def __init__(self) -> None:
        self._permits: dict[int, Permit] = {}

    def __len__(self) -> int:
        return len(self._permits)

    def __iter__(self) -> Iterator[int]:
        return iter(self._permits)

    def add(self, pid: int, permit: Permit) -> None:
        """Add the worker *pid*, which has *permit* too."""
        self._permits[pid] = permit

    def remove(self, pid: int) -> None:
        """Remove the worker *pid*."""
        self._permits.pop(pid).close()

    def close(self) -> None:
        """Close in a new process what belongs to other workers."""
        for permit in self._permits.values():
            permit.close()

    def kill_stopped(self) -> int:
        """Kill and remove the workers that are stopped; return how many these are.

        One that has greeted a client continues instead: it may have the command, and if the client has left, it serves
        the next one.
        """
        killed = 0
        for pid, permit in list(self._permits.items()):
            if not _is_stopped(pid):
                continue
            if permit.take():
                os.kill(pid, signal.SIGKILL)
                self.remove(pid)
                killed += 1
            else:
                os.kill(pid, signal.SIGCONT)
        return killed


def _is_stopped(pid: int) -> bool:
    """Return whether the child *pid* of this process, which may have ended, is stopped."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # it exists until it is waited for
        return file.read().rpartition(")")[2].split()[0] in _STOPPED

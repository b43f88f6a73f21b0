"""How much memory a process uses."""

import os


def of(pid: int) -> int:
    """Return the memory of the process *pid* in bytes: its share of the pages that it shares; 0 if it has ended.

    If the kernel does not show the share, which takes the right to trace the process, shared pages count in full.
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except OSError:
        return _resident(pid)


def _resident(pid: int) -> int:
    """Return the resident memory of the process *pid* in bytes; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0

"""Directories for the sockets of agents; both end with the process that created them, even if it is killed."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Wait for the end of the process at the other end of stdin; kill the agents that are left, then remove the directory.
# An agent replaces a worker that is killed before it, and a killed process may complete a system call. Kill all
# repeatedly until none is left: a remaining process could create a file while the directory is removed.
_GUARD = """
import os, pathlib, shutil, signal, sys, time
sys.stdin.read()
own, name = os.getpid(), os.fsencode(sys.argv[1])

def kill(process):
    try:
        uses = any(name in (process / each).read_bytes() for each in ("cmdline", "environ"))
        if uses and int(process.name) != own:
            os.kill(int(process.name), signal.SIGKILL)
            return True
    except OSError:
        pass  # it has ended, or belongs to another user
    return False

while any([kill(process) for process in pathlib.Path("/proc").glob("[0-9]*")]):
    time.sleep(0.01)
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


@contextmanager
def guarded_directory() -> Iterator[Path]:
    """Yield a private directory with a short path, because the length of a socket's path is limited."""
    directory = tempfile.mkdtemp(prefix="xapi-")
    command = [sys.executable, "-ISc", _GUARD, directory]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):
        yield Path(directory)

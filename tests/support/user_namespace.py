"""Commands with root privileges over each other, for any user who runs the tests."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.skips import IMPOSSIBLE


@contextmanager
def as_root() -> Iterator[tuple[str, ...]]:
    """Yield the arguments to put before a command that needs root privileges; skips if the machine grants none.

    Other users get them in a namespace of users that all these commands share. They are root there, and this process,
    which created it, can look into processes that are not dumpable and that were started there. For root, it yields
    no arguments.
    """
    if os.geteuid() == 0:
        yield ()
        return
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        pytest.skip("needs unshare and nsenter")
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", "echo entered; exec cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
        assert holder.stdout
        if holder.stdout.readline() != b"entered\n":
            pytest.skip(f"{IMPOSSIBLE}it does not allow namespaces of users")
        yield "nsenter", f"--target={holder.pid}", "--user", "--preserve-credentials"
        # the end of its stdin ends it

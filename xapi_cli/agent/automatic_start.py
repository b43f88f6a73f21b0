"""Starts an agent after a command that could have used one, with `agent = "auto"`."""

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from xapi_cli.errors import XapiError
from xapi_cli.system import agent_socket

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

IDLE = "15m"
_INTERVAL = 60  # seconds between two attempts
_OTHER_USER = ("SUDO_UID", "DOAS_USER", "PKEXEC_UID")
_STREAMS = range(3)


def start(runtime: "Runtime") -> None:
    """Start an agent in the background, if the command of *runtime*, which has ended, could have used one.

    Not in CI, not under sudo, not without a terminal, and at most once a minute. Nothing is reported: commands work
    without an agent.
    """
    if sys.platform != "linux" or not _is_wanted(runtime.environ) or _is_running(runtime.environ):
        return
    with suppress(XapiError, OSError):
        attempt = runtime.state_directory.file("agent-start")
        attempted_at = attempt.modified_at()
        if attempted_at is None or not 0 <= time.time() - attempted_at / 1e9 < _INTERVAL:
            os.close(attempt.open(os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
            _spawn()


def _is_wanted(environ: Mapping[str, str]) -> bool:
    command = agent_socket.from_command(sys.argv[1:])[:1]
    if command == ["--"] or agent_socket.COLD_COMMANDS.intersection(command) or environ.get("CI"):
        return False
    is_own = not any(environ.get(name) for name in _OTHER_USER) and os.geteuid() == os.getuid()
    return is_own and os.nice(0) == 0 and all(map(os.isatty, _STREAMS))


def _is_running(environ: Mapping[str, str]) -> bool:
    """Return whether an agent runs, or there is no place for its sockets."""
    path = agent_socket.path(environ, "control")
    return path is None or agent_socket.is_listening(path)


def _spawn() -> None:
    """Start `xapi agent start` in its own session, with none of the descriptors of this process."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in _STREAMS:
            with suppress(OSError):  # that of the listing
                os.set_inheritable(int(name), False)
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", "xapi_cli", "agent", "start", "--idle", IDLE],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in _STREAMS],
        setsid=True,
    )

"""The sockets on which the proxy listens: a port of this machine, or a Unix socket that only this user can open."""

import errno
import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from xapi_cli.errors import UsageError
from xapi_cli.system.render import printable

ADDRESS = "127.0.0.1"
HAS_UNIX_SOCKETS = sys.platform != "win32"
_BACKLOG = 512  # connections that the system accepts before the proxy does
_MAX_DIRECTORY = 70  # bytes; the path of a socket has at most 103 on macOS, 107 on Linux


def on_port(port: int) -> tuple[socket.socket, int]:
    """Return a socket that listens on *port* of 127.0.0.1, 0 for a free one, and its port; raises UsageError."""
    try:
        listener = socket.create_server((ADDRESS, port), backlog=_BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UsageError(f"the port {port} cannot be used: {reason}", hint="use another --port, or --port 0") from error
    return listener, int(listener.getsockname()[1])


def on_path(chosen: str | None, stack: ExitStack) -> tuple[socket.socket, str]:
    """Return a Unix socket that listens at *chosen*, an absolute path, or in a new private directory, and its path.

    *stack* removes them from the file system. Raises UsageError.
    """
    if sys.platform == "win32":
        raise UsageError("Unix sockets are not available on this platform", hint="use --port")
    path = chosen or f"{_private_directory(stack)}/proxy.sock"
    listener = socket.socket(socket.AF_UNIX)
    try:
        with socket.socket(listener.family) as probe:
            if Path(path).is_socket() and probe.connect_ex(path) == errno.ECONNREFUSED:
                os.unlink(path)  # no process listens on it
        listener.bind(path)
        stack.callback(Path(path).unlink, missing_ok=True)
        os.chmod(path, 0o600)  # clients cannot connect before it listens
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        problem = f"the socket {printable(path)} cannot be created: {error.strerror or error}"
        raise UsageError(problem, hint="use another --socket") from error
    return listener, path


def _private_directory(stack: ExitStack) -> str:
    """Return a new directory of mode 0700, which *stack* removes."""
    parent = gettempdir() if len(os.fsencode(gettempdir())) <= _MAX_DIRECTORY else "/tmp"  # noqa: S108 - of mode 0700
    return stack.enter_context(TemporaryDirectory(prefix="xapi-proxy-", dir=parent, ignore_cleanup_errors=True))

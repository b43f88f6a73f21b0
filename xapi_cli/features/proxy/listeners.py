"""The sockets on which the proxy listens: a port of this machine, or a Unix socket that only this user can open."""

import os
import socket
import stat
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress

from xapi_cli.errors import UsageError
from xapi_cli.system.render import printable

ADDRESS = "127.0.0.1"
HAS_UNIX_SOCKETS = sys.platform != "win32"
_DIRECTORY, _SOCKET = "xapi-proxy-", "proxy.sock"  # the start of a name, and a name
_MAX_SOCKET_PATH = 107 if sys.platform == "linux" else 103  # bytes; the size of sun_path, without the final zero


def on_port(port: int) -> tuple[socket.socket, int]:
    """Return a socket bound to *port* of 127.0.0.1, 0 for a free one, and its port; raises UsageError."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # there, it would share the port with other programs
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ADDRESS, port))
        number = int(listener.getsockname()[1])
    except OSError as error:
        listener.close()
        reason = error.strerror or type(error).__name__
        raise UsageError(f"the port {port} cannot be used: {reason}", hint="use another --port, or --port 0") from error
    return listener, number


def on_path(chosen: str | None, environ: Mapping[str, str], stack: ExitStack) -> tuple[socket.socket, str]:
    """Return a Unix socket at *chosen*, an absolute path, or in a new private directory, and its path.

    *stack* removes both. Raises UsageError.
    """
    if sys.platform == "win32":
        raise UsageError("Unix sockets are not available on this platform", hint="use --port")
    path = chosen if chosen is not None else f"{_private_directory(environ, stack)}/{_SOCKET}"
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        raise UsageError(f"the path {printable(path)} is too long for a socket", hint="use a shorter --socket")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    previous = os.umask(0o177)  # the mode of a socket decides who can connect, from its first moment
    try:
        _remove_unused(path)
        listener.bind(path)
    except (OSError, ValueError) as error:
        listener.close()
        reason = (error.strerror if isinstance(error, OSError) else None) or "invalid path"
        hint = "use another --socket"
        raise UsageError(f"the socket {printable(path)} cannot be created: {reason}", hint=hint) from error
    except UsageError:
        listener.close()
        raise
    finally:
        os.umask(previous)
    stack.callback(_remove, path)
    return listener, path


def _private_directory(environ: Mapping[str, str], stack: ExitStack) -> str:
    """Return a new directory of mode 0700, which *stack* removes; its path leaves room for the name of a socket."""
    from tempfile import TemporaryDirectory, gettempdir

    longest = _MAX_SOCKET_PATH - len(f"/{_DIRECTORY}12345678/{_SOCKET}")
    parents = [environ.get("XDG_RUNTIME_DIR", ""), gettempdir(), "/tmp"]  # noqa: S108 - of mode 0700
    short = [each for each in parents if os.path.isabs(each) and len(os.fsencode(each)) <= longest]
    parent = next((each for each in short if os.access(each, os.W_OK | os.X_OK)), short[-1])
    for name in os.listdir(parent):
        if name.startswith(_DIRECTORY):
            _remove_abandoned(f"{parent}/{name}")
    return stack.enter_context(TemporaryDirectory(prefix=_DIRECTORY, dir=parent, ignore_cleanup_errors=True))


def _remove_abandoned(directory: str) -> None:
    """Remove *directory* if it has the socket of a proxy that was killed."""
    with suppress(OSError, UsageError):
        if os.listdir(directory) == [_SOCKET]:
            _remove_unused(f"{directory}/{_SOCKET}")
            os.rmdir(directory)


def _remove_unused(path: str) -> None:
    """Remove the socket at *path*; raises UsageError if a process listens on it, or if it is not a socket."""
    if sys.platform == "win32" or not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise UsageError(f"{printable(path)} exists and is not a socket", hint="use another --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise UsageError(f"another process listens on {printable(path)}", hint="use another --socket")


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)

"""The sockets of the warm agent: their paths, and connections to them.

Every call of xapi imports this module before anything else, so it imports only what the interpreter has loaded already.
`socket` takes 6 ms.
"""

import os
import stat
import sys

TYPE_CHECKING = False  # importing `typing` takes longer than the rest of this module
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Iterable, Mapping, Sequence
    from socket import socket as Stream  # noqa: N812 - a class, like the one of _socket

    from xapi_cli.errors import UsageError

# The commands that never run in the agent: they replace their process, run for long, or start others.
COLD_COMMANDS = frozenset({"batch", "demo", "exec", "proxy", "sandbox"})
_SCM_RIGHTS = 1  # as in <sys/socket.h>
_MAX_PATH = 107  # bytes; the size of sun_path in Linux, without the final zero (unix(7))
_OFF = ("0", "false", "no", "off")  # as `settings.values.is_on`, which takes longer to import; empty means unset


def connection_for_call(environ: "Mapping[str, str]", arguments: "Sequence[str]") -> "socket | None":
    """Return a connection to the warm agent that is to run xapi with *arguments*, None if there is none."""
    if is_off(environ) or from_command(arguments)[:1] == ["agent"] or sys.platform != "linux":
        return None
    place = path(environ, "agent")
    return None if place is None else connect(place)


def from_command(arguments: "Sequence[str]") -> "Sequence[str]":
    """Return the *arguments* of a command line from the command on: a profile may precede it."""
    while arguments and arguments[0].startswith(("-p", "--profile")):
        name = arguments[0]
        if name not in ("-p", "--profile") and name.startswith("--") and not name.startswith("--profile="):
            break  # another option
        arguments = arguments[2 if name in ("-p", "--profile") else 1 :]
    return arguments


def unavailable(*, hint: str = "commands work without it, but start more slowly") -> "UsageError":
    """Return the error for systems other than Linux, with *hint*."""
    from xapi_cli.errors import UsageError

    return UsageError("the agent is not available on this platform: it requires Linux", hint=hint)


def is_off(environ: "Mapping[str, str]") -> bool:
    """Return whether XAPI_AGENT switches the agent off."""
    return environ.get("XAPI_AGENT", "").strip().lower() in _OFF


def path(environ: "Mapping[str, str]", name: str) -> str | None:
    """Return the path of the socket *name*; None if it is longer than a socket's path can be or has no directory.

    It is in the directory `xapi` of XDG_RUNTIME_DIR if that is a private directory of this user, else in the directory
    `agent` of xapi's state directory. A relative state directory has no sockets.
    """
    directory = _runtime_directory(environ) or _state_directory(environ)
    if directory is None:
        return None
    found = f"{directory}/{name}"
    return found if len(os.fsencode(found)) <= _MAX_PATH else None


def connect(path: str, *, raise_if_full: bool = False) -> "socket | None":
    """Return a connection to the socket at *path*, None unless a process of this user listens there.

    Never waits: a listener whose queue is full is treated as absent; with *raise_if_full*, BlockingIOError is raised.
    Nothing is sent.
    """
    try:
        os.stat(path)  # usually there is no agent, and importing _socket takes longer
    except (OSError, ValueError):
        return None
    from _socket import AF_UNIX, SOCK_STREAM, socket

    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.connect(path)
        if peer(connection)[1] == os.geteuid():
            connection.setblocking(True)
            return connection
    except OSError as error:  # no process listens, or not for this user
        if raise_if_full and isinstance(error, BlockingIOError):
            connection.close()
            raise
    connection.close()
    return None


def is_listening(path: str) -> bool:
    """Return whether a process of this user listens at the socket at *path*."""
    connection = connect(path)
    if connection is not None:
        connection.close()
    return connection is not None


def connect_stream(path: str) -> "Stream | None":
    """Return what `connect` returns as an object of the module `socket`, which takes 6 ms to import."""
    connection = connect(path)
    if connection is None:
        return None
    from socket import socket as stream

    return stream(fileno=connection.detach())


def accept(listener: "Stream") -> "Stream | None":
    """Return the next connection to *listener*; None, after closing it, if it is not from a process of this user.

    Raises OSError if another process has accepted it, or the peer has left.
    """
    connection, _ = listener.accept()
    if peer(connection)[1] == os.geteuid():
        return connection
    connection.close()
    return None


def peer(connection: "socket") -> tuple[int, int]:
    """Return the process id and the effective user id of the peer, as the kernel recorded them; Linux only.

    The process is the one that called connect() or listen(). Its id is 0 if it is in another PID namespace.
    """
    from _socket import SO_PEERCRED, SOL_SOCKET

    credentials = memoryview(connection.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)).cast("i")
    return credentials[0], credentials[1] % 2**32


def with_descriptors(descriptors: "Iterable[int]") -> "list[tuple[int, int, bytes]]":
    """Return the ancillary data for `sendmsg` that pass copies of *descriptors* to the peer (unix(7))."""
    from _socket import SOL_SOCKET

    data = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors)
    return [(SOL_SOCKET, _SCM_RIGHTS, data)] if data else []


def receive_with_descriptors(connection: "socket", size: int, count: int) -> tuple[bytes, list[int]]:
    """Return at most *size* bytes, and the descriptors that came with them, at most *count*; the caller closes these.

    Raises OSError. `socket.recv_fds` would not do: it ignores its flags, so child processes would inherit them.
    """
    from _socket import CMSG_LEN, MSG_CMSG_CLOEXEC, SOL_SOCKET

    data, ancillary, _, _ = connection.recvmsg(size, CMSG_LEN(4 * count), MSG_CMSG_CLOEXEC)
    passed = [content for level, kind, content in ancillary if (level, kind) == (SOL_SOCKET, _SCM_RIGHTS)]
    return data, [number for content in passed for number in memoryview(content[: len(content) // 4 * 4]).cast("i")]


def _runtime_directory(environ: "Mapping[str, str]") -> str | None:
    chosen = environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isabs(chosen):
        return None
    try:
        status = os.stat(chosen)
    except (OSError, ValueError):
        return None
    is_private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077 and status.st_uid == os.geteuid()
    return os.path.join(chosen, "xapi") if is_private else None


def _state_directory(environ: "Mapping[str, str]") -> str | None:
    """Return the directory `agent` of the directory that `private_files.state_directory` returns."""
    if chosen := environ.get("XAPI_STATE_DIR"):
        return os.path.join(chosen, "xapi", "agent") if os.path.isabs(chosen) else None
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        home = environ.get("HOME", "")
        if not os.path.isabs(home):
            return None
        state = os.path.join(home, ".local/state")
    return os.path.join(state, "xapi", "agent")

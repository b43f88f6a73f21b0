"""Requests the status or the shutdown of a running agent."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xapi_cli.agent import listener, protocol
from xapi_cli.errors import UsageError, XapiError
from xapi_cli.settings import paths
from xapi_cli.system import agent_socket, private_files
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from _socket import socket

_TIMEOUT = 10.0  # seconds
_ACTIVATION_TIMEOUT = 60.0  # seconds until a service manager must have started an agent; less than a login waits for it
_POLL_INTERVAL = 0.01  # seconds


class _NoResponse(XapiError):
    """The agent does not respond."""

    def __init__(self, directory: str) -> None:
        process = listener.holder(Path(directory))
        which = f"run `kill -9 {process}`" if process else "kill its process"
        super().__init__("the agent does not respond", hint=f"{which}, then run `xapi agent start`")


def directory(environ: Mapping[str, str]) -> str:
    """Return the directory of the sockets; raises UsageError if there is none."""
    longest = agent_socket.path(environ, "control")
    if longest is None:
        raise UsageError(
            "no usable directory for the agent's sockets: the path is relative or longer than 107 bytes",
            hint="set XDG_RUNTIME_DIR to a private directory with a short path",
        )
    return os.path.dirname(longest)


def new_directory(environ: Mapping[str, str]) -> str:
    """Return the directory of the sockets of an agent that is to be started.

    Raises UsageError if there is none, or if it is in a state directory that other users can write to.
    """
    found = directory(environ)
    state = paths.state_directory(environ)
    if Path(found).parent == state:
        private_files.check_directory(state)
    return found


def status(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the status of the agent, None if none runs; raises XapiError if it does not respond."""
    return _ask(environ, b"I")


def find_current(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the status of the agent, None if none runs; after an upgrade, the old agent ends first.

    If a service manager listens for the agent, it starts one. Raises XapiError if it does not, or if the agent belongs
    to another installation or does not respond.
    """
    end = time.monotonic() + _TIMEOUT
    while True:
        try:
            found = status(environ)
            if found is None and not _is_starting(environ):
                return None
            if found is not None and _is_current(environ):
                return found
        except _NoResponse:  # an agent that ends may close the connection
            if time.monotonic() > end:
                raise
        time.sleep(_POLL_INTERVAL)


def _is_starting(environ: Mapping[str, str]) -> bool:
    """Return whether another process listens at the agent's socket; it has started an agent then, if it can."""
    path = os.path.join(directory(environ), "agent")
    connection = agent_socket.connect(path)
    if connection is None:
        return False
    try:
        process, _ = agent_socket.peer(connection)
        if process and not os.path.exists(f"/proc/{process}"):
            return False  # it was an agent, of which a worker is left
        connection.settimeout(_ACTIVATION_TIMEOUT)
        protocol.receive(connection)
    except TimeoutError:
        raise XapiError(
            f"another process listens at {printable(path)}, and has started no agent",
            hint="run `systemctl --user status xapi-agent.socket xapi-agent.service`",
        ) from None
    except (OSError, EOFError, protocol.ProtocolError):
        pass  # it could not start one, or an agent has just ended
    finally:
        connection.close()
    return True


def _is_current(environ: Mapping[str, str]) -> bool:
    """Return whether the agent can run commands of this installation; an outdated one ends when it is asked."""
    connection = agent_socket.connect(os.path.join(directory(environ), "agent"))
    if connection is None:
        return False
    try:
        connection.settimeout(_TIMEOUT)
        _, _, build = protocol.parse_greeting(protocol.receive(connection)[1])
    except TimeoutError:
        return True  # all its workers are busy
    except (OSError, EOFError, protocol.ProtocolError):
        return False
    finally:
        connection.close()
    if build != protocol.build():
        raise XapiError(
            "the running agent belongs to another installation of xapi",
            hint="run `xapi agent stop`, which erases its tokens, then `xapi agent start`",
        )
    return True


def stop(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Request the end of the agent, after the commands in progress; return `pid` and `running_commands`.

    Returns None if no agent runs; raises XapiError if it does not respond.
    """
    return _ask(environ, b"E")


def _ask(environ: Mapping[str, str], kind: bytes) -> dict[str, Any] | None:
    sockets = directory(environ)
    connection = _connect(sockets)
    if connection is None:
        return None
    try:
        connection.settimeout(_TIMEOUT)
        protocol.send(connection, kind)
        reply: dict[str, Any] = json.loads(protocol.receive(connection)[1])
    except (OSError, EOFError, protocol.ProtocolError) as error:
        raise _NoResponse(sockets) from error
    finally:
        connection.close()
    return reply


def _connect(sockets: str) -> "socket | None":
    """Return a connection to the master, None if there is none; commands without a worker use its queue too."""
    end = time.monotonic() + _TIMEOUT
    while True:
        try:
            return agent_socket.connect(os.path.join(sockets, "control"), raise_if_full=True)
        except BlockingIOError as error:
            if time.monotonic() > end:
                raise _NoResponse(sockets) from error
        time.sleep(_POLL_INTERVAL)

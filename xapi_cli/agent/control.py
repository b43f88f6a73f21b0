"""Requests the status or the shutdown of a running agent."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xapi_cli.agent import listener, protocol
from xapi_cli.errors import AgentError, UsageError
from xapi_cli.system import agent_socket
from xapi_cli.system.private_files import StateDirectory, state_directory
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from _socket import socket

_TIMEOUT = 10.0  # seconds
_CHANGE_TIMEOUT = 60.0  # seconds until an agent that is starting or ending must be ready or have ended


class _NoResponse(AgentError):
    """The agent does not respond."""

    def __init__(self, directory: str) -> None:
        super().__init__("the agent does not respond", hint=_how_to_kill(listener.holder(Path(directory))))


def _how_to_kill(holder: listener.Holder | None) -> str:
    which = f"run `kill -9 {holder.process}`" if holder and holder.process else "kill its process"
    return f"{which}, then run `xapi agent start`"


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
    state = state_directory(environ)
    if Path(found).parent == state:
        StateDirectory(state).check()
    return found


def status(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the status of the agent, None if none runs; raises AgentError if it does not respond."""
    return _ask(environ, b"I")


def state(environ: Mapping[str, str]) -> str:
    """Return the state of an agent without a status: `starting`, `ending` or `stopped`."""
    holder = listener.holder(Path(directory(environ)))
    if holder is None:
        return "stopped"
    return listener.STARTING if holder.state == listener.STARTING else listener.ENDING


def find_current(environ: Mapping[str, str], deadline: float) -> dict[str, Any] | None:
    """Return the status of the agent, None if none runs.

    Waits until *deadline* for one that is starting or ending; after an upgrade, the old agent ends. If a service
    manager listens for the agent, it starts one. Raises AgentError if it does not, or if the agent belongs to another
    installation or does not respond.
    """
    while True:
        if (found := status(environ)) is not None:
            if _is_current(environ):
                return found
            if time.monotonic() > deadline:
                raise AgentError(
                    "the running agent does not serve this process",
                    hint="run `xapi agent stop`, or start the agent outside the container",
                )
        elif not _is_changing(environ, deadline) and not _is_activated(environ, deadline):
            return None
        time.sleep(listener.POLL_INTERVAL)


def _is_changing(environ: Mapping[str, str], deadline: float) -> bool:
    """Return whether an agent is starting or ending; raises AgentError after *deadline*."""
    holder = listener.holder(Path(directory(environ)))
    if holder is not None and time.monotonic() > deadline:
        raise AgentError("the agent neither became ready nor exited in time", hint=_how_to_kill(holder))
    return holder is not None


def _is_activated(environ: Mapping[str, str], deadline: float) -> bool:
    """Return whether another process listens at the agent's socket; if so, it has started an agent, unless that failed.

    Raises AgentError if it has not done so before *deadline*.
    """
    path = os.path.join(directory(environ), "agent")
    connection = agent_socket.connect(path)
    if connection is None:
        return False
    try:
        process, _ = agent_socket.peer(connection)
        if process and not os.path.exists(f"/proc/{process}"):
            return False  # it was an agent, of which a worker is left
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        connection.settimeout(left)
        protocol.receive(connection)
    except TimeoutError:
        raise AgentError(
            f"another process listens at {printable(path)}, but has not started an agent",
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
        _, _, build = protocol.receive_greeting(connection)
    except TimeoutError:
        return True  # all its workers are busy
    except (OSError, EOFError, protocol.ProtocolError):
        return False
    finally:
        connection.close()
    if build != protocol.build_id():
        raise AgentError(
            "the running agent belongs to another installation of xapi",
            hint="run `xapi agent stop`, which erases its tokens, then `xapi agent start`",
        )
    return True


def stop(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Request the end of the agent, after the commands in progress; return `pid` and `running_commands`.

    An agent that is starting becomes ready before. Returns None if none runs; raises AgentError if it does not respond.
    """
    deadline = time.monotonic() + _CHANGE_TIMEOUT
    while (reply := _ask(environ, b"E")) is None and _is_changing(environ, deadline):
        time.sleep(listener.POLL_INTERVAL)
    return reply


def _ask(environ: Mapping[str, str], kind: bytes) -> dict[str, Any] | None:
    """Return the response of the agent to a request of *kind*, None if none is ready; raises _NoResponse."""
    sockets = directory(environ)
    connection = _connect(sockets)
    if connection is None:
        return None
    try:
        connection.settimeout(_TIMEOUT)
        protocol.send(connection, kind)
        reply: dict[str, Any] = json.loads(protocol.receive(connection)[1])
    except (TimeoutError, protocol.ProtocolError) as error:
        raise _NoResponse(sockets) from error
    except (OSError, EOFError):  # it has just ended
        return None
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
        time.sleep(listener.POLL_INTERVAL)

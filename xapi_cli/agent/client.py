"""Hands the command over to the warm agent, if there is one.

It runs before anything else is imported, so it only connects; `call` is imported while a worker accepts the connection.
"""

import os
import sys

from xapi_cli.system import agent_socket

TYPE_CHECKING = False  # importing `typing` takes longer than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Mapping

_OFF = ("0", "false", "no", "off")  # as `settings.values.is_on`, which takes longer to import; empty means unset


def hand_over() -> None:
    """Run the command line in the agent and end the process; return if this process has to run it."""
    environ = os.environ
    if is_off(environ) or sys.argv[1:2] == ["agent"] or sys.platform != "linux":
        return
    path = agent_socket.path(environ, "agent")
    if path is None or (connection := agent_socket.connect(path)) is None:
        return
    from xapi_cli.agent import call

    call.run(connection)


def is_off(environ: "Mapping[str, str]") -> bool:
    """Return whether XAPI_AGENT switches the agent off."""
    return environ.get("XAPI_AGENT", "").strip().lower() in _OFF

"""What `xapi doctor` reports about the agent."""

import os
import sys

from xapi_cli.errors import XapiError
from xapi_cli.settings.values import AgentMode
from xapi_cli.system import agent_socket
from xapi_cli.usecases.doctor.findings import Check, Findings

_UNUSED = "calls run without it"


def check_agent(findings: Findings) -> Check:
    """Check that calls can use the agent, if it was started; to have none is not a problem."""
    environ = findings.runtime.environ
    if sys.platform != "linux":
        return Check("agent", "pass", "not available on this platform: it requires Linux")
    from xapi_cli.agent import call, protocol

    if agent_socket.is_off(environ):
        return Check("agent", "pass", "not used: XAPI_AGENT is off")
    mode = findings.valid_settings.agent if findings.valid_settings else None
    if mode == AgentMode.OFF:
        return Check("agent", "pass", 'not used: the config file contains agent = "off"')
    path = agent_socket.path(environ, "agent")
    if path is None:
        hint = "to use it, set XDG_RUNTIME_DIR to a private directory with a short path"
        return Check("agent", "pass", "off, and without a directory for its sockets", hint)
    if (connection := agent_socket.connect(path)) is None:
        if not os.path.lexists(path):
            if mode == AgentMode.AUTO:
                return Check("agent", "pass", "off; a command on a terminal starts one")
            return Check("agent", "pass", "off", "`xapi agent start` makes later calls start faster")
        return Check("agent", "warn", f"no agent of this user listens at {path}; {_UNUSED}", "run `xapi agent start`")
    try:
        connection.settimeout(call.READY_TIMEOUT)
        _, _, build = protocol.receive_greeting(connection)
    except (OSError, EOFError, protocol.ProtocolError):
        hint = "if it has not just been started, run `xapi agent stop`, then `xapi agent start`"
        return Check("agent", "warn", f"it does not respond; {_UNUSED}", hint)
    finally:
        connection.close()
    if build != protocol.build_id():
        hint = "run `xapi agent stop`, then `xapi agent start`"
        return Check("agent", "warn", f"it belongs to another installation or version of xapi; {_UNUSED}", hint)
    return Check("agent", "pass", f"running{_activity(findings)}")


def _activity(findings: Findings) -> str:
    """Return what the agent has done, as the end of a sentence."""
    from xapi_cli.agent import control

    try:
        status = control.status(findings.runtime.environ)
    except XapiError:
        status = None
    if status is None:
        return ""
    is_itself_counted = findings.runtime.process_id != os.getpid()  # a worker of the agent runs this command
    warm, cold = status["warm"] - is_itself_counted, sum(status["cold"].values())
    commands = "1 command" if warm == 1 else f"{warm} commands"
    reasons = f" ({', '.join(status['cold'])})" if cold else ""
    return f", process {status['pid']}: {commands} run by the agent, {cold} without it{reasons}"

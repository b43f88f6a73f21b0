"""What `xapi agent status` prints."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from xapi_cli.agent import control
from xapi_cli.errors import AgentError, StoreError
from xapi_cli.http.relay import loans
from xapi_cli.settings import durations
from xapi_cli.store.agent.client import KeeperClient
from xapi_cli.system import agent_socket, render

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

_KEEPER_TIMEOUT = 3.0  # seconds


def show(runtime: "Runtime", *, as_json: bool) -> None:
    """Print the status of the agent, as lines or as JSON; raises AgentError if it is not running."""
    found = control.status(runtime.environ)
    report = {
        "running": found is not None,
        "state": "ready" if found else control.state(runtime.environ),
        **(_report(found, control.directory(runtime.environ)) if found else {}),
        **(_held(runtime) if found else {}),
    }
    if as_json or not runtime.terminal.stdout_is_terminal:
        runtime.terminal.print(json.dumps(report))
    elif found:
        runtime.terminal.print("\n".join(_lines(report)))
    if found is None:
        if report["state"] == "stopped":
            raise AgentError("the agent is not running", hint="run `xapi agent start`")
        raise AgentError(f"the agent is {report['state']}", hint="run `xapi agent start` to wait until one is ready")


def _report(found: dict[str, Any], directory: str) -> dict[str, Any]:
    since = render.instant(datetime.fromtimestamp(found["since"], UTC))
    connections = loans.relay_status(lambda: agent_socket.connect_stream(f"{directory}/relay"))
    commands = found["warm"] + sum(found["cold"].values())
    return {**found, "since": since, "commands": commands, "connections": connections}


def _held(runtime: "Runtime") -> dict[str, int | None]:
    """Return how many tokens the keeper holds, and how many entries of the cache; None if it does not respond."""
    try:
        keys = [each.key[:1] for each in KeeperClient(runtime.environ, _KEEPER_TIMEOUT).held()]
    except StoreError:
        return {"tokens": None, "cached": None}
    return {"tokens": keys.count(b"a"), "cached": keys.count(b"c")}


def _lines(report: dict[str, Any]) -> list[str]:
    """Return the lines of the table for a terminal."""
    since = datetime.fromisoformat(report["since"])
    rows = [
        ("running", f"process {report['pid']}, since {since:%Y-%m-%d %H:%M} UTC"),
        *([("exits after", f"{durations.text(report['idle'])} without a command")] if "idle" in report else []),
        ("commands", f"{report['warm']} run by the agent, {report['running_commands']} in progress"),
        ("tokens", _tokens(report)),
        ("connections", f"{(report['connections'] or {}).get('kept', 0)} kept open"),
        ("memory", f"{report['memory'] / 1e6:.0f} MB in {report['processes']} processes"),
        *([("failures", f"{report['failures']}; the last: {report['last_failure']}")] if report["failures"] else []),
        *(("bypassed", f"{count} ({reason})") for reason, count in report["cold"].items()),
    ]
    return [f"{name:<13}{value}" for name, value in rows]


def _tokens(report: dict[str, Any]) -> str:
    if report["tokens"] is None:
        return "unknown: the keeper does not respond"
    return f"{report['tokens']} stored, {report['cached']} cached from the keyring"

"""Manage the agent, which makes commands faster (Linux).

Examples:

\b
  xapi agent start --idle 8h
  xapi agent status
  xapi agent stop
"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import MESSAGES, settings_flags
from xapi_cli.settings import durations
from xapi_cli.system import agent_socket

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

_IDLE = "4h"


@settings_flags(*MESSAGES)
def start(
    ctx: typer.Context,
    *,
    idle: Annotated[
        str,
        typer.Option(
            "--idle",
            metavar="DURATION",
            help="Exit after DURATION without a command, unless tokens are held in memory only.",
        ),
    ] = _IDLE,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Run in the foreground, for example under systemd.")
    ] = False,
) -> None:
    """Start the agent if it is not running; replace it after xapi has been upgraded.

    The agent runs your commands in preloaded worker processes, one command per
    process. Commands have the same output, exit code and effects as without the
    agent. batch, demo, exec, proxy and sandbox always run without the agent,
    and so does a command that runs under conditions that the agent cannot
    reproduce, such as a memory limit. Linux only. XAPI_AGENT=off bypasses the
    agent. With agent = "auto" at the top of the config file, a command on a
    terminal starts it.

    Examples:

    \b
      xapi agent start --idle 8h
      xapi request /x-api/me
      xapi agent stop
    """
    if sys.platform != "linux":
        raise agent_socket.unavailable()
    from xapi_cli.agent import control, daemon

    runtime: Runtime = ctx.obj
    directory = control.new_directory(runtime.environ)
    seconds = durations.time_limit(idle, name="--idle")
    if foreground:
        wait = daemon.START_TIMEOUT
        daemon.run(directory, seconds, ready=lambda: None, warn=runtime.terminal.warn, wait=wait)
        return

    process, running = daemon.start(runtime.environ, directory, seconds)
    if running is not None:
        kept = running.get("idle", seconds)  # missing in the status of an older agent
        change = f" and keeps --idle {durations.text(kept)}; to change it, run `xapi agent stop` first"
        note = f"the agent is already running (process {process})"
        runtime.terminal.note(note if kept == seconds else note + change)
        return
    runtime.terminal.note(f"agent started (process {process})")


@settings_flags(*MESSAGES)
def stop(ctx: typer.Context) -> None:
    """Stop the agent.

    Waits for running commands. Erases tokens that are only in memory.

    Examples:

    \b
      xapi agent stop
    """
    if sys.platform != "linux":
        raise agent_socket.unavailable()
    from xapi_cli.agent import control

    runtime: Runtime = ctx.obj
    stopped = control.stop(runtime.environ)
    if stopped is None:
        runtime.terminal.note("the agent is not running")
    elif running := stopped["running_commands"]:
        rest = "1 command in progress completes" if running == 1 else f"{running} commands in progress complete"
        runtime.terminal.note(f"stopping the agent (process {stopped['pid']}); {rest} first")
    else:
        runtime.terminal.note(f"agent stopped (process {stopped['pid']})")


@settings_flags(*MESSAGES)
def status(
    ctx: typer.Context,
    *,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, which is the default if stdout is not a terminal.")
    ] = False,
) -> None:
    """Show the status of the agent.

    Shows how many commands it has run, how many ran without it and why, its
    tokens, connections and memory. Exits with code 0 if the agent is running,
    otherwise 1.

    Examples:

    \b
      xapi agent start
      xapi agent status --json | jq .cold
      xapi agent stop
    """
    if sys.platform != "linux":
        raise agent_socket.unavailable()
    from xapi_cli.agent.status import show

    runtime: Runtime = ctx.obj
    show(runtime, as_json=json)

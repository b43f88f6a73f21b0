"""Run commands in processes that are ready, and so in less time."""

from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.settings import durations

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

_IDLE = "4h"


def start(
    ctx: typer.Context,
    *,
    idle: Annotated[
        str, typer.Option("--idle", metavar="DURATION", help="Time without commands after which the agent ends.")
    ] = _IDLE,
    foreground: Annotated[bool, typer.Option("--foreground", help="Do not detach, for a service manager.")] = False,
) -> None:
    """Start the agent, unless it is running.

    While it runs, it runs the commands of this user, in processes that are
    ready. Each process runs one command and ends. Commands have the same
    output, exit code and effects as without the agent; those that the agent
    cannot run in the same way run without it. Linux only. XAPI_AGENT=off
    bypasses the agent.

    Examples:

    \b
      xapi agent start --idle 8h
      xapi request /x-api/me
      xapi agent stop
    """
    from xapi_cli.agent import control, daemon

    daemon.check_platform()
    runtime: Runtime = ctx.obj
    directory = control.directory(runtime.environ)
    seconds = durations.time_limit(idle)
    if foreground:
        daemon.run(directory, seconds, ready=lambda: None)
        return

    if (running := control.status(runtime.environ)) is not None:
        runtime.terminal.note(f"the agent is already running (process {running['pid']})")
        return
    runtime.terminal.note(f"agent started (process {daemon.start(directory, seconds)})")


def stop(ctx: typer.Context) -> None:
    """Stop the agent; commands that it runs end first.

    Examples:

    \b
      xapi agent stop
    """
    from xapi_cli.agent import control

    runtime: Runtime = ctx.obj
    stopped = control.stop(runtime.environ)
    runtime.terminal.note("the agent is not running" if stopped is None else f"agent stopped (process {stopped})")


def status(
    ctx: typer.Context,
    *,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, which is the default if stdout is not a terminal.")
    ] = False,
) -> None:
    """Show whether the agent is running, and what it has done.

    Shows the commands that it ran, and those that ran without it, by reason.
    The exit code is 0 if it is running, otherwise 1.

    Examples:

    \b
      xapi agent start
      xapi agent status --json | jq .cold
      xapi agent stop
    """
    from xapi_cli.agent.status import show

    runtime: Runtime = ctx.obj
    show(runtime, as_json=json)

"""Serve the documented API on loopback."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime
    from xapi_cli.sandbox import Sandbox
    from xapi_cli.system.terminal import Terminal


def sandbox(
    ctx: typer.Context,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, metavar="PORT", help="Port to listen on; 0 takes a free one.")
    ] = 0,
    expires_in: Annotated[
        int, typer.Option("--expires-in", min=1, metavar="SECONDS", help="Lifetime of the tokens it gives out.")
    ] = 2_592_000,
) -> None:
    """Serve the documented API on loopback.

    For trying xapi without the real one. Prints base URL and test credentials
    on stdout, as shell assignments, and serves until Ctrl-C. A POST to
    /sandbox/kill-tokens makes all tokens invalid at once. The second user
    lacks master rights.

    Examples:

    \b
      xapi sandbox
      xapi sandbox --port 8080 --expires-in 60
      xapi sandbox >sandbox.env & sleep 1
      set -a; . ./sandbox.env
      xapi login -p sandbox --storage file
    """
    from contextlib import suppress

    from xapi_cli.sandbox import Sandbox

    runtime: Runtime = ctx.obj
    with suppress(KeyboardInterrupt), Sandbox(port, expires_in) as server:  # Ctrl-C is how it is told to stop
        _introduce(server, runtime.terminal)
        _wait()


def _introduce(server: "Sandbox", terminal: "Terminal") -> None:
    from shlex import quote

    from xapi_cli.sandbox import MEMBER

    member = {"XAPI_SANDBOX_MEMBER_USERNAME": MEMBER.email, "XAPI_SANDBOX_MEMBER_PASSWORD": MEMBER.password}
    assignments = [f"{name}={quote(value)}" for name, value in (server.settings | member).items()]
    terminal.out("\n".join(assignments))
    terminal.say("xapi: serving until Ctrl-C; put `export` before the lines above, in another shell, to use it there")


def _wait() -> None:
    import time

    while True:
        time.sleep(3600)  # unlike a lock's, its wait ends at Ctrl-C on Windows as well

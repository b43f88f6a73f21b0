"""`xapi demo`: the main workflow in a few seconds, without an account."""

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime


def demo(ctx: typer.Context) -> None:
    """Show the main workflow on a local test server.

    Logs in, sends a request, invalidates the token on the server, and sends the
    request again. The server runs on this machine and the files are in a
    temporary directory: your keyring, configuration, state and environment are
    not used.

    Examples:

    \b
      xapi demo
    """
    from xapi_cli.features.sandbox import demonstration as usecase

    runtime: Runtime = ctx.obj
    usecase.run(runtime.terminal, runtime.environ)

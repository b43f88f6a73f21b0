"""`xapi proxy`: the API for programs that must not have the token."""

from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.completers import command_words
from xapi_cli.cli.options import ACCOUNT, CALLS, completer, settings_flags

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

CONTEXT = {"allow_interspersed_args": False}  # options after COMMAND belong to COMMAND

Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- COMMAND [ARG]...]",
        help="The command to run; without it, serve until Ctrl-C.",
        autocompletion=command_words,
        show_default=False,
    ),
]
Socket = Annotated[
    str | None, typer.Option("--socket", metavar="PATH", help="Listen on a Unix socket at PATH, of mode 0600.")
]
Port = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65535, metavar="N", help="Listen on port N of 127.0.0.1; 0 selects a free one."),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="'METHOD PATH'",
        help="Forward only matching requests; * matches anything; repeatable.",
        autocompletion=completer("nothing"),
    ),
]


@settings_flags(*ACCOUNT, *CALLS)
def proxy(
    ctx: typer.Context, command: Command = None, *, socket: Socket = None, port: Port = None, allow: Allow = None
) -> None:
    """Serve the API to other programs without giving them the token.

    Each request is forwarded to the base URL with the token, which is renewed
    if it is rejected. COMMAND gets the address of the proxy in XAPI_BASE_URL,
    and in XAPI_TOKEN a random key that only this proxy accepts. The exit code
    is that of COMMAND. Without COMMAND, prints `export` lines for another
    shell, and serves until Ctrl-C: on a private Unix socket, which needs no
    key, or with --port.

    Examples:

    \b
      xapi proxy -- python3 report.py
      xapi proxy --allow 'GET /x-api/*' -- ./deploy.sh
      xapi proxy -- sh -c 'curl --unix-socket \\
        "$XAPI_PROXY_SOCKET" http://localhost/x-api/me'
    """
    from xapi_cli.usecases import proxy as usecase

    runtime: Runtime = ctx.obj
    options = usecase.ProxyOptions(tuple(command or ()), socket, port, tuple(allow or ()))
    raise typer.Exit(usecase.run(runtime, options))

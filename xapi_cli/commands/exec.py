"""`xapi exec`: the token for programs that read it from the environment."""

from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import ACCOUNT, NETWORK, MinTtl, settings_flags

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

CONTEXT = {"allow_interspersed_args": False}  # options after COMMAND belong to COMMAND: `xapi exec ls -u`

Command = Annotated[
    list[str],
    typer.Argument(metavar="-- COMMAND [ARG]...", help="The command to run.", show_default=False),
]


@settings_flags(*ACCOUNT, *NETWORK)
def exec_(ctx: typer.Context, command: Command, *, min_ttl: MinTtl = None) -> None:
    """Run a command with the token in its environment.

    COMMAND gets the token in XAPI_TOKEN and the base URL in XAPI_BASE_URL. xapi
    logs in first if necessary. xapi commands in COMMAND cannot use the token for
    another base URL. XAPI_PASSWORD is removed. Put xapi's options before COMMAND.
    The exit code is that of COMMAND, 127 if COMMAND was not found, or 126 if it
    cannot be executed.

    Examples:

    \b
      xapi exec -- ./deploy.sh
      xapi exec --min-ttl 1h -- python3 report.py --all
    """
    from xapi_cli.usecases import exec as usecase

    runtime: Runtime = ctx.obj
    raise typer.Exit(usecase.run(runtime, command, min_ttl=min_ttl))

"""`xapi logout`: deletes what is stored."""

from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import ACCOUNT, settings_flags

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

All = Annotated[bool, typer.Option("--all", help="Log out of every known account.")]


@settings_flags(*ACCOUNT, suggests_login=False)
def logout(ctx: typer.Context, *, everything: All = False) -> None:
    """Delete the stored token and password.

    Deletes both from every store that may hold them. Sends nothing to the
    server, because the API has no way to revoke a token.

    Examples:

    \b
      xapi logout
      xapi logout --profile staging
      xapi logout --all
    """
    from xapi_cli.usecases.logout import log_out

    runtime: Runtime = ctx.obj
    log_out(runtime, everything=everything)

"""Diagnose problems and suggest fixes."""

from typing import TYPE_CHECKING

import typer

from xapi_cli.cli.options import ACCOUNT, NETWORK, Json, settings_flags

if TYPE_CHECKING:
    from xapi_cli.context import Context


@settings_flags(*ACCOUNT, *NETWORK)
def doctor(
    ctx: typer.Context,
    *,
    json: Json = False,
) -> None:
    """Diagnose problems and suggest fixes.

    Checks settings, network, keyring, token and password, and prints a line
    for each: pass, warn or fail, with a hint. The exit code is 0 if
    no check failed, otherwise 1. Prints no secrets, and never logs in. Each
    check has a time limit.

    Examples:

    \b
      xapi doctor
      xapi doctor --json |
        jq -r '.checks[] | select(.status != "pass") | .hint'
    """
    from xapi_cli.usecases.doctor import doctor as run_doctor

    context: Context = ctx.obj
    run_doctor(context, as_json=json)

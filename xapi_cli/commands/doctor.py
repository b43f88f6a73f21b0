"""Check what xapi needs, and say what to do about what is missing."""

from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import LOCAL, WIRE, settings_flags

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime


@settings_flags(*LOCAL, *WIRE)
def doctor(
    ctx: typer.Context,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check what xapi needs, and say what to do about it.

    Settings, network, keyring, token and password, one line each: pass, warn
    or fail, with the remedy. Exit 0 when nothing failed, else 1. Prints no
    secret, never logs in, and does not wait for what hangs.

    Examples:

    \b
      xapi doctor
      xapi doctor --json |
        jq -r '.checks[] | select(.status != "pass") | .hint'
    """
    from xapi_cli.usecases.doctor import Doctor

    runtime: Runtime = ctx.obj
    Doctor(runtime).tell(as_json=json)

"""Get a token and keep it."""

from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import LOCAL, WIRE, settings_flags
from xapi_cli.errors import UsageError

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime


@settings_flags(*LOCAL, *WIRE)
def login(
    ctx: typer.Context,
    *,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from the first line of stdin.")
    ] = False,
    password_command: Annotated[
        str | None,
        typer.Option("--password-command", metavar="CMD", help="Let CMD print the password; kept in the profile."),
    ] = None,
    remember: Annotated[
        bool | None,
        typer.Option("--remember/--no-remember", help="Keep the password too, in the keyring; or drop the one kept."),
    ] = None,
) -> None:
    """Get a token and keep it.

    The commands that follow use it. A new one is asked for in any case, even
    while the old one is good. On a terminal xapi asks for what it does not
    know; the password is typed unseen and is never an argument. Base URL and
    username go into the profile, so that the next command needs neither.

    Examples:

    \b
      xapi login
      xapi login --base-url https://api.example.com
      pass show api | xapi login --password-stdin
      xapi login --password-command 'pass show api'
      xapi login -p staging --base-url https://api.example.com
    """
    from xapi_cli.usecases.login import Login

    runtime: Runtime = ctx.obj
    runtime.may_create_profile = True
    runtime.flags = {**runtime.flags, "password_command": password_command}
    if remember and runtime.settings.storage in ("file", "none"):
        raise UsageError(
            f"--remember needs a keyring, and the storage is {runtime.settings.storage}",
            hint="use --storage keyring, or leave --remember out",
        )
    Login(runtime, password_stdin=password_stdin, remember=remember).run()

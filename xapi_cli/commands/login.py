"""`xapi login`: an explicit login."""

from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import ACCOUNT, NETWORK, settings_flags

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from the first line of stdin.")
]
Remember = Annotated[
    bool | None,
    typer.Option("--remember/--no-remember", help="Store the password with the token, or delete the stored password."),
]


@settings_flags(*ACCOUNT, *NETWORK, "password_command", may_create_profile=True)
def login(ctx: typer.Context, *, password_stdin: PasswordStdin = False, remember: Remember = None) -> None:
    """Log in and store the token.

    Always requests a new token, even if the stored one is valid. On a
    terminal, prompts for missing settings and for the password, which is read
    without echo and is never an argument. Writes the base URL and the username
    to the profile, so that later commands need neither.

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
    Login(runtime, password_stdin=password_stdin, remember=remember).run()

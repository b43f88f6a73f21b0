"""`xapi login`: an explicit login."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import ACCOUNT, NETWORK, settings_flags
from xapi_cli.errors import UsageError

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from the first line of stdin.")
]
Remember = Annotated[
    bool | None,
    typer.Option("--remember/--no-remember", help="Store the password with the token, or delete the stored password."),
]
Url = Annotated[
    str | None,
    typer.Argument(metavar="[URL]", help="Base URL.", show_default=False),
]

_HOST = re.compile(r"(?:localhost|(?:[\w-]+\.)+(?:[A-Za-z]{2,}|\d+))(?::\d+)?(?:/.*)?")  # without a scheme


def _base_url(url: str) -> str:
    """Return *url*; raise UsageError if it is not valid, without quoting it if it may be a password."""
    from xapi_cli.http import urls
    from xapi_cli.settings import resolve

    if "://" not in url and not _HOST.fullmatch(url):
        raise UsageError(
            "unexpected argument", hint="give the base URL as the argument, or select a profile with -p NAME"
        )
    resolve.prefixed("URL", urls.base_url, url)
    return url


@settings_flags(*ACCOUNT, *NETWORK, "password_command", may_create_profile=True, base_url_argument=_base_url)
def login(
    ctx: typer.Context,
    *,
    url: Url = None,
    password_stdin: PasswordStdin = False,
    remember: Remember = None,
) -> None:
    """Log in and store the token.

    Always requests a new token, even if the stored one is valid. On a
    terminal, prompts for missing settings and for the password, which is read
    without echo and is never an argument. Writes the base URL and the username
    to the profile, so that later commands need neither. URL is the same as
    --base-url.

    Examples:

    \b
      xapi login
      xapi login https://api.example.com
      pass show api | xapi login --password-stdin
      xapi login --password-command 'pass show api'
      xapi login -p staging https://api.example.com
    """
    from xapi_cli.usecases.login import Login

    runtime: Runtime = ctx.obj
    Login(runtime, password_stdin=password_stdin, remember=remember).run()

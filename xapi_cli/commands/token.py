"""Show the token or its status.

Examples:

\b
  xapi token show --header |
    curl -H @- https://api.example.com/x-api/me
  xapi token status --min-ttl 1h
"""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from xapi_cli.cli.options import ACCOUNT, NETWORK, MinTtl, settings_flags
from xapi_cli.errors import UsageError

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime


Format = Literal["token", "header", "json", "env"]


@settings_flags(*ACCOUNT, *NETWORK)
def show(
    ctx: typer.Context,
    *,
    format: Annotated[Format | None, typer.Option("--format", help="Output format.  [default: token]")] = None,  # noqa: A002 - the flag's name
    header: Annotated[bool, typer.Option("--header", help="Short for --format header.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
    min_ttl: MinTtl = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Log in even if the token is valid.")] = False,
    no_login: Annotated[bool, typer.Option("--no-login", help="Exit with code 10 instead of logging in.")] = False,
) -> None:
    """Print a usable access token.

    Logs in first if necessary. With --min-ttl, renews a token that has less
    than DURATION left. Only this command prints a token.

    Examples:

    \b
      xapi token show
      xapi token show --header |
        curl -H @- https://api.example.com/x-api/me
      eval "$(xapi token show --format env)"
      xapi token show --json --min-ttl 1h | jq -r .expires_at
    """
    from xapi_cli.usecases.access_token import show_token

    runtime: Runtime = ctx.obj
    chosen = _only(format, header=header, json=json)
    show_token(runtime, format=chosen, min_ttl=min_ttl, fresh=fresh, automatic=not no_login)


@settings_flags(*ACCOUNT, *NETWORK)
def status(
    ctx: typer.Context,
    *,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, which is the default if stdout is not a terminal.")
    ] = False,
    min_ttl: Annotated[
        str | None,
        typer.Option(
            "--min-ttl", metavar="DURATION", help="Exit with code 10 if the token has less than DURATION left."
        ),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            metavar="PATH",
            help="Also send GET PATH with the token to the API. PATH must require the token.",
        ),
    ] = None,
) -> None:
    """Show the status of the stored token.

    Does not show the token itself. The exit code is 0 if the token is valid,
    otherwise 10. Sends no request, except with --check. The state is rejected
    after a 401, until a later response is neither a 401 nor a 5xx.

    Examples:

    \b
      xapi token status
      xapi token status --min-ttl 7d || echo "log in soon"
      xapi token status --check /x-api/me
    """
    from xapi_cli.usecases.token_status import show_status

    runtime: Runtime = ctx.obj
    show_status(runtime, as_json=json, min_ttl=min_ttl, check=check)


def _only(format_: Format | None, *, header: bool, json: bool) -> Format:
    """Return the one format that the options select; raise UsageError if they select several."""
    options: tuple[tuple[Format | None, bool], ...] = ((format_, True), ("header", header), ("json", json))
    selected = {option for option, is_given in options if is_given and option}
    if len(selected) > 1:
        raise UsageError("--format, --header and --json select different formats", hint="use only one of them")
    return selected.pop() if selected else "token"

"""Print the token, or tell how it stands."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import LOCAL, WIRE, settings_flags
from xapi_cli.errors import UsageError

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime


class Format(StrEnum):
    """How `token show` prints the token."""

    TOKEN = "token"
    HEADER = "header"
    JSON = "json"
    ENV = "env"
    EXEC_CREDENTIAL = "exec-credential"


MinTtl = Annotated[
    str | None, typer.Option("--min-ttl", metavar="DURATION", help="The least time left: 90s, 30m, 2h, 7d, 1h30m.")
]


@settings_flags(*LOCAL, *WIRE)
def show(
    ctx: typer.Context,
    *,
    format: Annotated[Format | None, typer.Option("--format", help="What to print.  [default: token]")] = None,  # noqa: A002 - the flag's name
    header: Annotated[bool, typer.Option("--header", help="Short for --format header.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
    min_ttl: MinTtl = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Log in anew, even if the token is good.")] = False,
    no_login: Annotated[bool, typer.Option("--no-login", help="Never log in: exit with 10 instead.")] = False,
) -> None:
    """Print a usable access token.

    Logs in first where that is needed. No other command prints a token. With
    --min-ttl, one with less time left is renewed first.

    Examples:

    \b
      xapi token show
      xapi token show --header |
        curl -H @- https://api.example.com/x-api/me
      eval "$(xapi token show --format env)"
      xapi token show --json --min-ttl 1h | jq -r .expires_at
    """
    from xapi_cli.auth.token_formats import printed
    from xapi_cli.settings import durations

    runtime: Runtime = ctx.obj
    chosen = _one_of(format, header=header, json=json)
    wanted = durations.seconds(min_ttl, name="--min-ttl") if min_ttl is not None else 0
    if fresh and (no_login or runtime.settings.token):
        raise UsageError(
            f"--fresh cannot go with {'--no-login' if no_login else 'XAPI_TOKEN'}", hint="leave one of them out"
        )
    token, subject = runtime.usable_token(min_ttl=wanted, fresh=fresh, automatic=not no_login)
    if runtime.environ.get("GITHUB_ACTIONS") == "true":
        runtime.terminal.say(f"::add-mask::{_for_runner(token.access_token)}")
    runtime.terminal.out(printed(token, subject, chosen.value, runtime.now()))


@settings_flags(*LOCAL, *WIRE)
def status(
    ctx: typer.Context,
    *,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, as happens anyway where stdout is no terminal.")
    ] = False,
    min_ttl: MinTtl = None,
    check: Annotated[
        str | None, typer.Option("--check", metavar="PATH", help="Ask the API too: GET PATH with the token.")
    ] = None,
) -> None:
    """Tell how the stored token stands.

    The token itself is not shown. Exit code 0 means that it is valid, 10 that
    it is not. No request is made, unless --check asks for one.

    Examples:

    \b
      xapi token status
      xapi token status --min-ttl 7d || echo "log in soon"
      xapi token status --check /x-api/me
    """
    from xapi_cli.settings import durations
    from xapi_cli.usecases.token_status import Status

    runtime: Runtime = ctx.obj
    wanted = durations.seconds(min_ttl, name="--min-ttl") if min_ttl is not None else 0
    Status(runtime, min_ttl=wanted, check=check).tell(as_json=json)


def _one_of(chosen: Format | None, *, header: bool, json: bool) -> Format:
    given = [
        form for form, wanted in ((chosen, chosen), (Format.HEADER, header), (Format.JSON, json)) if wanted and form
    ]
    if len(set(given)) > 1:
        raise UsageError("--format, --header and --json ask for different things", hint="give one of them")
    return given[0] if given else Format.TOKEN


def _for_runner(secret: str) -> str:
    # https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts: what a command's data may not hold
    return secret.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

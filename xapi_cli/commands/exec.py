"""Run a command that finds the token in its environment."""

from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import LOCAL, WIRE, settings_flags

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

CONTEXT = {"allow_interspersed_args": False}  # what comes after COMMAND is its own: `xapi exec ls -u`


@settings_flags(*LOCAL, *WIRE)
def exec_(
    ctx: typer.Context,
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND [ARG]...", help="What to run.", show_default=False)
    ],
    *,
    min_ttl: Annotated[
        str | None, typer.Option("--min-ttl", metavar="DURATION", help="Renew a token with less time left than this.")
    ] = None,
) -> None:
    """Run a command that gets the token.

    COMMAND finds it in XAPI_TOKEN, and the base URL in XAPI_BASE_URL, after a
    login where one is needed. XAPI_TOKEN_BASE_URL binds the token to that base
    URL: an xapi in COMMAND refuses to use it for another one. XAPI_PASSWORD is
    not passed on. xapi's own flags come before COMMAND. The exit code is COMMAND's, 127 when it is not found,
    126 when it cannot be run.

    Examples:

    \b
      xapi exec -- ./deploy.sh
      xapi exec --min-ttl 1h -- python3 report.py --all
    """
    from xapi_cli.settings import durations
    from xapi_cli.usecases import exec as usecase

    runtime: Runtime = ctx.obj
    wanted = durations.seconds(min_ttl, name="--min-ttl") if min_ttl is not None else 0
    token, subject = runtime.usable_token(min_ttl=wanted)
    is_from_profile = not (runtime.flags.get("base_url") or runtime.environ.get("XAPI_BASE_URL"))
    environ = usecase.environment(
        runtime.environ,
        token=token.access_token,
        base_url=subject.base_url,
        profile=runtime.settings.profile if is_from_profile else None,
    )
    raise typer.Exit(usecase.run(command, environ, runtime.terminal))

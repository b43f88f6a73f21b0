"""`xapi exec`: the token for programs that read it from the environment."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import ACCOUNT, NETWORK, MinTtl, settings_flags
from xapi_cli.settings import config_file, resolve, values
from xapi_cli.settings.table import other_tokens, without_secrets
from xapi_cli.system import programs, signals

if TYPE_CHECKING:
    from xapi_cli.context import Context

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
    context: Context = ctx.obj
    seconds = 0.0 if min_ttl is None else values.seconds(min_ttl, name="--min-ttl")
    base_url, token = context.settings.base_url, context.supplied_token()
    if not token:
        account = context.account()
        base_url, token = account.identity.base_url, account.token(min_ttl=seconds).access_token
    raise typer.Exit(_execute(command, _environment(context, token, base_url)))


def _environment(context: "Context", token: str, base_url: str | None) -> dict[str, str]:
    """Return the environment of a command that gets *token* for *base_url*, and no other secret.

    XAPI_PROFILE is removed if that profile has another base URL, because a profile that is named must not (see
    `resolve`).
    """
    others = other_tokens(context.environ)
    environ = {name: value for name, value in without_secrets(context.environ).items() if name not in others}
    environ["XAPI_TOKEN"] = token
    if base_url:
        profile = context.settings.profile
        own = resolve.account_in_profile(profile, config_file.load(context.config_path)).get("base_url")
        environ.pop("XAPI_PROFILE", None)
        environ |= {"XAPI_PROFILE": profile} if own in (None, base_url) else {}
        environ["XAPI_BASE_URL"] = base_url
    return environ


def _execute(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Replace this process with *command*; on Windows, return its exit code. Raises CommandError."""
    if sys.platform == "win32":
        with signals.ignored_interrupts():  # the command gets them too, and its exit code is the result
            return programs.start(command, environ).wait()
    try:
        if not command[0]:
            raise FileNotFoundError
        signals.cancel_alarm()  # it would survive exec() and kill the new program
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; `xapi exec -- yes | head` must end
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(command[0], list(command), environ)
    except (OSError, ValueError) as error:
        raise programs.start_failure(command[0], error) from error

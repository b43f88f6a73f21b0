"""`xapi exec`: the token for programs that read it from the environment."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import ACCOUNT, NETWORK, MinTtl, settings_flags
from xapi_cli.settings import values
from xapi_cli.system import signals
from xapi_cli.usecases import child_command

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

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
    runtime: Runtime = ctx.obj
    seconds = 0.0 if min_ttl is None else values.seconds(min_ttl, name="--min-ttl")
    base_url, token = runtime.settings.base_url, runtime.supplied_token()
    if not token:
        account = runtime.account()
        base_url, token = account.identity.base_url, account.token(min_ttl=seconds).access_token
    profile = child_command.profile_of_base_url(runtime)
    environ = child_command.environment(runtime.environ, token=token, base_url=base_url, profile=profile)
    raise typer.Exit(_execute(command, environ))


def _execute(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Replace this process with *command*; on Windows, return its exit code. Raises CommandError."""
    if sys.platform == "win32":
        with signals.ignored_interrupts():  # the command gets them too, and its exit code is the result
            return child_command.start(command, environ).wait()
    try:
        if not command[0]:
            raise FileNotFoundError
        signals.cancel_alarm()  # it would survive exec() and kill the new program
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; `xapi exec -- yes | head` must end
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(command[0], list(command), environ)
    except (OSError, ValueError) as error:
        raise child_command.failure(command[0], error, environ) from error

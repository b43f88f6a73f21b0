"""Print a usable access token in one of the formats of `xapi token show`."""

from typing import TYPE_CHECKING

from xapi_cli.auth.token_formats import formatted
from xapi_cli.errors import UsageError
from xapi_cli.usecases.access_token import usable_token

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime


def show_token(runtime: "Runtime", *, format: str, min_ttl: str | None, fresh: bool, automatic: bool) -> None:  # noqa: A002 - the flag's name
    """Print a token that is valid for the duration *min_ttl*; with *fresh*, always a new one.

    Raises UsageError for arguments that exclude each other, LoginNeeded if a login is necessary and not *automatic*,
    and the errors of a login.
    """
    seconds = 0.0
    if min_ttl is not None:
        from xapi_cli.settings import durations

        seconds = durations.seconds(min_ttl, name="--min-ttl")
    if fresh and (not automatic or runtime.settings.token_variable):
        other = runtime.settings.token_variable if automatic else "--no-login"
        raise UsageError(f"--fresh and {other} cannot be used together", hint="use only one of them")
    token, subject = usable_token(runtime, min_ttl=seconds, fresh=fresh, automatic=automatic)
    if runtime.environ.get("GITHUB_ACTIONS") == "true":
        runtime.terminal.print_stderr(f"::add-mask::{_escaped_for_runner(token.access_token)}")
    runtime.terminal.print(formatted(token, subject, format, runtime.now()))


def _escaped_for_runner(data: str) -> str:
    # https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
    return data.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

"""Run a command in place of xapi, with the token in its environment."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from xapi_cli.system import signals
from xapi_cli.usecases import child_command
from xapi_cli.usecases.access_token import min_ttl_of, usable_token

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime


def run(runtime: "Runtime", command: Sequence[str], *, min_ttl: str | None) -> int:
    """Replace this process with *command*, whose environment has a token that is valid for *min_ttl*.

    On Windows, return its exit code after it has ended. Raises CommandError if it cannot be executed, UsageError for
    an invalid *min_ttl*, and the errors of a login.
    """
    token, subject = usable_token(runtime, min_ttl=min_ttl_of(min_ttl))
    environ = child_command.environment(
        runtime.environ,
        token=token.access_token,
        base_url=subject.base_url,
        profile=child_command.profile_of_base_url(runtime),
    )
    return _execute(command, environ)


def _execute(command: Sequence[str], environ: Mapping[str, str]) -> int:
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

"""Run a command in place of xapi, with the token in its environment."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from xapi_cli.errors import UsageError
from xapi_cli.settings import durations
from xapi_cli.settings.table import without_secrets
from xapi_cli.system import own_process, programs, signals
from xapi_cli.system.render import printable
from xapi_cli.usecases.access_token import usable_token

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime
    from xapi_cli.system.terminal import Terminal

# The exit codes that shells use (POSIX, "2.8.2 Exit Status for Commands").
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


def run(runtime: "Runtime", command: Sequence[str], *, min_ttl: str | None) -> int:
    """Replace this process with *command*, whose environment has a token that is valid for *min_ttl*.

    Return an exit code if the command cannot be executed or, on Windows, after it has ended. Raises
    UsageError for an invalid *min_ttl*, and the errors of a login.
    """
    seconds = durations.seconds(min_ttl, name="--min-ttl") if min_ttl is not None else 0
    token, subject = usable_token(runtime, min_ttl=seconds)
    is_from_profile = not (runtime.flags.get("base_url") or runtime.environ.get("XAPI_BASE_URL"))
    environ = _environment(
        runtime.environ,
        token=token.access_token,
        base_url=subject.base_url,
        profile=runtime.settings.profile if is_from_profile else None,
    )
    return _execute(command, environ, runtime.terminal)


def _environment(
    environ: Mapping[str, str], *, token: str, base_url: str | None, profile: str | None
) -> dict[str, str]:
    """Return *environ* with the *token*, bound to *base_url*, and without the other secrets.

    XAPI_PROFILE is set to the *profile* that the base URL comes from. If the base URL comes from elsewhere,
    *profile* is None and XAPI_PROFILE is removed, so that an XAPI_PROFILE that is set inside the command can
    be distinguished from one that xapi itself has read.
    """
    changed = without_secrets(environ) | {"XAPI_TOKEN": token}
    changed.pop("XAPI_TOKEN_FILE", None)  # both must not be set
    if not base_url:
        return changed
    if profile is not None:
        changed["XAPI_PROFILE"] = profile
    elif "XAPI_TOKEN_BASE_URL" not in environ:  # in a nested `exec`, the outer one has selected the profile
        changed.pop("XAPI_PROFILE", None)
    return changed | {"XAPI_BASE_URL": base_url, "XAPI_TOKEN_BASE_URL": base_url}


def _execute(command: Sequence[str], environ: Mapping[str, str], terminal: "Terminal") -> int:
    name = printable(command[0])
    try:
        if not command[0]:
            raise FileNotFoundError
        if sys.platform == "win32":
            path = programs.find(command[0], environ)
            with signals.ignored_interrupts():  # the command gets them too, and its exit code is the result
                return programs.ChildProcess([path, *command[1:]], env=environ).wait()
        _restore_defaults()
        os.execvpe(command[0], list(command), environ)
    except FileNotFoundError:
        terminal.fail(UsageError(f"{name or repr(name)}: not found", hint="check the name and PATH"))
        return _NOT_FOUND
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "invalid arguments"
        terminal.fail(UsageError(f"{name}: cannot be executed: {reason}", hint="check that it is an executable file"))
        return _NOT_EXECUTABLE


def _restore_defaults() -> None:
    """Restore the state of the process that the new program would inherit."""
    signals.restore()  # an alarm of xapi would survive exec() and kill the new program
    own_process.restore_core_limit()
    # Python ignores these signals. If the new program did too, `xapi exec -- yes | head` would not end.
    if sys.platform != "win32":
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)

"""Run a command in place of xapi, with the token in its environment."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence

from xapi_cli.system import process_hardening, signals
from xapi_cli.system.render import printable
from xapi_cli.system.terminal import Terminal

NOT_FOUND, NOT_RUNNABLE = 127, 126


def environment(environ: Mapping[str, str], *, token: str, base_url: str | None, profile: str | None) -> dict[str, str]:
    """Return *environ* with the *token*, bound to *base_url*, and without the password.

    XAPI_PROFILE is set to the *profile* that the base URL comes from. If the base URL comes from elsewhere,
    *profile* is None and XAPI_PROFILE is removed, so that an XAPI_PROFILE that is set inside the command can
    be distinguished from one that xapi itself has read.
    """
    changed = {name: value for name, value in environ.items() if name != "XAPI_PASSWORD"} | {"XAPI_TOKEN": token}
    if not base_url:
        return changed
    if profile is not None:
        changed["XAPI_PROFILE"] = profile
    elif "XAPI_TOKEN_BASE_URL" not in environ:  # in a nested `exec`, the outer one has selected the profile
        changed.pop("XAPI_PROFILE", None)
    return changed | {"XAPI_BASE_URL": base_url, "XAPI_TOKEN_BASE_URL": base_url}


def run(command: Sequence[str], environ: Mapping[str, str], terminal: Terminal) -> int:
    """Replace this process with *command*.

    Return an exit code if the command cannot be run or, on Windows, after it has ended.
    """
    name = printable(command[0])
    try:
        if not command[0]:
            raise FileNotFoundError
        if sys.platform == "win32":
            import subprocess

            return subprocess.run(command, env=environ, check=False).returncode
        signals.release()  # a pending alarm survives exec() and would kill the new program
        process_hardening.allow_again()
        # Python ignores these signals, and the new program would inherit that: `xapi exec -- yes | head` would not end.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(command[0], list(command), environ)
    except FileNotFoundError:
        terminal.say(f"xapi: error: {name}: not found; check the name and PATH")
        return NOT_FOUND
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "the arguments cannot be used"
        terminal.say(f"xapi: error: {name}: cannot be run: {reason}; is it an executable file?")
        return NOT_RUNNABLE

"""A command of the user, and the token in its environment: what `exec` and `proxy` share."""

import errno
import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from xapi_cli.errors import CommandError
from xapi_cli.settings import config_file, resolve
from xapi_cli.settings.table import other_tokens, without_secrets
from xapi_cli.system import programs
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime

_MAX_LINE = 256  # bytes, the longest #! line of Linux


def profile_of_base_url(runtime: "Runtime") -> str | None:
    """Return the selected profile, None if it has another base URL than the one in use."""
    own = resolve.account_in_profile(runtime.settings.profile, config_file.load(runtime.config_path)).get("base_url")
    return runtime.settings.profile if own in (None, runtime.settings.base_url) else None


def environment(environ: Mapping[str, str], *, token: str, base_url: str | None, profile: str | None) -> dict[str, str]:
    """Return *environ* with the *token* for *base_url*, and without the other secrets.

    XAPI_PROFILE is the *profile*; if that is None, it is removed, because a profile that is named must not have another
    base URL than the token (see `resolve`).
    """
    others = other_tokens(environ)
    changed = {name: value for name, value in without_secrets(environ).items() if name not in others}
    changed["XAPI_TOKEN"] = token
    if not base_url:
        return changed
    changed.pop("XAPI_PROFILE", None)
    return changed | ({"XAPI_PROFILE": profile} if profile is not None else {}) | {"XAPI_BASE_URL": base_url}


def start(command: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start *command* with *environ*; raises CommandError if it cannot be executed."""
    try:
        if not command[0]:
            raise FileNotFoundError
        return subprocess.Popen([programs.find(command[0], environ), *command[1:]], env=environ)
    except (OSError, ValueError) as error:
        raise failure(command[0], error, environ) from error


def failure(name: str, error: OSError | ValueError, environ: Mapping[str, str]) -> CommandError:
    """Return the failure for the *error* with which the command *name* could not be executed."""
    shown = printable(name)
    hint, reason = "check that it is an executable file", "invalid arguments"
    if isinstance(error, OSError):
        reason = error.strerror or reason
    if isinstance(error, FileNotFoundError) or (isinstance(error, OSError) and error.errno == errno.ENOEXEC):
        try:
            with open(programs.find(name, environ), "rb") as file:
                first = file.readline(_MAX_LINE)
        except OSError:
            return CommandError(f"{shown or repr(shown)}: not found", hint="check the name and PATH", is_missing=True)
        interpreter = printable(first[2:].strip().decode("utf-8", "replace"))
        if not first.startswith(b"#!"):
            reason, hint = "it has no #! line", "add one, such as #!/bin/sh, or name its interpreter before it"
        elif first.endswith(b"\r\n"):
            reason, hint = f"the line #!{interpreter} ends as on Windows", "convert the line ends of the file"
        else:
            reason, hint = f"its interpreter {interpreter} was not found", "check its #! line"
    return CommandError(f"{shown}: cannot be executed: {reason}", hint=hint)

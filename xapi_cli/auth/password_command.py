"""Gets a password from the password_command of a profile, which prints the password of a login."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence

from xapi_cli.errors import LoginNeeded, TimeoutExpired
from xapi_cli.settings.table import without_secrets
from xapi_cli.system import programs
from xapi_cli.system.render import printable

TIMEOUT = 60.0  # seconds; timeout of a password command
_MAX_SIZE = 64 * 1024


def from_command(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    setting: str = "password_command",
    limit: float = TIMEOUT,
    deadline: float | None = None,
    show_stderr: bool = False,
) -> str:
    """Return the first line that *command* prints.

    It runs without a shell, with an empty stdin, without xapi's secrets in its environment, and for at most *limit*
    seconds. Raises LoginNeeded, which names *setting* and never contains its output, if it fails in any way, and
    TimeoutExpired if the monotonic time *deadline*, at which the whole xapi command times out, comes first. Its stderr
    is discarded: it may contain secrets, and xapi's stderr may be a log. With *show_stderr*, the user sees it on a
    terminal: it may explain a failure or ask the user to touch a security key.
    """
    left = limit if deadline is None else max(0.0, deadline - time.monotonic())
    name = f"{setting} {printable(os.path.basename(command[0]))!r}"
    try:
        program = programs.Invocation(command, without_secrets(environ), _MAX_SIZE, show_stderr=show_stderr)
        output, exit_code = programs.run(program, min(limit, left))
    except (OSError, ValueError) as error:
        raise _failed(name, f"cannot be run: {getattr(error, 'strerror', None) or 'invalid argument'}") from error
    except subprocess.TimeoutExpired:
        if left < limit:
            raise TimeoutExpired(f"{name} did not finish before --max-time expired", hint="raise --max-time") from None
        raise _failed(name, f"timed out after {limit:.0f} s") from None
    if len(output) > _MAX_SIZE:
        raise _failed(name, "printed more than 64 KiB")
    if exit_code:
        raise _failed(name, programs.describe_failure(exit_code), command)
    if not (password := first_line(output)):
        raise _failed(name, "printed no password on its first line", command)
    return password


def first_line(output: bytes) -> str:
    """Return the first line of *output* as text, without its end; the bytes of any other encoding are preserved."""
    return output.partition(b"\n")[0].removesuffix(b"\r").decode("utf-8", "surrogateescape")


def _failed(name: str, how: str, command: Sequence[str] = ()) -> LoginNeeded:
    """Return the error about the command *name*; *command* is given if its arguments may be the cause."""
    from xapi_cli.settings.password_command import unexpanded

    syntax = unexpanded(command) if command else None
    if syntax == "~":
        hint = "write an absolute path instead of ~, which is not expanded because the command runs without a shell"
    elif syntax:
        hint = f"write sh -c 'COMMAND', because {syntax} is shell syntax and the command runs without a shell"
    else:
        hint = "run the command yourself to see why"
    return LoginNeeded(f"{name} {how}", hint=hint)

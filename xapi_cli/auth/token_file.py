"""Reads the file that XAPI_TOKEN_FILE names, for example a token that Kubernetes mounts and replaces."""

import os
import stat

from xapi_cli.errors import UsageError
from xapi_cli.system.render import printable
from xapi_cli.system.safe_paths import open_file
from xapi_cli.tokens import is_access_token

_MAX_SIZE = 64 * 1024  # bytes


def read(path: str) -> str:
    """Return the token in the file *path*, without the whitespace around it; raise UsageError if there is none.

    The file may belong to any user, because a container gets it from another one.
    """
    name = printable(path)
    try:
        # without O_NONBLOCK, opening a FIFO waits until another process writes to it
        descriptor = open_file(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _error(f"{name} is not a regular file")
            data = file.read(_MAX_SIZE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "invalid path"
        raise _error(f"{name} cannot be read: {reason}") from error
    if len(data) > _MAX_SIZE:
        raise _error(f"{name} is larger than 64 KiB")
    token = data.strip().decode("ascii", "replace")
    if not token:
        raise _error(f"{name} is empty")
    if any(character.isspace() for character in token):
        raise _error(f"{name} contains more than a token: there is whitespace in the middle")
    if not is_access_token(token):
        raise _error(f"{name} contains characters that are not allowed in a token")
    return token


def _error(problem: str) -> UsageError:
    return UsageError(f"XAPI_TOKEN_FILE: {problem}", hint="name a file that contains only the token")

"""Where a login finds the password, when nobody types it."""

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, cast

from xapi_cli.errors import LoginNeeded, TimeoutExpired
from xapi_cli.render import printable
from xapi_cli.settings import SECRETS

LIMIT = 60.0  # seconds a password command may take
_LARGEST = 64 * 1024


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return *environ* as a child process may see it."""
    return {name: value for name, value in environ.items() if name not in SECRETS}


def from_command(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    limit: float = LIMIT,
    deadline: float | None = None,
    watched: bool = False,
) -> str:
    """Return the first line that *command* prints.

    It runs without a shell, with nothing on stdin and none of xapi's secrets
    in its environment, for *limit* seconds at most. Raises LoginNeeded, which
    never holds its output, when it fails in any way, and TimeoutExpired when
    the monotonic time *deadline*, that of the whole command, comes first.
    What it says on stderr goes nowhere, for it may hold secrets and stderr be
    a log; *watched* by a person, on a terminal, it is shown: it may say why it
    fails, or ask to touch a key.
    """
    left = limit if deadline is None else max(0.0, deadline - time.monotonic())
    name = f"password_command {printable(os.path.basename(command[0]))!r}"
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if watched else subprocess.DEVNULL,
            env=without_secrets(environ),
        )
    except (OSError, ValueError) as error:
        raise _failed(name, f"cannot be run: {getattr(error, 'strerror', None) or 'invalid argument'}") from error
    try:
        output = _first_bytes(process, min(limit, left))
    except subprocess.TimeoutExpired:
        if left < limit:
            raise TimeoutExpired(f"{name} did not end in time", hint="raise --max-time") from None
        raise _failed(name, f"took longer than {limit:.0f} s") from None
    if len(output) > _LARGEST:
        raise _failed(name, "printed more than 64 KiB")
    if process.returncode:
        raise _failed(name, f"failed with exit code {process.returncode}")
    return _first_line(output, name)


def _first_bytes(process: "subprocess.Popen[bytes]", limit: float) -> bytes:
    """Return what *process* printed until it ended: a child it leaves behind may hold the pipe open for ever."""
    output, done = bytearray(), threading.Event()
    reader = threading.Thread(target=_read, args=(process, output, done), daemon=True)
    reader.start()
    try:
        process.wait(limit)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    done.wait(0.2 if len(output) <= _LARGEST else 0)  # what it printed last may still be in the pipe
    return bytes(output)


def _read(process: "subprocess.Popen[bytes]", output: bytearray, done: threading.Event) -> None:
    with cast("IO[bytes]", process.stdout) as pipe:
        while chunk := os.read(pipe.fileno(), 65536):
            output += chunk
            if len(output) > _LARGEST:
                process.kill()
                break
    done.set()


def _first_line(output: bytes, name: str) -> str:
    line = output.partition(b"\n")[0].removesuffix(b"\r")
    if not line:
        raise _failed(name, "printed no password on its first line")
    return line.decode("utf-8", "surrogateescape")


def _failed(name: str, how: str) -> LoginNeeded:
    return LoginNeeded(f"{name} {how}", hint="run it by hand to see why; nothing else was tried")

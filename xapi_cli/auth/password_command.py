"""Runs the password_command of a profile, which prints the password of a login."""

import errno
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from xapi_cli.errors import LoginNeeded, TimeoutExpired
from xapi_cli.settings.table import SECRET_VARIABLES
from xapi_cli.system.render import printable

TIMEOUT = 60.0  # seconds; timeout of a password command
_LARGEST = 64 * 1024


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return *environ* without xapi's secrets, for a child process."""
    return {name: value for name, value in environ.items() if name not in SECRET_VARIABLES}


def find(program: str, environ: Mapping[str, str]) -> str:
    """Return the path of *program*; a bare name is searched for in the absolute directories of PATH.

    A relative directory, such as `.`, would let the current directory, perhaps an untrusted repository, determine
    which program runs. Raises FileNotFoundError if the program is not found.
    """
    from shutil import which

    if os.path.dirname(program):
        return program
    places = [place for place in os.get_exec_path(environ) if os.path.isabs(place)]
    if (found := which(program, path=os.pathsep.join(places))) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    return found


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
        output, exit_code = _run(command, environ, min(limit, left), show_stderr=show_stderr)
    except (OSError, ValueError) as error:
        raise _failed(name, f"cannot be run: {getattr(error, 'strerror', None) or 'invalid argument'}") from error
    except subprocess.TimeoutExpired:
        if left < limit:
            raise TimeoutExpired(f"{name} did not finish before --max-time expired", hint="raise --max-time") from None
        raise _failed(name, f"timed out after {limit:.0f} s") from None
    if len(output) > _LARGEST:
        raise _failed(name, "printed more than 64 KiB")
    if exit_code:
        raise _failed(name, f"failed with exit code {exit_code}")
    if not (password := first_line(output)):
        raise _failed(name, "printed no password on its first line")
    return password


def first_line(output: bytes) -> str:
    """Return the first line of *output* as text, without its end; the bytes of any other encoding are preserved."""
    return output.partition(b"\n")[0].removesuffix(b"\r").decode("utf-8", "surrogateescape")


def _run(command: Sequence[str], environ: Mapping[str, str], limit: float, *, show_stderr: bool) -> tuple[bytes, int]:
    """Return what *command* printed until it exited, and its exit code.

    A child process that it leaves running may hold the pipe open, so the end of the output is not the end of the file:
    after the command has exited, a mark is written to the pipe, after everything that the command wrote. Raises
    subprocess.TimeoutExpired after *limit* seconds.
    """
    mark = os.urandom(16)
    source, sink = os.pipe()
    with open(sink, "wb", buffering=0) as pipe:
        try:
            process = subprocess.Popen(
                command,
                executable=find(command[0], environ),
                stdin=subprocess.DEVNULL,
                stdout=pipe,
                stderr=None if show_stderr else subprocess.DEVNULL,
                env=without_secrets(environ),
            )
        except BaseException:
            os.close(source)
            raise
        reader = _Reader(source, mark, process.kill)
        try:
            process.wait(limit)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        with suppress(BrokenPipeError):  # the reader has read more than the limit and closed the pipe
            pipe.write(mark)
        return reader.result(), process.returncode


class _Reader:
    """Read the pipe *source* up to *mark* in a thread; call *kill* if the output is larger than the limit."""

    def __init__(self, source: int, mark: bytes, kill: Callable[[], None]) -> None:
        self._source, self._mark, self._kill = source, mark, kill
        self._output = bytearray()
        self._thread = threading.Thread(target=self._read, name="xapi-password", daemon=True)
        self._thread.start()

    def result(self) -> bytes:
        """Return the output before the mark, which must have been written."""
        self._thread.join()
        return bytes(self._output)

    def _read(self) -> None:
        with open(self._source, "rb", buffering=0) as pipe:
            while len(self._output) <= _LARGEST + len(self._mark) and (chunk := pipe.read(65536)):
                self._output += chunk
                if self._mark in self._output:
                    break
        before, found, _ = self._output.partition(self._mark)
        self._output = before
        if not found:
            self._kill()


def _failed(name: str, how: str) -> LoginNeeded:
    return LoginNeeded(f"{name} {how}", hint="run the command yourself to see why; no other password source was tried")

"""Where a login finds the password, when nobody types it."""

import errno
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from xapi_cli.errors import LoginNeeded, TimeoutExpired
from xapi_cli.settings.resolve import SECRETS
from xapi_cli.system.render import printable

LIMIT = 60.0  # seconds a password command may take
_LARGEST = 64 * 1024


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return *environ* as a child process may see it."""
    return {name: value for name, value in environ.items() if name not in SECRETS}


def find(program: str, environ: Mapping[str, str]) -> str:
    """Return the path of *program*, a bare name being looked up in those directories of PATH that are absolute.

    A relative one, such as `.`, would let the current directory, perhaps somebody's repository, choose what is run.
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
        output, exit_code = _run(command, environ, min(limit, left), watched=watched)
    except (OSError, ValueError) as error:
        raise _failed(name, f"cannot be run: {getattr(error, 'strerror', None) or 'invalid argument'}") from error
    except subprocess.TimeoutExpired:
        if left < limit:
            raise TimeoutExpired(f"{name} did not end in time", hint="raise --max-time") from None
        raise _failed(name, f"took longer than {limit:.0f} s") from None
    if len(output) > _LARGEST:
        raise _failed(name, "printed more than 64 KiB")
    if exit_code:
        raise _failed(name, f"failed with exit code {exit_code}")
    return _first_line(output, name)


def _run(command: Sequence[str], environ: Mapping[str, str], limit: float, *, watched: bool) -> tuple[bytes, int]:
    """Return what *command* printed until it exited, and its exit code.

    A child process that it leaves running may hold the pipe open, so the end of the output is not the end of the file:
    when the command has exited, a mark is written into the pipe, behind everything that the command wrote.
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
                stderr=None if watched else subprocess.DEVNULL,
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
        with suppress(BrokenPipeError):  # the reader has read more than the limit
            pipe.write(mark)
        return reader.result(), process.returncode


class _Reader:
    """Reads the pipe *source* up to *mark* in a thread; calls *kill* once there is more to read than the limit."""

    def __init__(self, source: int, mark: bytes, kill: Callable[[], None]) -> None:
        self._source, self._mark, self._kill = source, mark, kill
        self._output = bytearray()
        self._thread = threading.Thread(target=self._read, name="xapi-password", daemon=True)
        self._thread.start()

    def result(self) -> bytes:
        """Return what came before the mark, which has been written."""
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


def _first_line(output: bytes, name: str) -> str:
    line = output.partition(b"\n")[0].removesuffix(b"\r")
    if not line:
        raise _failed(name, "printed no password on its first line")
    return line.decode("utf-8", "surrogateescape")


def _failed(name: str, how: str) -> LoginNeeded:
    return LoginNeeded(f"{name} {how}", hint="run it by hand to see why; nothing else was tried")

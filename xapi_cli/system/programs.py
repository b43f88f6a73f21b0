"""Run a program for its output, with limits of time and size; the current directory never determines which one."""

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from xapi_cli.errors import CommandError
from xapi_cli.system.render import printable

_SLICE = 0.05  # seconds between two checks of the time that is left


def find(program: str, environ: Mapping[str, str]) -> str:
    """Return the path of *program*; a bare name is searched for in the absolute directories of PATH.

    A relative directory, such as `.`, would let the current directory, perhaps an untrusted repository, determine
    which program runs. Raises FileNotFoundError if the program is not found.
    """
    from shutil import which

    if os.path.dirname(program):
        return program
    suffixes = ["", *environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(";")] if sys.platform == "win32" else [""]
    for directory in filter(os.path.isabs, os.get_exec_path(environ)):
        for suffix in suffixes:
            if found := which(os.path.join(directory, program + suffix)):
                return found
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def start(command: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start *command* with *environ*; raises CommandError if it cannot be executed."""
    try:
        if not command[0]:
            raise FileNotFoundError
        return subprocess.Popen([find(command[0], environ), *command[1:]], env=environ)
    except (OSError, ValueError) as error:
        raise start_failure(command[0], error) from error


def start_failure(name: str, error: OSError | ValueError) -> CommandError:
    """Return the failure for the *error* with which the command *name* could not be executed."""
    shown = printable(name)
    path = error.filename if isinstance(error, OSError) else None
    if isinstance(error, FileNotFoundError) and not (path and os.path.exists(path)):
        return CommandError(f"{shown or repr(shown)}: not found", hint="check the name and PATH", is_missing=True)
    reason = getattr(error, "strerror", None) or "invalid arguments"
    hint = "check that it is an executable file, and its #! line"
    return CommandError(f"{shown}: cannot be executed: {reason}", hint=hint)


def describe_failure(exit_code: int) -> str:
    """Return how a program with the *exit_code* of `run`, which is not 0, ended: negative values are signals."""
    if exit_code > 0:
        return f"failed with exit code {exit_code}"
    try:
        return f"was terminated by {signal.Signals(-exit_code).name}"
    except ValueError:  # most real-time signals have no name
        return f"was terminated by signal {-exit_code}"


def run(
    command: Sequence[str],
    environ: Mapping[str, str],
    left: Callable[[], float],
    *,
    max_output: int,
    data: bytes = b"",
    in_background: bool = False,
    show_stderr: bool = False,
) -> tuple[bytes, int]:
    """Return what *command*, with *data* as its stdin, printed until it exited, and its exit code.

    It is killed if it prints more than *max_output* bytes; the output is longer then. If it runs *in_background*, it
    must not read from the terminal, and its child processes are killed with it. Its stderr is discarded, unless
    *show_stderr*. *left* returns the seconds that are left. Raises OSError or ValueError if the command cannot be run,
    and subprocess.TimeoutExpired.

    A child process that it leaves running may hold the pipe open, so the end of the output is not the end of the file:
    a mark is written to the pipe after the exit, and so after everything that the program wrote.
    """
    path, has_group = find(command[0], environ), in_background and sys.platform != "win32"
    source, sink = os.pipe()
    try:
        process = subprocess.Popen(
            command,
            executable=path,
            stdin=subprocess.PIPE if data else subprocess.DEVNULL,
            stdout=sink,
            stderr=None if show_stderr else subprocess.DEVNULL,
            env=environ,
            process_group=0 if has_group else None,
            bufsize=0,
        )
    except BaseException:
        os.close(source)
        os.close(sink)
        raise
    output, mark = bytearray(), os.urandom(16)

    def write() -> None:
        with suppress(OSError), process.stdin as pipe:  # type: ignore[union-attr]  # it may exit without reading
            pipe.write(data)

    def read() -> None:
        with open(source, "rb", buffering=0) as pipe:
            while len(output) <= max_output + len(mark) and (chunk := pipe.read(65536)):
                output.extend(chunk)
                if mark in output:
                    return
            _kill(process, group=has_group)  # before the pipe is closed: SIGPIPE would be another failure

    reader = threading.Thread(target=read, daemon=True)
    try:
        reader.start()
        if data:
            threading.Thread(target=write, daemon=True).start()
        _wait(process, left)
        with suppress(OSError):  # the reader has read more than the limit and closed the pipe
            os.write(sink, mark)
        reader.join()
        return bytes(output.partition(mark)[0]), process.returncode
    finally:
        os.close(sink)
        if process.returncode is None:
            _kill(process, group=has_group)
            process.wait()


def _wait(process: "subprocess.Popen[bytes]", left: Callable[[], float]) -> None:
    while process.returncode is None:
        try:
            process.wait(_SLICE)
        except subprocess.TimeoutExpired:
            if left() <= 0:
                raise


def _kill(process: "subprocess.Popen[bytes]", *, group: bool) -> None:
    if group and sys.platform != "win32":
        with suppress(ProcessLookupError, PermissionError):  # macOS: PermissionError if all are zombies
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()

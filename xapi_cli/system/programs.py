"""Runs a program for its output, with limits of time and size; the current directory never determines which one."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from xapi_cli.system import own_process, signals
from xapi_cli.system.lifeline import killed_at_end

if sys.platform == "win32":
    from xapi_cli.system import windows

UNKNOWN_EXIT = 256  # the exit code of a program whose exit status is lost: greater than that of any program
_SLICE = 0.05  # seconds between two checks of the remaining time
# Runs a program and then prints the argument 0 and its exit status, which only a parent process can read.
_REPORTING_SHELL = ("/bin/sh", "-c", '"$@"; echo "$0$?"')


class Invocation(NamedTuple):
    """A program and how it runs: *command* in *environ*, with *data* as its stdin.

    It is killed if it prints more than *max_output* bytes. If it is *in_background*, it must not read from the
    terminal, and its child processes are killed with it. Its stderr is discarded, unless *show_stderr*. It inherits the
    end of a pipe, *lifeline*, and is killed at the end of that pipe.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    max_output: int
    data: bytes = b""
    in_background: bool = False
    show_stderr: bool = False
    lifeline: int | None = None


TimeLimit = float | Callable[[], float]  # the time in seconds, or a function that returns the remaining seconds


def find(program: str, environ: Mapping[str, str]) -> str:
    """Return the path of *program*; a bare name is searched for in the absolute directories of PATH.

    A relative directory, such as `.`, would let the current directory, perhaps an untrusted repository, determine
    which program runs. Raises FileNotFoundError if the program is not found.
    """
    from shutil import which

    if os.path.dirname(program):
        return program
    if sys.platform == "win32":
        for path in windows.program_places(program, environ):
            if os.path.isfile(path):
                return path
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    places = [place for place in os.get_exec_path(environ) if os.path.isabs(place)]
    if (found := which(program, path=os.pathsep.join(places))) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    return found


def describe_failure(exit_code: int) -> str:
    """Return how a program with the *exit_code* of `run`, which is not 0, ended: negative values are signals."""
    if exit_code == UNKNOWN_EXIT:
        return "has ended, but its exit status is unknown"
    if exit_code > 0:
        return f"failed with exit code {exit_code}"
    try:
        return f"was terminated by {signal.Signals(-exit_code).name}"
    except ValueError:  # most real-time signals have no name
        return f"was terminated by signal {-exit_code}"


class ChildProcess(subprocess.Popen[bytes]):
    """A child process with the blocked and ignored signals, and the limit of open files, that the caller of xapi had.

    Its exit code is UNKNOWN_EXIT, instead of 0 as subprocess reports it, if other code in this process has waited for
    it, or SIGCHLD is ignored.
    """

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        if sys.platform == "win32":
            path = options.pop("executable", None) or command[0]
            super().__init__(windows.command_line([path, *command[1:]]), **options)
            return
        with signals.of_caller() as ignore:
            prepare = [each for each in (ignore, own_process.descriptor_limit_of_caller()) if each is not None]
            super().__init__(command, preexec_fn=(lambda: [each() for each in prepare]) if prepare else None, **options)

    def poll(self) -> int | None:
        """Return the exit code, or None if the process is still running."""
        if self.returncode is None:
            with suppress(subprocess.TimeoutExpired):
                self.wait(0)
        return self.returncode

    if sys.platform != "win32":

        def _try_wait(self, wait_flags: int) -> tuple[int, int]:
            try:
                return os.waitpid(self.pid, wait_flags)
            except ChildProcessError:
                self.returncode = UNKNOWN_EXIT
                return 0, 0


def run(program: Invocation, limit: TimeLimit) -> tuple[bytes, int]:
    """Return what *program* printed until it exited or *limit* expired, and its exit code.

    The output of one that prints too much is longer than the limit.

    A child process that it leaves running may hold the pipe open, so the end of the output is not the end of the file:
    after the program has exited, a mark is written to the pipe, after everything that the program wrote. If this
    process cannot rely on reading exit statuses, a shell runs the program, and writes the mark and the exit status.
    Raises OSError or ValueError if it cannot be run, and subprocess.TimeoutExpired.
    """
    mark = os.urandom(16).hex()
    path = find(program.command[0], program.environ)
    is_reported = _loses_exit_statuses()
    has_group = (program.in_background or is_reported) and sys.platform != "win32"
    source, sink = os.pipe()
    # a duplicate, because a child process closes the lifeline of this one if it runs code of Python
    inherited = [] if program.lifeline is None else [os.dup(program.lifeline)]
    with open(sink, "wb", buffering=0) as pipe:
        try:
            process = ChildProcess(
                [*_REPORTING_SHELL, mark, path, *program.command[1:]] if is_reported else program.command,
                executable=None if is_reported else path,
                stdin=subprocess.PIPE if program.data else subprocess.DEVNULL,
                stdout=pipe,
                stderr=None if program.show_stderr else subprocess.DEVNULL,
                env=program.environ,
                pass_fds=inherited,
                process_group=0 if has_group else None,
            )
        except BaseException:
            os.close(source)
            raise
        finally:
            for descriptor in inherited:
                os.close(descriptor)
        reader = _Reader(source, mark.encode(), program.max_output, lambda: _kill(process, group=has_group))
        try:
            with killed_at_end(program.lifeline, -process.pid if has_group else process.pid):
                if program.data:  # now that it cannot outlive this process
                    _start(lambda: _write(process, program.data))
                _wait(process, limit)
        finally:
            if process.poll() is None:
                _kill(process, group=has_group)
                process.wait()
        with suppress(BrokenPipeError):  # the reader has read more than the limit and closed the pipe
            pipe.write(mark.encode() + b"\n")
        output, status = reader.result()
        if not is_reported:
            return output, process.returncode
        return output, int(status) if status else UNKNOWN_EXIT


def _loses_exit_statuses() -> bool:
    """Return whether the program that uses this library ignores SIGCHLD, or reaps its child processes itself.

    Its signals belong to it, and to all of its threads. The command line has reset SIGCHLD.
    """
    return sys.platform != "win32" and signal.getsignal(signal.SIGCHLD) != signal.SIG_DFL


def _wait(process: "subprocess.Popen[bytes]", limit: TimeLimit) -> None:
    """Wait until *process* has exited; `Popen.wait` with a timeout would notice it up to 50 ms later."""
    has_exited = threading.Event()

    def wait() -> None:
        process.wait()
        has_exited.set()

    end = time.monotonic()
    _start(wait)
    while not has_exited.wait(_SLICE):
        left = limit() if callable(limit) else end + limit - time.monotonic()
        if left <= 0:
            raise subprocess.TimeoutExpired(process.args, 0)


def _kill(process: "subprocess.Popen[bytes]", *, group: bool) -> None:
    if group and sys.platform != "win32":
        with suppress(ProcessLookupError, PermissionError):  # macOS: PermissionError if all are zombies
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def _write(process: "subprocess.Popen[bytes]", data: bytes) -> None:
    """Write *data* to the stdin of *process*, which may exit without reading it."""
    with suppress(OSError), process.stdin as pipe:  # type: ignore[union-attr]  # it is a pipe
        pipe.write(data)


def _start(function: Callable[[], None]) -> threading.Thread:
    """Run *function* in a thread that does not keep this process alive."""
    thread = threading.Thread(target=function, name="xapi-program", daemon=True)
    thread.start()
    return thread


class _Reader:
    """Read the pipe *source* in a thread up to a line that ends with *mark* and digits.

    Call *kill* if there are more than *max_output* bytes.
    """

    def __init__(self, source: int, mark: bytes, max_output: int, kill: Callable[[], None]) -> None:
        self._source, self._mark, self._max_output, self._kill = source, mark, max_output, kill
        self._output = bytearray()
        self._thread = _start(self._read)

    def result(self) -> tuple[bytes, bytes]:
        """Return the output before the mark, which must have been written, and the digits after it."""
        self._thread.join()
        output, _, rest = self._output.partition(self._mark)
        return bytes(output), bytes(rest.partition(b"\n")[0])

    def _read(self) -> None:
        with open(self._source, "rb", buffering=0) as pipe:
            while len(self._output) <= self._max_output + len(self._mark) and (chunk := pipe.read(65536)):
                self._output += chunk
                if self._mark in self._output and self._output.endswith(b"\n"):
                    return
        self._kill()

"""Runs the program as users do: a process with arguments, streams, an environment and, if necessary, a terminal."""

import os
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from tests.support.forks import KEYRINGS, Forked, Forks

if sys.platform != "win32":  # where terminals are not tested
    import termios
    from fcntl import ioctl

PROGRAM = Path(os.environ.get("XAPI_TESTS_PROGRAM") or Path(sys.executable).with_name("xapi"))
PYTHON = PROGRAM.with_name("python")
_PATIENCE = 50  # seconds, less than the watchdog of pytest allows, in order to report what is on the screen

Process = subprocess.Popen[bytes] | Forked


def how_to_add(extra: str) -> str:
    """Return the instruction that the program prints for adding *extra*."""
    return f"install xapi with the extra {extra}"


# Makes a terminal the controlling terminal of a new session, as a terminal emulator does, and executes the program.
_SET_CONTROLLING_TERMINAL = "import os, sys; os.open(sys.argv[1], os.O_RDWR); os.execv(sys.argv[2], sys.argv[2:])"

_COLOR = re.compile(rb"\x1b\[[\d;]*m|\x1b(?:\[[\d;]*)?\Z")  # at the end, possibly only a part of one

Environ = Mapping[str, str | None]


# Runs a program and writes its greatest resident size, in bytes, to a file: a child inherits the peak of its parent.
_MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024))
sys.exit(code)
"""


def measured(peak: Path, *args: str) -> tuple[str, ...]:
    """Return the command that runs xapi with *args* and writes its greatest resident size, in bytes, to *peak*."""
    return sys.executable, "-ISc", _MEASURED, str(peak), str(PROGRAM), *args


@dataclass(frozen=True)
class Outcome:
    """The exit code and the output of a process."""

    code: int
    out: str = ""
    err: str = ""

    @property
    def body(self) -> bytes:
        """Return stdout as bytes."""
        return self.out.encode("utf-8", "surrogateescape")


class Xapi:
    """Runs the installed program with the same private HOME and an otherwise clean environment.

    The program has no controlling terminal and cannot prompt, unless it is started with
    `on_terminal`. Processes that it leaves running are killed. With *forks*, the program is forked
    from that server if the result is the same.
    """

    def __init__(self, home: Path, forks: Forks | None = None) -> None:
        self.home = home
        self._forks = forks
        self.config = home / "config"
        self.state = home / "state" / "xapi"
        self.temporary = home / "tmp"
        self.environ = clean_environ(home) | {
            "XAPI_CONFIG_DIR": str(self.config),
            "XAPI_STATE_DIR": str(self.state.parent),
            "XAPI_STORAGE": "file",
            "TMPDIR": str(self.temporary),
        }
        self.temporary.mkdir(parents=True)
        self._started: list[Process] = []

    def __call__(
        self,
        *args: str | bytes,
        input: bytes | str | None = None,  # noqa: A002  # subprocess's name
        env: Environ | None = None,
        cwd: Path | None = None,
    ) -> Outcome:
        """Run the program with *args*; *input* is its stdin, which is empty by default.

        *env* adds to the environment; a value of None removes a variable.
        """
        data = input.encode("utf-8", "surrogateescape") if isinstance(input, str) else input
        process = self.start(*args, stdin=subprocess.DEVNULL if data is None else subprocess.PIPE, env=env, cwd=cwd)
        out, err = process.communicate(data)
        return Outcome(process.returncode, _text(out), _text(err))

    def start(
        self,
        *args: str | bytes,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
        env: Environ | None = None,
        cwd: Path | None = None,
        argv: Sequence[str | bytes] = (),
        code: str | None = None,
        terminal: str | None = None,
    ) -> Process:
        """Start the program in its own session, without waiting for it; it is killed at the end of the test.

        *argv* is a command, or *code* Python code, to start instead of the program. *terminal* is the path of the
        controlling terminal of the session.
        """
        environ, cwd = self.environment(env), cwd or self.home
        process: Process
        if self._forks and not argv and self._forks.can_run(environ):
            words = [os.fsdecode(word) for word in args]
            process = self._forks.start(words, (stdin, stdout, stderr), environ, cwd, terminal, code)
        else:
            takes_terminal = (sys.executable, "-ISc", _SET_CONTROLLING_TERMINAL, terminal) if terminal else ()
            program = (str(PYTHON), "-c", code) if code else (str(PROGRAM),)
            command = [*takes_terminal, *(argv or program), *args]
            process = subprocess.Popen(
                command, stdin=stdin, stdout=stdout, stderr=stderr, env=environ, cwd=cwd, start_new_session=True
            )
        self._started.append(process)
        return process

    def fake_keyring(self, backend: str = "Plain") -> dict[str, str | None]:
        """Return the environment that selects *backend* of `tests/support/keyrings`, and storage `keyring`."""
        return {
            "XAPI_STORAGE": "keyring",
            "PYTHON_KEYRING_BACKEND": backend if "." in backend else f"fake_keyrings.{backend}",
            "PYTHONPATH": KEYRINGS,
            "FAKE_KEYRING": str(self.home / "items.json"),
        }

    def environment(self, env: Environ | None = None) -> dict[str, str]:
        """Return the program's environment, changed by *env*."""
        changed = {**self.environ, **(env or {})}
        return {name: value for name, value in changed.items() if value is not None}

    @contextmanager
    def on_terminal(
        self,
        *args: str | bytes,
        stdin: int | IO[bytes] | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        env: Environ | None = None,
        program: str | Path | None = None,
        columns: int = 80,
        rows: int = 24,
    ) -> Iterator["OnTerminal"]:
        """Run the program, or *argv*, on its own terminal; a stream that is given is not connected to it."""
        keyboard, screen = os.openpty()
        ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        process = self.start(
            *args,
            stdin=screen if stdin is None else stdin,
            stdout=screen if stdout is None else stdout,
            stderr=screen if stderr is None else stderr,
            env={"TERM": "xterm-256color", **(env or {})},
            argv=(str(program),) if program else (),
            terminal=os.ttyname(screen),
        )
        with OnTerminal(process, keyboard, screen) as terminal:
            yield terminal

    def end(self) -> None:
        """Kill the processes that still run, with all their descendants."""
        for process in self._started:
            _kill_group(process)
            for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
                with suppress(OSError):
                    stream.close()
            process.wait()


class OnTerminal:
    """A process on a terminal, and its user: reads the screen, types on the keyboard."""

    def __init__(self, process: Process, keyboard: int, screen: int) -> None:
        self.process = process
        self.seen = b""  # everything that was written to the screen
        self._keyboard = keyboard
        self._screen = screen  # kept open: on Linux, reading a terminal that no process has open is an error
        self._expected_to = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _kill_group(self.process)
        self.process.wait()
        if self._keyboard >= 0:
            os.close(self._keyboard)
        os.close(self._screen)

    @property
    def echoes(self) -> bool:
        """Return whether typed characters are echoed."""
        return bool(termios.tcgetattr(self._screen)[3] & termios.ECHO)

    @property
    def text(self) -> str:
        """Everything that was written to the screen, without colors."""
        return _COLOR.sub(b"", self.seen).decode(errors="replace")

    def expect(self, text: str) -> str:
        """Wait until *text* appears after the previously expected text; return everything up to its end.

        Colors are ignored.
        """
        end = time.monotonic() + _PATIENCE
        while (found := self.text.find(text, self._expected_to)) < 0:
            ended = self.process.poll() is not None
            if not self._read(0.05) and (ended or time.monotonic() > end):
                raise AssertionError(f"{text!r} did not appear: {self.seen.decode(errors='replace')}")
        start, self._expected_to = self._expected_to, found + len(text)
        return self.text[start : self._expected_to]

    def sees_output_within(self, seconds: float) -> bool:
        """Return whether something is written to the screen within *seconds*."""
        while self._read(0.05):  # the rest of what is being written
            pass
        return self._read(seconds)

    def type(self, text: str) -> None:
        """Press the keys of *text*; a newline is the Enter key."""
        os.write(self._keyboard, text.replace("\n", "\r").encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._keyboard, b"\x03")

    def close(self) -> None:
        """Close the terminal, as its window or connection does; nothing can be read from the screen any more."""
        os.close(self._keyboard)
        self._keyboard = -1

    def wait(self) -> int:
        """Wait until the program ends, while reading the screen; return its exit code."""
        end = time.monotonic() + _PATIENCE
        while self.process.poll() is None:
            if time.monotonic() > end:
                raise AssertionError(f"still running after {_PATIENCE} s: {self.seen.decode(errors='replace')}")
            self._read(0.05)
        while self._read(0.05):
            pass
        return self.process.wait()

    def _read(self, timeout: float) -> bool:
        """Read from the screen, waiting up to *timeout* seconds; return whether there was output."""
        if not select.select([self._keyboard], [], [], timeout)[0]:
            return False
        self.seen += os.read(self._keyboard, 65536)
        return True


def clean_environ(home: Path) -> dict[str, str]:
    """Return the environment of a login shell, with the variables of the tests' environment that coverage needs."""
    coverage = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    path = os.pathsep.join([str(PROGRAM.parent), os.environ.get("PATH", os.defpath)])
    if sys.platform == "win32":  # which needs these, and has the home directory in other variables
        system = {
            name: value for name, value in os.environ.items() if name in {"COMSPEC", "PATHEXT", "SYSTEMROOT", "TEMP"}
        }
        return {
            "USERPROFILE": str(home),
            "LOCALAPPDATA": str(home),
            "APPDATA": str(home),
            "PATH": path,
            **system,
            **coverage,
        }
    return {"HOME": str(home), "LANG": "C.UTF-8", "PATH": path, **coverage}


def _kill_group(process: Process) -> None:
    if sys.platform == "win32":
        process.kill()
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")

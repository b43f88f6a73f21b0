"""The program as its users meet it: a process with words, streams, an environment, perhaps a terminal."""

import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from typing import IO, Self

from tests.fork_server import KEYRINGS, ForkServer

PROGRAM = Path(os.environ.get("XAPI_TESTS_PROGRAM") or Path(sys.executable).with_name("xapi"))
PYTHON = PROGRAM.with_name("python")
REAL = (str(PROGRAM),)  # what a shell starts, the interpreter included

# Makes a terminal the controlling one of a new session, as a shell window does, and becomes the program.
_TAKE_TERMINAL = "import os, sys; os.open(sys.argv[1], os.O_RDWR); os.execv(sys.argv[2], sys.argv[2:])"

Environ = Mapping[str, str | None]


@dataclass(frozen=True)
class Outcome:
    """What a script sees of a process that has ended."""

    code: int
    out: str = ""
    err: str = ""

    @property
    def body(self) -> bytes:
        """Return stdout as the bytes that it was."""
        return self.out.encode("utf-8", "surrogateescape")


class Xapi:
    """Runs the installed program, each time in the same private HOME and else clean environment.

    The program has no controlling terminal, so that it can ask nobody, unless
    `on_terminal` gives it one. Whatever it leaves running is killed. With
    *forks*, it is forked there wherever that comes to the same.
    """

    def __init__(self, home: Path, forks: ForkServer | None = None) -> None:
        self.home = home
        self._forks = forks
        self.config = home / "config"
        self.state = home / "state" / "xapi"
        self.temporary = home / "tmp"
        self.environ = _clean_environ(home) | {
            "XAPI_CONFIG_DIR": str(self.config),
            "XAPI_STATE_DIR": str(self.state.parent),
            "XAPI_STORAGE": "file",
            "TMPDIR": str(self.temporary),
        }
        self.temporary.mkdir(parents=True)
        self._started: list[subprocess.Popen[bytes]] = []

    def __call__(
        self,
        *words: str | bytes,
        input: bytes | str | None = None,  # noqa: A002  # subprocess's name
        env: Environ | None = None,
        timeout: float = 30,
        cwd: Path | None = None,
    ) -> Outcome:
        """Run the program with *words* to its end; *input* goes to stdin, which is empty without.

        *env* adds to the environment; a value of None takes a variable away.
        """
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        process = self.start(*words, stdin=stdin, env=env, cwd=cwd)
        data = input.encode("utf-8", "surrogateescape") if isinstance(input, str) else input
        try:
            out, err = process.communicate(data, timeout)
        except subprocess.TimeoutExpired as expired:
            _kill_group(process)
            out, err = process.communicate()
            raise AssertionError(f"xapi {_shown(words)} still ran after {timeout} s\n{out!r}\n{err!r}") from expired
        return Outcome(process.returncode, _text(out), _text(err))

    def start(
        self,
        *words: str | bytes,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
        env: Environ | None = None,
        cwd: Path | None = None,
        argv: Sequence[str | bytes] = (),
        terminal: str | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start the program in a session of its own and return at once; it is killed at the end of the test.

        With *argv* that is what is started, word by word; REAL is the program without any short cut. *terminal* is
        the path of the one that is to control the session.
        """
        environ = self.environment(env)
        process: subprocess.Popen[bytes]
        if not argv and self._forks is not None and self._forks.can_fork(environ):
            process = self._forks.fork(
                [os.fsdecode(word) for word in words],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                environ=environ,
                cwd=cwd or self.home,
                terminal=terminal,
            )
        else:
            takes_terminal = (sys.executable, "-ISc", _TAKE_TERMINAL, terminal) if terminal else ()
            process = subprocess.Popen(
                [*takes_terminal, *(argv or REAL), *words],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=environ,
                cwd=cwd or self.home,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def fake_keyring(self, backend: str = "Plain") -> dict[str, str | None]:
        """Return what makes *backend* of tests/keyrings the keyring, and the storage."""
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
        *words: str | bytes,
        stdin: int | IO[bytes] | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        env: Environ | None = None,
        program: str | Path | None = None,
        columns: int = 80,
        rows: int = 24,
    ) -> Iterator["OnTerminal"]:
        """Run the program, or another, on a terminal of its own; a stream that is given is not connected to it."""
        keyboard, screen = os.openpty()
        ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        process = self.start(
            *words,
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
        """Kill what still runs, children of children included."""
        for process in self._started:
            _kill_group(process)
            for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
                with suppress(OSError):
                    stream.close()
            process.wait(10)


def in_deleted_directory(xapi: Xapi, *words: str, env: Environ | None = None) -> Outcome:
    """Run the program in a directory that has been deleted since it was entered."""
    gone = xapi.home / "gone"
    gone.mkdir()
    enter = 'rmdir "$0" && exec "$@"'
    process = xapi.start(enter, str(gone), str(PROGRAM), *words, argv=("sh", "-c"), env=env, cwd=gone)
    out, err = process.communicate(timeout=30)
    return Outcome(process.returncode, _text(out), _text(err))


class OnTerminal:
    """A process and the person in front of it: reads the screen, types on the keyboard."""

    def __init__(self, process: subprocess.Popen[bytes], keyboard: int, screen: int) -> None:
        self.process = process
        self.seen = b""  # all that the screen was sent so far
        self._keyboard = keyboard
        self._screen = screen  # kept open: reading a terminal that nobody holds is an error on Linux
        self._expected_to = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _kill_group(self.process)
        self.process.wait(10)
        os.close(self._keyboard)
        os.close(self._screen)

    @property
    def echoes(self) -> bool:
        """Tell whether typed characters are shown."""
        return bool(termios.tcgetattr(self._screen)[3] & termios.ECHO)

    def expect(self, text: str, timeout: float = 10) -> str:
        """Wait until *text* appears after what was expected before; return everything up to its end."""
        wanted, end = text.encode(), time.monotonic() + timeout
        while (found := self.seen.find(wanted, self._expected_to)) < 0:
            ended = self.process.poll() is not None
            if not self._read(0.05) and (ended or time.monotonic() > end):
                raise AssertionError(f"{text!r} did not appear: {self.seen.decode(errors='replace')}")
        start, self._expected_to = self._expected_to, found + len(wanted)
        return self.seen[start : self._expected_to].decode(errors="replace")

    def type(self, text: str) -> None:
        """Press the keys of *text*; a newline is the Enter key."""
        os.write(self._keyboard, text.replace("\n", "\r").encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._keyboard, b"\x03")

    def wait(self, timeout: float = 30) -> int:
        """Wait for the end of the program, reading the screen meanwhile; return its exit code."""
        end = time.monotonic() + timeout
        while self.process.poll() is None:
            if time.monotonic() > end:
                raise AssertionError(f"still running after {timeout} s: {self.seen.decode(errors='replace')}")
            self._read(0.05)
        while self._read(0.05):
            pass
        return self.process.returncode

    def _read(self, patience: float) -> bool:
        """Read what comes to the screen within *patience* seconds; tell whether something came."""
        if not select.select([self._keyboard], [], [], patience)[0]:
            return False
        self.seen += os.read(self._keyboard, 65536)
        return True


@contextmanager
def fork_server(home: Path) -> Iterator[ForkServer]:
    """Give a server from which runs of the program in *home* can be forked."""
    server = ForkServer(PYTHON, _clean_environ(home))
    try:
        yield server
    finally:
        server.stop()


def _clean_environ(home: Path) -> dict[str, str]:
    """Return what a login shell would have; of the tests' own environment only what coverage needs."""
    coverage = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    path = os.pathsep.join([str(PROGRAM.parent), os.environ.get("PATH", os.defpath)])
    return {"HOME": str(home), "LANG": "C.UTF-8", "PATH": path, **coverage}


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _shown(words: Sequence[str | bytes]) -> str:
    return " ".join(os.fsdecode(word) for word in words)

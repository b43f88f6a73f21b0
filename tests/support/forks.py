"""Runs the program without the start of an interpreter, which costs three times as much as the rest of a run.

A server process imports the package once. For each run it forks a child, which becomes what a new process would be: its
own session, streams, environment, working directory and controlling terminal, and then the program's own `main`. A test
that depends on more, such as what is imported, gives `Xapi.start` the command to start.
"""

import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, NoReturn

KEYRINGS = str(Path(__file__).with_name("keyrings"))
_LONGEST = 100_000  # bytes of an order: it is one message
_NUMBER = struct.Struct("=i")
# What the interpreter, the C library and OpenSSL read only at start.
_READ_AT_START = ("COVERAGE_", "LANG", "LC_", "LD_", "MALLOC_", "OPENSSL_", "PYTHON", "TZ")
_READ_LATER = ("PYTHON_KEYRING_BACKEND", "PYTHONPATH")
_IMPORTED_LATER = [
    "csv", "encodings.ascii", "encodings.utf_8_sig", "httpx", "importlib.metadata", "keyring", "redis", "secretstorage",
    "tomlkit", "tomllib",
]  # fmt: skip


class Forks:
    """Forks runs of the program that *python* has installed; *environ* is the environment of the server itself."""

    def __init__(self, python: Path, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [str(python), __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, env=environ, pass_fds=[theirs.fileno()], start_new_session=True)

    def stop(self) -> None:
        """End the server."""
        self._control.close()
        self._process.wait(60)

    def can_run(self, environ: Mapping[str, str]) -> bool:
        """Return whether a child of the server is equivalent to a new process with *environ*."""
        same = _read_at_start(environ) == _read_at_start(self._environ)
        return same and environ.get("PYTHONPATH") in {None, KEYRINGS}

    def start(
        self,
        arguments: Sequence[str],
        streams: Sequence[int | IO[bytes]],
        environ: Mapping[str, str],
        cwd: Path,
        terminal: str | None = None,
        code: str | None = None,
    ) -> "Forked":
        """Run the program, or *code* in its place, with *streams*, which are stdin, stdout and stderr.

        *terminal* is the controlling terminal.
        """
        order = {
            "arguments": arguments, "environ": dict(environ), "cwd": str(cwd), "terminal": terminal, "code": code,
        }  # fmt: skip
        message = json.dumps(order).encode()
        assert len(message) < _LONGEST
        ours, theirs = socket.socketpair()
        with ExitStack() as stack:
            stack.enter_context(theirs)
            ends = [_connected(stream, number, stack) for number, stream in enumerate(streams)]
            descriptors = [descriptor for descriptor, _ in ends]
            if descriptors[2] == subprocess.STDOUT:
                descriptors[2] = descriptors[1]
            socket.send_fds(self._control, [message], [theirs.fileno(), *descriptors])
        return Forked(ours, [file for _, file in ends])


class Forked:
    """A run of the program, with the part of the interface of Popen that tests use."""

    def __init__(self, channel: socket.socket, streams: Sequence[IO[bytes] | None]) -> None:
        self.stdin, self.stdout, self.stderr = streams
        self.returncode: int | Any = None
        self._channel = channel
        self.pid = self._receive(None)

    def poll(self) -> int | None:
        """Return the exit code, None if the program is still running."""
        if self.returncode is None and select.select([self._channel], [], [], 0)[0]:
            self.wait()
        code: int | None = self.returncode
        return code

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the program has ended; return its exit code."""
        if self.returncode is None:
            try:
                self.returncode = os.waitstatus_to_exitcode(self._receive(timeout))
            except TimeoutError:
                raise subprocess.TimeoutExpired("xapi", timeout or 0) from None
            self._channel.close()
        code: int = self.returncode
        return code

    def communicate(self, input: bytes | None = None) -> tuple[bytes, bytes]:  # noqa: A002  # Popen's name
        """Write *input* to stdin and close it, read stdout and stderr to their ends, and wait for the end."""
        with ThreadPoolExecutor(3) as threads:
            feeding = threads.submit(_feed, self.stdin, input)
            reading = [threads.submit(_read, stream) for stream in (self.stdout, self.stderr)]
            try:
                self.wait()
            except BaseException as error:  # of the watchdog
                os.killpg(self.pid, signal.SIGKILL)
                error.add_note(f"xapi wrote {[each.result() for each in reading]}")
                raise
            feeding.result()
            out, err = (each.result() for each in reading)
        return out, err

    def send_signal(self, number: int) -> None:
        """Send the signal *number* if the program is still running."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _receive(self, timeout: float | None) -> int:
        self._channel.settimeout(timeout)
        (number,) = _NUMBER.unpack(self._channel.recv(_NUMBER.size, socket.MSG_WAITALL))
        return int(number)


def _connected(given: int | IO[bytes], number: int, stack: ExitStack) -> tuple[int, IO[bytes] | None]:
    """Return the descriptor for the stream *number* of a program, and this end of its pipe."""
    if given == subprocess.PIPE:
        read, write = os.pipe()
        ours, theirs = (write, read) if number == 0 else (read, write)
        stack.callback(os.close, theirs)
        return theirs, open(ours, "rb" if number else "wb")
    if given == subprocess.DEVNULL:
        return stack.enter_context(open(os.devnull, "r+b", 0)).fileno(), None
    return given if isinstance(given, int) else given.fileno(), None


def _feed(stream: IO[bytes] | None, data: bytes | None) -> None:
    if stream:
        with suppress(BrokenPipeError), stream:
            stream.write(data or b"")


def _read(stream: IO[bytes] | None) -> bytes:
    if not stream:
        return b""
    with stream:
        return stream.read()


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {each: text for each, text in environ.items() if each.startswith(_READ_AT_START) and each not in _READ_LATER}


# in the process of the server


def _serve(control: socket.socket) -> None:
    """Fork the program for each order; report its process id and its end to the channel that came with the order."""
    channels: dict[int, socket.socket] = {}
    ended, wake_up = socket.socketpair()
    wake_up.setblocking(False)
    signal.set_wakeup_fd(wake_up.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([control, ended], [], [])
        if ended in ready:
            ended.recv(4096)
            _report_ends(channels)
        if control in ready:
            order, descriptors, _, _ = socket.recv_fds(control, _LONGEST, 4)
            if not order:
                return
            channel = socket.socket(fileno=descriptors[0])
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _become_the_program(json.loads(order), descriptors[1:])
            channels[pid] = channel
            channel.sendall(_NUMBER.pack(pid))
            for descriptor in descriptors[1:]:
                os.close(descriptor)


def _report_ends(channels: dict[int, socket.socket]) -> None:
    while channels:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with channels.pop(pid) as channel, suppress(OSError):  # the test may not wait for it
            channel.sendall(_NUMBER.pack(status))


def _become_the_program(order: dict[str, Any], streams: Sequence[int]) -> NoReturn:
    try:
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, 4096)
        for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
            old = getattr(sys, name)
            stream = open(number, old.mode, 1 if number == 2 else -1, old.encoding, old.errors, closefd=False)  # noqa: SIM115 - for life
            setattr(sys, name, stream)
        os.environ.clear()
        os.environ.update(order["environ"])
        os.chdir(order["cwd"])
        tempfile.tempdir = None  # the server has its own
        if terminal := order["terminal"]:
            os.close(os.open(terminal, os.O_RDWR))  # a leader of a session that opens a terminal controls it
        if code := order["code"]:
            exec(compile(code, "<test>", "exec"), {"__name__": "__main__"})  # noqa: S102 - it is the test's own
            sys.stdout.flush()
            os._exit(0)
        sys.argv = ["xapi", *order["arguments"]]
        importlib.import_module("xapi_cli.__main__").main()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else end.code is not None)
    except BaseException:  # noqa: BLE001 - nothing may return into the server's loop
        traceback.print_exc()
    os._exit(70)


def _load() -> None:
    """Import the whole package; spare the objects from the garbage collection in each child."""
    sys.path[0] = KEYRINGS  # in place of this directory; no other name is in both
    package = importlib.import_module("xapi_cli")
    for module in (*pkgutil.walk_packages(package.__path__, "xapi_cli."), *_IMPORTED_LATER):
        try:
            importlib.import_module(getattr(module, "name", str(module)))
        except ImportError:
            continue  # of another platform, or of an extra that is not installed
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        _load()
        _serve(given)

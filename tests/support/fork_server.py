"""Runs of the program without the start of an interpreter, which costs several times as much as the rest of a run.

A server process imports the package once. For each run it forks a
child, which becomes what a new process would be: its own session, standard streams, environment and working directory,
no other descriptors, and then the program's own `main`. What a fork cannot repeat, the start of the interpreter, is
left to real starts: see `can_fork`.
"""

import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

_NUMBER = struct.Struct("=q")
_END = struct.Struct("=qq")  # the exit status of a child, and its peak memory
_BEGUN = b"."
_MORE_THAN_ARE_OPEN = 1024
_CLEANUP_TIMEOUT = 2  # seconds, in place of 0.4; on a busy machine, what a signal causes may take longer
# What the interpreter, the C library, OpenSSL and the imitation of macOS read only at start.
_READ_AT_START = ("COVERAGE_", "FAKE_KEYCHAIN", "LANG", "LC_", "LD_", "MALLOC_", "OPENSSL_", "PYTHON", "TZ")
# What a child can do as if it had just started: keyring is not imported before, and these modules shadow no other.
_IN_THE_CHILD = ("PYTHON_KEYRING_BACKEND", "PYTHONPATH")
# What commands import when they run, in addition to the package.
_IMPORTED_BY_COMMANDS = (
    "csv",
    "encodings.ascii",
    "encodings.utf_8_sig",
    "importlib.metadata",
    "importlib.resources",
    "tomlkit",
)
# Options that change how the commands are built, which the server has done already.
_BEFORE_THE_COMMANDS = ("--install-completion", "--show-completion")
KEYRINGS = str(Path(__file__).with_name("keyrings"))


class ForkServer:
    """Runs the program that *python* has installed; *environ* is the server's own environment."""

    def __init__(self, python: Path, environ: Mapping[str, str]) -> None:
        self._at_start = _read_at_start(environ)
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [python, __file__, str(theirs.fileno())],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def stop(self) -> None:
        """End the server; its children continue."""
        self._control.close()
        self._process.wait(30)

    def can_fork(self, arguments: Sequence[str | bytes], environ: Mapping[str, str]) -> bool:
        """Return whether a forked child is equivalent to a new process with *arguments* and *environ*."""
        first = os.fsdecode(arguments[0]).partition("=")[0] if arguments else ""
        if first in _BEFORE_THE_COMMANDS:
            return False
        return _read_at_start(environ) == self._at_start and environ.get("PYTHONPATH") in {None, KEYRINGS}

    def fork(
        self,
        arguments: Sequence[str],
        *,
        stdin: int | IO[bytes],
        stdout: int | IO[bytes],
        stderr: int | IO[bytes],
        environ: Mapping[str, str],
        cwd: Path,
        terminal: str | None = None,
    ) -> "Forked":
        """Start the program with *arguments*, in its own session, which *terminal* controls; return immediately."""
        order = {"arguments": list(arguments), "environ": dict(environ), "cwd": str(cwd), "terminal": terminal}
        return Forked(self._control, order, stdin=stdin, stdout=stdout, stderr=stderr)


class Forked(subprocess.Popen[bytes]):
    """A child of the fork server: it differs from a Popen only in how it starts and reports its end."""

    mebibytes = 0.0  # of resident memory, at most; known at the end

    def __init__(self, control: socket.socket, order: Mapping[str, Any], **streams: Any) -> None:
        self._control = control
        self._order = json.dumps(order).encode()
        super().__init__(order["arguments"], **streams)

    def _execute_child(self, *of_popen: Any) -> None:
        pipes = of_popen[10:16]  # behind args, executable, preexec_fn, close_fds, pass_fds, cwd, env and three others
        stdin, _, _, stdout, _, stderr = pipes
        self._channel, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [_BEGUN], [theirs.fileno(), stdin, stdout, stderr])
        self._channel.sendall(_NUMBER.pack(len(self._order)) + self._order)
        (self.pid,) = self._read(_NUMBER)
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]  # Popen's own, after its fork

    def poll(self) -> int | None:
        """Return the exit code, None while the child runs."""
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._channel, selectors.EVENT_READ)
                return self.wait() if selector.select(0) else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the child and return its exit code."""
        if self.returncode is None:
            self._channel.settimeout(timeout)
            try:
                status, kibibytes = self._read(_END)
            except TimeoutError as error:
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from error
            self._channel.close()
            self.returncode = os.waitstatus_to_exitcode(status)
            self.mebibytes = kibibytes / 1024
        return self.returncode

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        return self.returncode  # the child belongs to another process, so waitpid() is not possible

    def _read(self, form: struct.Struct) -> tuple[int, ...]:
        data = self._channel.recv(form.size, socket.MSG_WAITALL)
        if len(data) < form.size:
            raise EOFError("the fork server has ended")
        return form.unpack(data)


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environ.items() if name.startswith(_READ_AT_START) and name not in _IN_THE_CHILD
    }


# in the process of the server


def _serve(control: socket.socket) -> None:
    """Fork a child for each message, until the tests have finished."""
    channels: dict[int, socket.socket] = {}
    ended, wakeup = socket.socketpair()
    for end in (ended, wakeup):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup.fileno())
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if ended in ready:
                ended.recv(4096)
                _tell_of_the_ended(channels)
            if control in ready:
                message, descriptors, _, _ = socket.recv_fds(control, len(_BEGUN), 4)
                if not message:
                    return
                channel = socket.socket(fileno=descriptors[0])
                if (pid := os.fork()) == 0:
                    _become_the_program(channel, descriptors[1:])
                channel.sendall(_NUMBER.pack(pid))
                channels[pid] = channel
                for descriptor in descriptors[1:]:
                    os.close(descriptor)


def _tell_of_the_ended(channels: dict[int, socket.socket]) -> None:
    while channels:
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid == 0:
            return
        with channels.pop(pid) as channel:
            try:
                channel.sendall(_END.pack(status, usage.ru_maxrss))
            except OSError:
                pass  # no process waits for it


def _become_the_program(channel: socket.socket, streams: Sequence[int]) -> NoReturn:
    """Set up the state of a new process, and run the program's own `main`."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        order = _order(channel)
        os.setsid()
        if order["terminal"]:
            os.open(order["terminal"], os.O_RDWR)  # it controls a session that has none
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, _MORE_THAN_ARE_OPEN)
        _open_streams()
        os.environ.clear()
        os.environ.update(order["environ"])
        sys.path[1:1] = filter(None, [os.environ.get("PYTHONPATH")])
        os.chdir(order["cwd"])
        tempfile.tempdir = None  # the server has its own
        sys.argv = ["xapi", *order["arguments"]]
        importlib.import_module("xapi_cli.__main__").main()
    except BaseException:  # noqa: BLE001 - nothing may return into the server's loop
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(70)


def _open_streams() -> None:
    """Create Python's streams again: on a terminal, they differ from those of the server."""
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        old = getattr(sys, name)
        buffering = 1 if name == "stderr" else -1
        stream = open(number, mode, buffering, old.encoding, old.errors, closefd=False)  # noqa: SIM115 - for life
        setattr(sys, name, stream)


def _order(channel: socket.socket) -> dict[str, Any]:
    """Read what to do; the response to it is the process id."""
    length: int = _NUMBER.unpack(channel.recv(_NUMBER.size, socket.MSG_WAITALL))[0]
    order: dict[str, Any] = json.loads(channel.recv(length, socket.MSG_WAITALL))
    return order


def _load() -> None:
    """Import the whole package and create the commands; spare the objects from the garbage collection in each child."""
    sys.path[0] = os.path.dirname(sys.executable)  # the directory of the program; this one contains tests
    sys.modules["httpx._main"] = None  # type: ignore[assignment]  # as the program does it
    package = importlib.import_module("xapi_cli")
    optional = importlib.import_module("xapi_cli.store.registry").optional_packages()
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError:
            if not module.name.startswith(optional):
                raise
    for name in _IMPORTED_BY_COMMANDS:
        importlib.import_module(name)
    signals: Any = importlib.import_module("xapi_cli.system.signals")
    signals._CLEANUP_TIMEOUT = _CLEANUP_TIMEOUT  # noqa: SLF001 - see above
    main: Any = importlib.import_module("xapi_cli.cli.main")
    for name in main.COMMANDS:
        main.command(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        _load()
        _serve(given)

"""Runs the program without the start of an interpreter, which costs three times as much as the rest of a run.

A server process imports the package once. For each run it forks a child, which becomes what a new process would be: its
own session, streams, environment and working directory, and then the program's own `main`. A test that depends on more,
such as what is imported, starts the program with `Xapi.start`.
"""

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

KEYRINGS = str(Path(__file__).with_name("keyrings"))
_LONGEST = 100_000  # bytes of an order: it is one message
_NUMBER = struct.Struct("=i")
# What the interpreter, the C library and OpenSSL read only at start.
_READ_AT_START = ("COVERAGE_", "LANG", "LC_", "LD_", "MALLOC_", "OPENSSL_", "PYTHON", "TZ")
_READ_LATER = ("PYTHON_KEYRING_BACKEND", "PYTHONPATH")
_IMPORTED_BY_COMMANDS = ("csv", "encodings.ascii", "encodings.utf_8_sig", "httpx", "importlib.metadata", "tomlkit")


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

    def run(
        self, arguments: Sequence[str], streams: Sequence[int], environ: Mapping[str, str], cwd: Path, timeout: float
    ) -> int:
        """Run the program with *streams*, its stdin, stdout and stderr, and return its exit code.

        Raises TimeoutError after *timeout* seconds; the program is killed then.
        """
        order = json.dumps({"arguments": arguments, "environ": dict(environ), "cwd": str(cwd)}).encode()
        assert len(order) < _LONGEST
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                socket.send_fds(self._control, [order], [theirs.fileno(), *streams])
            (pid,) = _NUMBER.unpack(ours.recv(_NUMBER.size, socket.MSG_WAITALL))
            ours.settimeout(timeout)
            try:
                return os.waitstatus_to_exitcode(*_NUMBER.unpack(ours.recv(_NUMBER.size, socket.MSG_WAITALL)))
            except TimeoutError:
                os.killpg(pid, signal.SIGKILL)
                raise


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {each: text for each, text in environ.items() if each.startswith(_READ_AT_START) and each not in _READ_LATER}


# in the process of the server


def _serve(control: socket.socket) -> None:
    """Fork, for each order, a process that forks the program and reports its process id and its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that nothing must wait for these processes
    while True:
        order, descriptors, _, _ = socket.recv_fds(control, _LONGEST, 4)
        if not order:
            return
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if (pid := os.fork()) == 0:
                _become_the_program(json.loads(order), descriptors[1:])
            with socket.socket(fileno=descriptors[0]) as channel:
                channel.sendall(_NUMBER.pack(pid))
                os.closerange(0, 3)
                for descriptor in descriptors[1:]:
                    os.close(descriptor)
                channel.sendall(_NUMBER.pack(os.waitpid(pid, 0)[1]))
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def _become_the_program(order: dict[str, Any], streams: Sequence[int]) -> NoReturn:
    try:
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, 64)
        for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
            old = getattr(sys, name)
            stream = open(number, old.mode, 1 if number == 2 else -1, old.encoding, old.errors, closefd=False)  # noqa: SIM115 - for life
            setattr(sys, name, stream)
        os.environ.clear()
        os.environ.update(order["environ"])
        os.chdir(order["cwd"])
        tempfile.tempdir = None  # the server has its own
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
    for module in (*pkgutil.walk_packages(package.__path__, "xapi_cli."), *_IMPORTED_BY_COMMANDS):
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

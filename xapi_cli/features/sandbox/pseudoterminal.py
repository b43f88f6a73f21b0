"""Run a program as on a terminal, and capture what it would show."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

IS_SUPPORTED = sys.platform != "win32"


def run(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], columns: int, timeout: float
) -> "subprocess.CompletedProcess[str]":
    """Run *command* with stdout and stderr on two terminals of *columns* columns, and with an empty stdin.

    Returns its exit code and what it wrote to each, with `\\n` at the end of lines. After *timeout* seconds, kills it
    and raises subprocess.TimeoutExpired. *IS_SUPPORTED* is False on platforms without pseudoterminals.
    """
    if sys.platform == "win32":
        raise NotImplementedError
    screens, sides = [], []
    for _ in range(2):
        screen, side = os.openpty()
        screens.append(screen)
        sides.append(side)
        _set_columns(side, columns)
    try:
        with subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=sides[0], stderr=sides[1]
        ) as process:
            try:
                while sides:
                    os.close(sides.pop())
                out, err = _read_all(screens, time.monotonic() + timeout, command, timeout)
                process.wait(timeout)
            except BaseException:
                process.kill()
                raise
    finally:
        for descriptor in (*screens, *sides):
            os.close(descriptor)
    return subprocess.CompletedProcess(command, process.returncode, _text(out), _text(err))


def _set_columns(side: int, columns: int) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    import fcntl
    import struct
    import termios

    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def _read_all(screens: Sequence[int], deadline: float, command: Sequence[str], timeout: float) -> list[bytes]:
    """Return what is written to each of *screens* until no process has it open."""
    from selectors import EVENT_READ, DefaultSelector

    received = [bytearray() for _ in screens]
    with DefaultSelector() as selector:
        for screen, buffer in zip(screens, received, strict=True):
            selector.register(screen, EVENT_READ, buffer)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired(command, timeout)
            for key, _ in ready:
                data = b""
                with suppress(OSError):  # EIO on Linux: no process has the terminal open
                    data = os.read(key.fd, 65536)
                key.data.extend(data)
                if not data:
                    selector.unregister(key.fd)
    return [bytes(each) for each in received]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\r\n", "\n")

"""Sockets in place of the pipes of a child process, because Windows can wait for sockets only."""

import socket
from contextlib import suppress
from threading import Thread
from typing import IO

_BLOCK = 64 * 1024  # bytes


class Bridge:
    """What is sent to the non-blocking socket `sink` reaches the stdin of a process; `source` receives its stdout.

    Two threads copy the data. They end when the pipes do, or when this object is closed.
    """

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.sink, inner_sink = socket.socketpair()
        self.source, inner_source = socket.socketpair()
        self.sink.setblocking(False)
        self.source.setblocking(False)
        for copy in (lambda: _copy_to(stdin, inner_sink), lambda: _copy_from(stdout, inner_source)):
            Thread(target=copy, name="xapi-bridge", daemon=True).start()

    def close(self) -> None:
        """Close the sockets; the threads notice it."""
        self.sink.close()
        self.source.close()


def _copy_to(pipe: IO[bytes], inner: socket.socket) -> None:
    with inner, suppress(OSError, ValueError):  # the process, or the other side, has ended
        while data := inner.recv(_BLOCK):
            pipe.write(data)
            pipe.flush()


def _copy_from(pipe: IO[bytes], inner: socket.socket) -> None:
    with inner, suppress(OSError, ValueError):  # see above
        while data := pipe.read1(_BLOCK):  # type: ignore[attr-defined]  # a BufferedReader
            inner.sendall(data)

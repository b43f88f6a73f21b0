"""Servers on loopback that follow a script exactly, byte by byte, and record the data that they receive.

    with Server([request(), send(OK), close()], [reset()]) as server:
        httpx.get(server.url)
    assert server.received[0].startswith(b"GET / HTTP/1.1")

Each connection runs the next script, further ones the last. A script ends with
closing the connection, unless its steps prevent that.
"""

import atexit
import re
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Step = Callable[["Peer"], None]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Peer:
    """The server's end of a connection."""

    def __init__(self, sock: socket.socket, server: "Server") -> None:
        self.sock = sock
        self.server = server
        self.received = bytearray()
        self._used = 0  # up to here, requests have been read

    def read_request(self) -> None:
        """Read one request with its body."""
        start = self._used
        while (end := self.received.find(b"\r\n\r\n", start)) < 0:
            self.read_some()
        head = bytes(self.received[start:end]).lower()
        self._used = end + 4
        if length := re.search(rb"\r\ncontent-length: *(\d+)", head):
            self._used += int(length[1])
            while len(self.received) < self._used:
                self.read_some()
        elif b"\r\ntransfer-encoding: chunked" in head:
            while (end := self.received.find(b"0\r\n\r\n", self._used)) < 0:
                self.read_some()
            self._used = end + 5

    def read_some(self) -> None:
        data = self.sock.recv(256 * 1024)
        if not data:
            raise EOFError
        self.received += data


class Server:
    """Listen within a `with` block and run *scripts*; with *tls*, perform a TLS handshake first."""

    def __init__(
        self,
        *scripts: Sequence[Step],
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._scripts = scripts
        self._tls = tls
        self._listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._threads: list[threading.Thread] = []
        self._peers: list[Peer] = []
        self.stopping = threading.Event()
        self.failures: list[BaseException] = []
        # seconds between each response and its surplus bytes, as `tests.support.surplus` sends them
        self.gaps: list[float] = []
        self.host = host
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def name(self) -> str:
        """Host and port in the form of messages."""
        return self.url.partition("://")[2]

    @property
    def received(self) -> list[bytes]:
        """The data that each connection has received so far."""
        return [bytes(peer.received) for peer in self._peers]

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self._peers:
            with suppress(OSError):
                peer.sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        if error is None and self.failures:
            raise self.failures[0]

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        number = 0
        while not self.stopping.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(number, len(self._scripts) - 1)]
            number += 1
            peer = Peer(sock, self)
            self._peers.append(peer)
            self._start(self._play, peer, script)

    def _play(self, peer: Peer, script: Sequence[Step]) -> None:
        try:
            if self._tls:
                peer.sock = self._tls.wrap_socket(peer.sock, server_side=True)
            for step in script:
                step(peer)
        except (OSError, EOFError, ValueError):  # the client closed the connection, as many tests intend
            pass
        except BaseException as error:  # noqa: BLE001  # reported by the test, at the end of its with block
            self.failures.append(error)
        finally:
            peer.sock.close()


def request() -> Step:
    """Read one request with its body."""
    return Peer.read_request


def head() -> Step:
    """Read exactly up to the end of the request headers."""

    def step(peer: Peer) -> None:
        while b"\r\n\r\n" not in peer.received:
            data = peer.sock.recv(1)
            if not data:
                raise EOFError
            peer.received += data

    return step


def send(data: bytes) -> Step:
    def step(peer: Peer) -> None:
        peer.sock.sendall(data)

    return step


def drip(data: bytes, every: float, size: int = 1) -> Step:
    """Send *data* in parts of *size* bytes, one *every* so many seconds."""

    def step(peer: Peer) -> None:
        for start in range(0, len(data), size):
            peer.sock.sendall(data[start : start + size])
            if peer.server.stopping.wait(every):
                return

    return step


def forever(data: bytes) -> Step:
    """Send *data* repeatedly until the client closes the connection."""

    def step(peer: Peer) -> None:
        while not peer.server.stopping.is_set():
            peer.sock.sendall(data)

    return step


def sleep(seconds: float) -> Step:
    def step(peer: Peer) -> None:
        peer.server.stopping.wait(seconds)

    return step


def wait_for(event: threading.Event) -> Step:
    def step(peer: Peer) -> None:
        if not event.wait(60):
            raise AssertionError("the test never came so far")

    return step


def hang() -> Step:
    """Do nothing until the test ends."""
    return sleep(600)


def until_closed() -> Step:
    """Read until the client closes."""

    def step(peer: Peer) -> None:
        while True:
            peer.read_some()

    return step


def half_close() -> Step:
    """Close the write side of the connection."""

    def step(peer: Peer) -> None:
        peer.sock.shutdown(socket.SHUT_WR)

    return step


def close() -> Step:
    def step(peer: Peer) -> None:
        peer.sock.close()

    return step


def reset() -> Step:
    """Close with a RST."""

    def step(peer: Peer) -> None:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.sock.close()

    return step


def serve(response: bytes = OK) -> Step:
    """Respond to successive requests."""

    def step(peer: Peer) -> None:
        while True:
            peer.read_request()
            peer.sock.sendall(response)

    return step


def forward(*, tunnel_response: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> Step:
    """Act as an HTTP proxy: read a CONNECT, then forward bytes in both directions."""

    def step(peer: Peer) -> None:
        peer.read_request()
        host, _, port = bytes(peer.received).split()[1].decode().rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), timeout=10) as server:
            peer.sock.sendall(tunnel_response)
            there = threading.Thread(target=_pump, args=(peer.sock, server), daemon=True)
            there.start()
            _pump(server, peer.sock)
            there.join(5)

    return step


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def free_port() -> int:
    """Return a port of 127.0.0.1 that is reserved and refuses connections as long as the tests run."""
    port: int = _taken().getsockname()[1]
    return port


@cache
def _taken() -> socket.socket:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    atexit.register(sock.close)
    return sock


@contextmanager
def full_backlog() -> Iterator[int]:
    """Return a port on which connections are neither accepted nor refused."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        callers = [socket.socket() for _ in range(4)]
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
        for caller in callers:
            caller.close()


class Stopwatch:
    """Measure the seconds that a `with` block takes."""

    seconds = 0.0

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._start


class HandlerServer(ThreadingHTTPServer):
    """Serves within a `with` block: requests are processed by *handler*, each connection in a thread."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=lambda: self.serve_forever(0.05), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report failed assertions of the test; ignore all other errors, as after a client was killed."""
        if isinstance(sys.exception(), AssertionError):
            super().handle_error(request, client_address)


def reject_new_tokens(peer: Peer) -> None:
    """A script: issue tokens that the API rejects."""
    grant = b'{"access_token": "fresh-but-unknown"}'
    while True:
        start = len(peer.received)
        peer.read_request()
        is_login = peer.received[start:].startswith(b"POST")
        status, body = (b"200 OK", grant) if is_login else (b"401 Unauthorized", b"")
        peer.sock.sendall(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))

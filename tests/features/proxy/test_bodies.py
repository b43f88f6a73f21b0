"""Endless bodies through `xapi proxy` take constant memory."""

import socket
import threading

import pytest

from tests.commands.api import bearing
from tests.features.proxy.running import Proxy, proxy
from tests.support.program import Xapi
from tests.support.servers import OK, Peer, Server, forever, hang, head, request, send, wait_for

BLOCK = b"x" * 65_536
SIZE = 32 * 2**20  # bytes that are read of an endless body
MOST = 16 * 2**20  # bytes
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def start_of(running: Proxy, line: str, *lines: str) -> bytes:
    """Return the request *line* and headers of a request, with *lines*."""
    fields = {"Host": "{}:{}".format(*running.address), **running.headers}
    own = [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join([line, *own, *lines, "", ""]).encode()


def post(running: Proxy, *lines: str) -> bytes:
    """Return the request line and headers of an upload."""
    return start_of(running, "POST / HTTP/1.1", *lines)


def receive(connection: socket.socket, text: bytes = b"") -> bytes:
    """Return what arrives until *text* has, or up to the end of the connection if that is empty."""
    received = b""
    while not (text and text in received) and (block := connection.recv(65_536)):
        received += block
    return received


@pytest.mark.parametrize(
    "reply, block",
    [(CHUNKED, b"10000\r\n" + BLOCK + b"\r\n"), (b"HTTP/1.1 200 OK\r\n\r\n", BLOCK)],
    ids=["chunked", "until the end"],
)
def test_an_endless_response_takes_constant_memory(xapi: Xapi, reply: bytes, block: bytes) -> None:
    with (
        Server([request(), send(OK)], [request(), send(reply), forever(block)], [request(), send(OK)]) as server,
        proxy(xapi, bearing(server)) as running,
        running.client() as client,
    ):
        client.get("/")
        before = running.memory()
        with client.stream("GET", "/") as unread, client.stream("GET", "/") as other:
            assert other.read() == b"ok"
            size = 0
            for each in unread.iter_raw():
                size += len(each)
                if size > SIZE:
                    break

        assert running.memory() - before < MOST


def test_an_endless_request_takes_constant_memory(xapi: Xapi) -> None:
    """The API reads nothing until the client can send no more."""
    is_full, has_all = threading.Event(), threading.Event()

    def read_all(peer: Peer) -> None:
        size = 0
        while size < SIZE:
            size += len(peer.sock.recv(2**20))
        has_all.set()

    chunk = b"10000\r\n" + BLOCK + b"\r\n"
    with (
        Server([request(), send(OK)], [head(), wait_for(is_full), read_all, hang()]) as server,
        proxy(xapi, bearing(server)) as running,
        running.client() as client,
    ):
        client.get("/")
        before = running.memory()
        with socket.create_connection(running.address, timeout=1) as connection:
            connection.sendall(post(running, "Transfer-Encoding: chunked"))
            unsent = memoryview(chunk)
            while not has_all.is_set():
                try:
                    unsent = unsent[connection.send(unsent) :] or memoryview(chunk)
                except TimeoutError:
                    is_full.set()

        assert is_full.is_set()
        assert running.memory() - before < MOST

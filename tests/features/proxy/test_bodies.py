"""Endless and slow bodies through `xapi proxy`: constant memory, and no time limit but that of each wait."""

import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.commands.api import bearing
from tests.features.proxy.running import Proxy, proxy
from tests.support.program import Xapi
from tests.support.servers import OK, Peer, Server, drip, forever, hang, head, request, send, wait_for

BLOCK = b"x" * 65_536
SIZE = 64 * 2**20  # bytes that are read of an endless body
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


def test_slow_bodies_end_when_they_end(xapi: Xapi) -> None:
    """Each wait is shorter than --timeout, and both bodies take longer."""

    def parts() -> Iterator[bytes]:
        for number in range(9):
            time.sleep(0.2)
            yield b"%d" % number

    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
    with (
        Server([request(), send(reply), drip(b"abcdefghi", 0.2)]) as server,
        proxy(xapi, bearing(server), "--port", "0", "--timeout", "1.5") as running,
        running.client() as client,
    ):
        assert client.post("/", content=parts()).text == "abcdefghi"
        assert b"1\r\n8\r\n0\r\n\r\n" in server.received[0]


def test_a_response_that_stops_is_not_complete_for_the_client(xapi: Xapi) -> None:
    with (
        Server([request(), send(CHUNKED + b"5\r\nhello\r\n"), hang()]) as server,
        proxy(xapi, bearing(server), "--port", "0", "--timeout", "1") as running,
        running.client() as client,
        client.stream("GET", "/") as streamed,
    ):
        blocks = streamed.iter_raw()
        assert next(blocks) == b"hello"
        with pytest.raises(httpx.RemoteProtocolError):
            next(blocks)

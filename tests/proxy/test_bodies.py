"""Endless and slow bodies through `xapi proxy`: constant memory, and no time limit but that of each wait."""

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

from tests.commands.api import bearing, response
from tests.proxy.running import Proxy, proxy
from tests.support.program import Xapi
from tests.support.servers import OK, Peer, Server, close, drip, forever, hang, head, request, reset, send, wait_for

BLOCK = b"x" * 65_536
SIZE = 64 * 2**20  # bytes that are read of an endless body
MOST = 16 * 2**20  # bytes
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED_OK = CHUNKED + b"2\r\nok\r\n0\r\n\r\n"


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


def test_refused_requests_of_a_client_that_does_not_read_take_constant_memory(xapi: Xapi) -> None:
    """A call that times out meanwhile shows that the wait for the client is not limited; then it gets all responses."""
    with (
        Server([request(), send(OK), request(), hang()]) as server,
        proxy(xapi, bearing(server), "--port", "0", "--timeout", "1") as running,
        running.client() as client,
        socket.create_connection(running.address, timeout=1) as connection,
    ):
        while client.get("/").status_code != 200:
            pass  # the first response was late, and another connection begins
        before = running.memory()
        refused = b"GET / HTTP/1.1\r\nHost: %b:%d\r\n\r\n" % (running.address[0].encode(), running.address[1])
        unsent, sent = memoryview(b""), 0
        with suppress(TimeoutError):
            while sent < MOST:  # more than the buffers of the connection take
                unsent = unsent or memoryview(512 * refused)
                count = connection.send(unsent)
                unsent, sent = unsent[count:], sent + count
        assert client.get("/").status_code == 504
        assert running.memory() - before < MOST

        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(30)
        with connection.makefile("rb") as received:
            assert received.read().count(b"HTTP/1.1 401 ") == sent // len(refused)


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


def test_a_client_that_reads_until_the_end_gets_a_reset_if_the_response_is_truncated(xapi: Xapi) -> None:
    with (
        Server([request(), send(CHUNKED + b"5\r\nhello\r\n"), close()]) as server,
        proxy(xapi, bearing(server)) as running,
        pytest.raises(ConnectionResetError),
    ):
        running.exchange(start_of(running, "GET / HTTP/1.0"))


def test_a_client_that_reads_until_the_end_gets_a_reset_if_the_proxy_ends_first(xapi: Xapi) -> None:
    command = ("sh", "-c", 'echo "$XAPI_BASE_URL $XAPI_TOKEN"; read -r line')
    with Server([request(), send(CHUNKED + b"5\r\nhello\r\n"), hang()]) as server:
        process = xapi.start("proxy", "--", *command, env=bearing(server), stdin=subprocess.PIPE)
        assert process.stdout
        url, key = process.stdout.readline().decode().split()
        running = Proxy(process, {"XAPI_BASE_URL": url, "XAPI_TOKEN": key})
        with socket.create_connection(running.address, timeout=30) as connection:
            connection.sendall(start_of(running, "GET / HTTP/1.0"))
            assert receive(connection, b"hello").endswith(b"hello")
            assert process.communicate(b"\n", timeout=30) == (b"", b"")
            with pytest.raises(ConnectionResetError):
                receive(connection)


def test_a_client_that_reads_until_the_end_gets_the_end_of_a_final_401(
    xapi: Xapi,
) -> None:
    reply = CHUNKED_OK.replace(b"200 OK", b"401 Unauthorized")
    with Server([request(), send(reply), hang()]) as server, proxy(xapi, bearing(server)) as running:
        received = running.exchange(start_of(running, "GET / HTTP/1.0", "Connection: keep-alive"))

    assert received == b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n\r\nok"


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


@pytest.mark.parametrize("reply", [OK, CHUNKED_OK], ids=["length", "chunked"])
def test_a_response_that_is_complete_before_the_upload_reaches_a_client_that_goes_on_sending(
    xapi: Xapi, reply: bytes
) -> None:
    has_begun, is_gone = threading.Event(), threading.Event()
    script = [head(), send(reply), wait_for(has_begun), reset(), lambda peer: is_gone.set()]
    with (
        Server(script) as server,
        proxy(xapi, bearing(server)) as running,
        socket.create_connection(running.address, timeout=30) as connection,
    ):
        connection.sendall(post(running, f"Content-Length: {64 * len(BLOCK)}") + BLOCK)
        received = receive(connection, b"ok")
        has_begun.set()
        assert is_gone.wait(30)
        connection.sendall(63 * BLOCK)
        received += receive(connection)

    assert received == reply


def test_a_response_is_complete_even_if_the_api_stops_reading_the_upload(xapi: Xapi) -> None:
    def shrink(peer: Peer) -> None:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, len(BLOCK))

    with (
        Server([shrink, head(), send(CHUNKED_OK), hang()]) as server,
        proxy(xapi, bearing(server), "--port", "0", "--timeout", "1") as running,
        socket.create_connection(running.address, timeout=30) as connection,
    ):
        connection.sendall(post(running, f"Content-Length: {SIZE}"))
        connection.sendall(192 * BLOCK)  # more than the buffers of the connections take
        assert receive(connection) == CHUNKED_OK


@pytest.mark.parametrize(
    ("first", "last"), [(CHUNKED_OK, b""), (CHUNKED + b"2\r\nok\r\n", b"0\r\n\r\n")], ids=["complete", "incomplete"]
)
def test_a_client_may_pause_in_its_upload_after_the_response_has_begun(xapi: Xapi, first: bytes, last: bytes) -> None:
    """Another call, which begins later and times out, shows that the pause is longer than --timeout."""
    has_all = threading.Event()
    script = [head(), send(first), request(), lambda peer: has_all.set(), send(last)]
    with (
        Server(script, [request(), hang()]) as server,
        proxy(xapi, bearing(server), "--port", "0", "--timeout", "1") as running,
        socket.create_connection(running.address, timeout=30) as connection,
        running.client() as client,
    ):
        connection.sendall(post(running, "Content-Length: 6", "Connection: close") + b"ab")
        assert receive(connection, first[-7:]).endswith(first[-7:])
        assert client.get("/").status_code == 504
        connection.sendall(b"cdef")
        assert receive(connection) == last
        assert has_all.wait(30)


def test_an_upload_that_pauses_does_not_hold_other_calls_after_a_401_with_a_new_token(xapi: Xapi) -> None:
    """The 401 is final, although no call has shown whether the token is valid."""
    has_begun = threading.Event()
    login = [request(), send(response(body=b'{"access_token": "new"}'))]
    upload = [head(), lambda peer: has_begun.set(), request(), send(OK)]
    rejection = [request(), send(response("401 Unauthorized"))]
    with (
        Server(login, upload, rejection, [request(), send(OK)]) as server,
        proxy(xapi, {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "password"}) as running,
        socket.create_connection(running.address, timeout=30) as connection,
        running.client() as client,
    ):
        connection.sendall(post(running, "Content-Length: 4", "Connection: close") + b"ab")
        assert has_begun.wait(30)
        assert [client.get("/").status_code for _ in range(2)] == [401, 200]
        connection.sendall(b"cd")
        assert receive(connection).startswith(b"HTTP/1.1 200 ")

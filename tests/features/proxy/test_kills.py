"""A client, the command, the API or the proxy itself ends without notice, at each step of a call."""

import signal
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.commands.api import TOKEN, bearing
from tests.features.proxy.running import Proxy, proxy
from tests.support.program import PROGRAM, Xapi
from tests.support.servers import OK, Peer, Server, Step, head, request, reset, send, until_closed
from xapi_cli.features.sandbox import Sandbox

LENGTH = 2**20


def connected(running: Proxy, data: bytes) -> socket.socket:
    """Return a connection over which *data* was sent, after the request line, Host and the key."""
    sock = socket.create_connection(running.address, timeout=30)
    host = "{}:{}".format(*running.address)
    start_line, _, rest = data.partition(b"\r\n")
    key = running.settings["XAPI_TOKEN"]
    sock.sendall(start_line + f"\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n".encode() + rest)
    return sock


def reset_connection(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


GET, POST = b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % LENGTH
LARGE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LENGTH
STEPS: dict[str, tuple[bytes, list[Step]]] = {
    "in the headers": (GET, []),
    "in the body": (POST + b"part", [head()]),
    "before the response": (GET + b"\r\n", [request()]),
    "in the response headers": (GET + b"\r\n", [request(), send(b"HTTP/1.1 200 OK\r\nX: y")]),
    "in the response": (GET + b"\r\n", [request(), send(LARGE + b"part")]),
}


@pytest.mark.parametrize("end", [socket.socket.close, reset_connection])
@pytest.mark.parametrize("data, steps", STEPS.values(), ids=STEPS)
def test_a_killed_client_ends_its_call_only(
    xapi: Xapi, data: bytes, steps: list[Step], end: Callable[[socket.socket], None]
) -> None:
    reached, gone = threading.Event(), threading.Event()

    def wait_for_end(peer: Peer) -> None:
        reached.set()
        try:
            until_closed()(peer)
        finally:
            gone.set()

    scripts: list[list[Step]] = [[*steps, wait_for_end]] if steps else []
    with Server(*scripts, [request(), send(OK)]) as server, proxy(xapi, bearing(server)) as running:
        sock = connected(running, data)
        assert not steps or reached.wait(60)
        end(sock)
        assert not steps or gone.wait(60)
        with running.client() as client:
            assert client.get("/").text == "ok"


UPSTREAM: dict[str, list[Step]] = {
    "before the response": [request(), reset()],
    "in the response headers": [request(), send(b"HTTP/1.1 200 OK\r\nX: y"), reset()],
    "in the response": [request(), send(LARGE + b"part"), reset()],
    "in the request": [head(), reset()],
}


@pytest.mark.parametrize(("step", "method"), [*((step, "POST") for step in UPSTREAM), ("before the response", "PATCH")])
def test_a_post_or_patch_that_may_have_been_processed_gets_no_response(xapi: Xapi, step: str, method: str) -> None:
    """A client would send it again after a 502."""
    with (
        Server(UPSTREAM[step], [request(), send(OK)]) as server,
        proxy(xapi, bearing(server)) as running,
        running.client() as client,
    ):
        with pytest.raises(httpx.TransportError):
            client.request(method, "/", content=b"x" * LENGTH)
        assert running.process.stderr
        assert step == "in the response" or any(b"may have been processed" in line for line in running.process.stderr)
        assert client.get("/").text == "ok"
        assert len(server.received) == 2  # it was not sent again


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_after_the_end_of_the_command_nothing_is_left(xapi: Xapi, sandbox: Sandbox, number: int) -> None:
    script = f'echo "$XAPI_PROXY_SOCKET"; echo "$XAPI_BASE_URL"; kill -{int(number)} $$'

    outcome = xapi("proxy", "--", "sh", "-c", script, env=sandbox.settings)

    path, url = outcome.out.split()
    assert outcome.code == 128 + number
    assert not Path(path).parent.exists()
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)


def test_the_token_is_in_no_file_and_no_argument(xapi: Xapi) -> None:
    with (
        Server([request(), send(OK)]) as server,
        proxy(xapi, bearing(server), argv=(str(PROGRAM),)) as running,
        running.client() as client,
    ):
        client.get("/")
        arguments = Path(f"/proc/{running.process.pid}/cmdline").read_bytes()
        files = [each.read_bytes() for each in xapi.home.rglob("*") if each.is_file()]

    assert TOKEN.encode() not in arguments
    assert running.settings["XAPI_TOKEN"].encode() not in arguments
    assert not any(TOKEN.encode() in each for each in files)

"""The HTTP server of the sandbox: framing, 100 Continue, connections, listening."""

import socket

import httpx
import pytest

from tests.features.sandbox.client import exchange, log_in, port_of
from xapi_cli.features.sandbox import Sandbox


def test_a_large_body_with_a_bad_token_gets_a_response_before_it_is_read(sandbox: Sandbox) -> None:
    with socket.create_connection(("127.0.0.1", port_of(sandbox)), timeout=10) as connection:
        connection.sendall(b"POST /x-api/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nfirst bytes")

        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_a_client_that_waits_for_100_continue_gets_401_first(sandbox: Sandbox) -> None:
    post = b"POST /x-api/echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"

    response = exchange(sandbox, post)
    assert response.startswith(b"HTTP/1.1 401 ")
    assert b"100 Continue" not in response


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: four\r\n\r\nbody",
        b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
        b"Transfer-Encoding: chunked\r\n\r\n2\r\nbody\r\n0\r\n\r\n",
        b"Content-Length: 8\r\n\r\nbody",
    ],
)
def test_an_invalidly_framed_body_is_400_and_closes_the_connection(
    sandbox: Sandbox, client: httpx.Client, framing: bytes
) -> None:
    head = f"POST /x-api/echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {log_in(client)}\r\n".encode()

    assert exchange(sandbox, head + framing, half_close=True).startswith(b"HTTP/1.1 400 ")


def test_the_server_stops_with_an_idle_client() -> None:
    with Sandbox() as server:
        idle = socket.create_connection(("127.0.0.1", port_of(server)))
    idle.close()

"""The HTTP server of the sandbox: framing, 100 Continue, connections, listening."""

import json
import socket
import threading

import httpx
import pytest

from tests.features.sandbox.client import NO_TLS, bearer, exchange, log_in, port_of
from xapi_cli.errors import UsageError
from xapi_cli.features.sandbox import MASTER, Sandbox


def test_a_large_body_with_a_bad_token_gets_a_response_before_it_is_read(sandbox: Sandbox) -> None:
    with socket.create_connection(("127.0.0.1", port_of(sandbox)), timeout=10) as connection:
        connection.sendall(b"POST /x-api/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nfirst bytes")

        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_a_small_body_with_a_bad_token_keeps_the_connection(sandbox: Sandbox) -> None:
    post = b"POST /x-api/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
    last = b"GET /x-api/me HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

    assert exchange(sandbox, post + post + last).count(b"HTTP/1.1 401 ") == 3


def test_a_client_that_waits_for_100_continue_gets_401_first(sandbox: Sandbox) -> None:
    post = b"POST /x-api/echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"

    response = exchange(sandbox, post)
    assert response.startswith(b"HTTP/1.1 401 ")
    assert b"100 Continue" not in response


def test_a_client_that_waits_for_100_continue_gets_it(sandbox: Sandbox, client: httpx.Client) -> None:
    head = b"POST /x-api/echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", port_of(sandbox)), timeout=10) as connection:
        connection.sendall(head + f"Authorization: Bearer {log_in(client)}\r\n\r\n".encode())
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"body")
        assert b'"text":"body"' in b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: four\r\n\r\nbody",
        b"Content-Length: -4\r\n\r\nbody",
        b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        b"Transfer-Encoding: gzip\r\n\r\nbody",
        b"Transfer-Encoding: chunked\r\n\r\nfour\r\nbody\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n2\r\nbody\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n8\r\nbody",
        b"Content-Length: 8\r\n\r\nbody",
    ],
)
def test_an_invalidly_framed_body_is_400_and_closes_the_connection(
    sandbox: Sandbox, client: httpx.Client, framing: bytes
) -> None:
    head = f"POST /x-api/echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {log_in(client)}\r\n".encode()

    assert exchange(sandbox, head + framing, half_close=True).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("request_line", [b"BREW /x-api/me HTTP/1.1", b"GET /x-api/me HTTP/9.9", b"nonsense\x1b[2J"])
def test_a_malformed_request_gets_a_json_response(sandbox: Sandbox, request_line: bytes) -> None:
    head, _, body = exchange(sandbox, request_line + b"\r\n\r\n", half_close=True).partition(b"\r\n\r\n")

    assert head.split(b" ")[1] in {b"400", b"501", b"505"}
    assert json.loads(body)["error"] == "invalid_request"


def test_concurrent_clients_are_all_served(sandbox: Sandbox, client: httpx.Client) -> None:
    token, statuses = log_in(client), []
    barrier = threading.Barrier(100)

    def call() -> None:
        barrier.wait()
        reply = httpx.get(f"{sandbox.base_url}/x-api/me", headers=bearer(token), trust_env=False, verify=NO_TLS)
        statuses.append(reply.status_code)

    threads = [threading.Thread(target=call) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (statuses, sandbox.requests) == ([200] * 100, 100)


# listening


def test_the_server_listens_on_loopback_only(sandbox: Sandbox) -> None:
    assert sandbox.base_url.startswith("http://127.0.0.1:")
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", port_of(sandbox)), timeout=2):
        pass


def test_the_error_for_a_port_in_use_contains_it(sandbox: Sandbox) -> None:
    with pytest.raises(UsageError, match=f"127.0.0.1:{port_of(sandbox)}.*in use; choose another --port"):
        Sandbox(port_of(sandbox))


def test_the_error_for_an_invalid_port_contains_it() -> None:
    with pytest.raises(UsageError, match="not a valid port number"):
        Sandbox(70_000)


def test_the_server_stops_with_an_idle_client() -> None:
    with Sandbox() as server:
        idle = socket.create_connection(("127.0.0.1", port_of(server)))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(server)))
    idle.close()


def test_passwords_are_not_in_the_repr() -> None:
    assert MASTER.password not in repr(MASTER)
    assert set("+&% =") <= set(MASTER.password)

"""Any bytes from a server are a response or one error, for a request and for a login."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import httpx
import pytest
from hypothesis import given

from tests.fuzz.mutations import mutated
from tests.support.servers import Peer, Server
from xapi_cli.auth.grant import request_token
from xapi_cli.auth.token_source import SuppliedToken, TokenSource
from xapi_cli.errors import XapiError
from xapi_cli.http.decoding import decode
from xapi_cli.http.httpx_transport import HttpxTransport
from xapi_cli.http.send import Call, Sender
from xapi_cli.http.transport import open_transport
from xapi_cli.system.render import printable
from xapi_cli.tokens import Identity

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
TOKEN, PASSWORD = "canary-of-a-token", "canary of a pässword"
GZIP = bytes.fromhex("1f8b08000000000002034b4c4a06006e3e7c0303000000")
RESPONSES = [
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 11\r\nSet-Cookie: a=b\r\n\r\nhello world",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX: y\r\n\r\n",
    b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.0 404 Not Found\r\nConnection: close\r\n\r\nnot here",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 23\r\n\r\n" + GZIP,
    b"HTTP/1.1 302 Found\r\nLocation: ./there?a=b#c\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 2\r\n\r\nno",
    b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno",
]
GRANTS = [
    b'HTTP/1.1 200 OK\r\nContent-Length: 66\r\n\r\n{"access_token": "good", "token_type": "bearer", "expires_in": 60}',
    b'HTTP/1.1 200 OK\r\n\r\n{"access_token": "good", "token_type": "Bearer", "expires_in": "3600"}',
    b'HTTP/1.1 400 Bad Request\r\nContent-Length: 26\r\n\r\n{"error": "invalid_grant"}',
    b"HTTP/1.1 307 Away\r\nLocation: https://other.test/x-api/token\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 429 Slowly\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n",
]

responses: list[bytes] = []


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with one configurable response for all requests."""

    def respond(peer: Peer) -> None:
        peer.read_request()
        peer.sock.sendall(responses[-1])

    with Server([respond]) as server:
        yield server


@given(mutated(RESPONSES))
def test_any_api_response_is_a_body_or_one_error(server: Server, data: bytes) -> None:
    responses[:] = [data]
    with closing(open_transport(timeout=60, ca_bundle=None, environ={})) as wire:
        exchange = Sender(wire, server.url, TokenSource(SuppliedToken("XAPI_TOKEN", lambda: TOKEN)), follow=False)
        try:
            with closing(exchange.send(Call("GET", f"{server.url}/x")).response) as response:
                for block in decode(response.chunks(), response.headers.get("Content-Encoding")):
                    assert len(block) <= 65536
        except XapiError as error:
            _check(error)


@given(mutated(GRANTS))
def test_any_token_response_is_a_token_or_one_error(server: Server, data: bytes) -> None:
    responses[:] = [data]
    me = Identity(server.url, "me@example.com")
    with closing(open_transport(timeout=60, ca_bundle=None, environ={})) as wire:
        try:
            token = request_token(HttpxTransport(wire), me, PASSWORD, timeout=60, now=lambda: NOW)
        except XapiError as error:
            _check(error)
        else:
            assert token.access_token
            assert all("!" <= char <= "~" for char in token.access_token)
            assert httpx.Headers({"Authorization": f"Bearer {token.access_token}"})


def _check(error: XapiError) -> None:
    assert error.exit_code in {3, 4, 5, 10, 11}, error
    assert str(error) == printable(str(error))
    assert "canary" not in str(error)

"""Requests and responses are transferred over HTTP/1.1 as they are."""

import re
import threading

import pytest

from tests.http.clients import client, get
from tests.support.servers import (
    OK,
    Peer,
    Server,
    request,
    send,
    serve,
    wait_for,
)
from xapi_cli.errors import NetworkError


def test_a_request_and_its_response_are_transferred_verbatim() -> None:
    reply = b"HTTP/1.1 201 Made it\r\nX-One: 1\r\nx-two: \xe9\r\nX-One: 2\r\nContent-Length: 5\r\n\r\nhello"
    with Server([request(), send(reply)]) as server, client(headers={"User-Agent": "me"}) as http:
        response = http.post(f"{server.url}/a%20b?c=d", content=b"body", headers=[(b"X-Q", b"\xc3\xa9")])

        assert (
            server.received[0]
            == (
                f"POST /a%20b?c=d HTTP/1.1\r\nHost: {server.name}\r\nAccept: */*\r\n"
                f"Accept-Encoding: {http.headers['Accept-Encoding']}\r\n"
                "Connection: keep-alive\r\nUser-Agent: me\r\nX-Q: é\r\nContent-Length: 4\r\n\r\nbody"
            ).encode()
        )
    assert (response.status_code, response.content) == (201, b"hello")
    assert response.headers.raw == [
        (b"X-One", b"1"),
        (b"x-two", b"\xe9"),
        (b"X-One", b"2"),
        (b"Content-Length", b"5"),
    ]
    assert response.extensions["http_version"] == b"HTTP/1.1"
    assert response.extensions["reason_phrase"] == b"Made it"
    assert response.extensions["tls"] is None


def test_the_request_line_and_headers_are_sent_in_a_single_write() -> None:
    packets: list[bytes] = []

    def receive(peer: Peer) -> None:
        packets.append(peer.sock.recv(65536))

    with Server([receive, send(OK)]) as server, client() as http:
        http.get(server.url, headers={f"X-{number}": "value" * 100 for number in range(20)})

    assert packets[0].endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: 1\r\n\r\n",
            b"abcde",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nup to the end", b"up to the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nold", b"old"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 999 ?\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", b"ok"),
    ],
)
def test_every_kind_of_body_framing_is_supported(reply: bytes, body: bytes) -> None:
    with Server([request(), send(reply)]) as server:
        assert get(server).content == body


def test_a_body_is_yielded_as_it_arrives() -> None:
    more = threading.Event()
    reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    with (
        Server([request(), send(reply), wait_for(more), send(b"1\r\nd\r\n0\r\n\r\n")]) as server,
        client() as http,
        http.stream("GET", server.url) as response,
    ):
        parts = response.iter_raw()
        assert next(parts) == b"abc"
        more.set()
        assert list(parts) == [b"d"]


def test_a_response_to_head_may_declare_a_body_but_its_connection_is_not_reused() -> None:
    with Server([serve(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")]) as server, client() as http:
        assert http.head(server.url).content == b""
        assert http.head(server.url).content == b""
        assert len(server.received) == 2


def test_a_body_of_unknown_length_is_sent_in_chunks() -> None:
    with Server([request(), send(OK)]) as server, client() as http:
        http.post(server.url, content=iter([b"abc", b"", b"de"]))
        assert server.received[0].endswith(b"\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")


def test_ipv6_addresses_are_supported_and_shown_in_brackets() -> None:
    with Server([request(), send(OK)], host="::1") as server:
        assert get(server).content == b"ok"
        assert f"Host: {server.name}\r\n".encode() in server.received[0]
    with pytest.raises(NetworkError, match=re.escape(f"no connection to [::1]:{server.port}: connection refused")):
        get(server)


def test_a_name_with_several_addresses_is_tried_until_one_responds() -> None:
    with Server([serve()]) as server, client() as http:
        assert http.get(f"http://localhost:{server.port}").content == b"ok"

"""Messages that two parsers delimit differently never hide another one (RFC 9112, section 11.2), in either direction.

The corpora are the classic pairs of Content-Length and Transfer-Encoding, and what scanners such as smuggler and
http-garden vary: spaces, signs, lists, case, control characters, line ends, and chunk lengths and extensions.
"""

import re
import socket

import h11
import pytest

from tests.commands.api import bearing
from tests.features.proxy.running import Proxy, proxy
from tests.support.program import Xapi
from tests.support.servers import OK, Server, request, send, serve

HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: %b\r\nX: %b\r\n\r\n"
CODINGS = [
    b"Transfer-Encoding: chunked", b"Transfer-Encoding : chunked", b" Transfer-Encoding: chunked",
    b"Transfer-Encoding:\x0bchunked", b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: identity, chunked", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
    b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunk\r\n ed",
    b"X: y\nTransfer-Encoding: chunked", b"X: y\rTransfer-Encoding: chunked", b"Transfer-Encoding\x00: chunked",
    b"Transfer-Encoding: chunked\x00", b"Transfer-Encoding: \"chunked\"", b"Transfer-Encoding:\xa0chunked",
    b"Transfer_Encoding: chunked",
]  # fmt: skip
LENGTHS = [
    b"Content-Length: +5", b"Content-Length: -5", b"Content-Length: 0x5", b"Content-Length: 5 ,5",
    b"Content-Length: 5\r\nContent-Length: 0", b"Content-Length: 0\r\nContent-Length: 5", b"Content-Length: 5\x00",
    b"Content-Length: 5a", b"Content-Length: 1e1", b"Content-Length: \xb2", b"Content-Length : 5", b"Content-Length:",
    b"X: y\nContent-Length: 5", b"Content-Length: 5\n", b"Content-Length: 99999999999999999999",
]  # fmt: skip
CHUNKED = [
    b"0\n\n", b"0\r\n\n", b"0\n\r\n", b"0x0\r\n\r\n", b"+0\r\n\r\n", b"-0\r\n\r\n", b" 0\r\n\r\n", b"0 \r\n\r\n",
    b"0\r\r\n\r\n", b"5\r\nhello\r0\r\n\r\n", b"5\r\nhello\n0\r\n\r\n", b"5\r\nhello0\r\n\r\n",
    b"5\nhello\r\n0\r\n\r\n", b"10000000000000000\r\n", b"0\r\nX: y\n\r\n", b"0;a\nb\r\n\r\n", b"0;a=\"\r\n\"\r\n\r\n",
    b"\r\n0\r\n\r\n", b"5;\x00\r\nhello\r\n0\r\n\r\n",
]  # fmt: skip


def exchange(running: Proxy, data: bytes, *, until_end: bool = True) -> bytes:
    """Return what the proxy sends in reply to *data*, until it closes the connection, or the start of it."""
    with socket.create_connection(running.address, timeout=30) as connection:
        connection.sendall(data)
        received = b""
        try:
            while block := connection.recv(65_536):
                received += block
                if not until_end:
                    break
        except ConnectionResetError:
            pass
    return received


def test_a_hidden_request_is_never_forwarded(xapi: Xapi) -> None:
    with Server([serve(OK)]) as server, proxy(xapi, bearing(server)) as running:
        host = "{}:{}".format(*running.address).encode()
        start = b"POST /open HTTP/1.1\r\nHost: %b\r\nAuthorization: Bearer %b\r\n"
        start %= host, running.settings["XAPI_TOKEN"].encode()
        hidden = HIDDEN % (host, start.splitlines()[2])
        for fields in [
            *(b"Content-Length: %d\r\n%b" % (len(hidden) + 5, each) for each in CODINGS),
            *(b"%b\r\nContent-Length: 5" % each for each in CODINGS),
            *LENGTHS,
        ]:
            received = exchange(running, start + fields + b"\r\n\r\n0\r\n\r\n" + hidden, until_end=False)
            status = int(received.split()[1])
            assert status == 400, (fields, received)
        for body in CHUNKED:
            received = exchange(running, start + b"Transfer-Encoding: chunked\r\n\r\n" + body + hidden)
            assert int(received.split()[1]) == 400, (body, received)
        forwarded = b"".join(server.received)

    targets = re.findall(rb"^[A-Z]+ (\S+) HTTP/1\.1\r\nHost: [^\r]*\r\n(?!X: )", forwarded, re.MULTILINE)
    assert set(targets) <= {b"/open"}
    assert b"Transfer-Encoding: chunked\r\nContent" not in forwarded


INTRUDER = b"HTTP/1.1 200 OK\r\nX-Intruder: yes\r\nContent-Length: 8\r\n\r\nintruder"
START = b"HTTP/1.1 200 OK\r\n"
REPLIES = [
    *(START + b"Content-Length: 5\r\n%b\r\n\r\n0\r\n\r\n" % each + INTRUDER for each in CODINGS),
    *(START + each + b"\r\n\r\nhello" + INTRUDER for each in LENGTHS),
    *(START + b"Transfer-Encoding: chunked\r\n\r\n" + each + INTRUDER for each in CHUNKED),
    START + b"Content-Length: 5, 5\r\n\r\nhello" + INTRUDER,
    START + b"Content-Length: 05\r\n\r\nhello" + INTRUDER,
    b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello" + INTRUDER,
    b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + INTRUDER,
    b"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\n" + OK + INTRUDER,
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + INTRUDER,
    b"HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n" + INTRUDER,
    b"HTTP/1.1 200 OK\x00\r\nContent-Length: 0\r\n\r\n" + INTRUDER,
    b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + INTRUDER,
    OK + INTRUDER,
    INTRUDER[:40],
    b"HTTP/2 200 OK\r\n\r\n",
]


OWN = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nown"


Response = tuple[int, list[tuple[bytes, bytes]], bytes]


def read_all(data: bytes, methods: list[str]) -> tuple[list[Response], bytes]:
    """Return the status, headers and body of each of the responses in *data*, and what follows them.

    The last one is omitted if it is truncated.
    """
    client = h11.Connection(h11.CLIENT)
    found: list[Response] = []
    client.receive_data(data)
    client.receive_data(b"")
    for method in methods:
        client.send(h11.Request(method=method, target="/", headers=[("Host", "api")]))
        client.send(h11.EndOfMessage())
        response, body = None, b""
        while not isinstance(event := client.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.ConnectionClosed):
                return found, b""
            if isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += event.data
        assert response is not None
        found.append((response.status_code, list(response.headers), body))
        if client.their_state is not h11.DONE:
            break
        client.start_next_cycle()
    return found, bytes(client.trailing_data[0])


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_response_never_hides_another_one(xapi: Xapi, method: str) -> None:
    """The second request of a client gets its own response, whatever the first one was."""
    scripts = [script for reply in REPLIES for script in ([request(), send(reply)], [request(), send(OWN)])]
    with Server(*scripts) as server, proxy(xapi, bearing(server)) as running:
        rest = " HTTP/1.1\r\nHost: {}:{}\r\nAuthorization: Bearer {}\r\n".format(
            *running.address, running.settings["XAPI_TOKEN"]
        )
        requests = f"{method} /1{rest}\r\nGET /2{rest}Connection: close\r\n\r\n".encode()
        for number, reply in enumerate(REPLIES):
            received = exchange(running, requests)
            assert received.startswith(b"HTTP/1.1 "), reply
            try:
                found, surplus = read_all(received, [method, "GET"])
            except h11.RemoteProtocolError as error:
                assert "peer closed connection" in str(error), (reply, received)
                found, surplus = [], b""
            assert not surplus, (reply, received)
            assert all(name != b"x-intruder" for _, headers, _ in found for name, _ in headers), (reply, received)
            assert [(status, body) for status, _, body in found[1:]] in ([], [(200, b"own")]), (reply, received)
            for length in re.findall(rb"\n(?i:content-length): ([^\r]*)\r", received):
                assert re.fullmatch(rb"0|[1-9][0-9]*", length), (reply, received)
            if len(found) < 2:  # the other connection is for the next reply otherwise
                assert exchange(running, requests.partition(b"\r\n\r\n")[2]).endswith(b"own")
            assert len(server.received) == 2 * (number + 1), (reply, received)

"""`request` and `batch` interpret every response identically, however its bytes are split."""

import base64
import json
import re
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from tests.features.batch.server import out_lines
from tests.support.combinations import combined
from tests.support.program import Xapi
from tests.support.servers import Peer, Server
from xapi_cli.errors import NetworkError, RedirectError, TimeoutExpired
from xapi_cli.http.decoding import decode
from xapi_cli.http.send import Call, Sender
from xapi_cli.http.transport import open_transport

Outcome = tuple[int, bytes] | str
Deliver = Callable[[socket.socket, bytes], None]

TIMEOUT, LONG_TIMEOUT = 1, 30  # seconds; for responses that are expected to time out, and for the others
BAD, LATE = "network", "timeout"
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LANDED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"


def coded(name: bytes) -> bytes:
    return OK + b"Content-Encoding: " + name + b"\r\nContent-Length: 2\r\n\r\nok"


def redirect(location: bytes, *more: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 302 Found", b"Location: " + location, *more, b"", b""])


# What the server sends, and the outcomes: if the connection stays open, and if the server then closes it.
SAME: dict[str, tuple[bytes, Outcome]] = {
    "usual": (OK + b"Content-Length: 2\r\n\r\nok", (200, b"ok")),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
    "1.0 with a length": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
    "bare LF": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", (200, b"ok")),
    "bare LF in the status line": (b"HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
    "bare LF in a header": (OK + b"A: b\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
    "bare LF at the end": (OK + b"Content-Length: 2\r\n\nok", (200, b"ok")),
    "bare LF, then CRLF CRLF in the body": (b"HTTP/1.1 200 OK\nContent-Length: 4\n\n\r\n\r\n", (200, b"\r\n\r\n")),
    "bare LF in a redirect": (b"HTTP/1.1 302 Found\nLocation: /landed\n\n", (200, b"/landed")),
    "a folded header": (OK + b"A: b\r\n c\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
    "a fold before the first header": (OK + b" A: b\r\n\r\n", BAD),
    "a blank before a colon": (OK + b"Content-Length : 2\r\n\r\nok", BAD),
    "no colon": (OK + b"rubbish\r\n\r\n", BAD),
    "an empty name": (OK + b": b\r\n\r\n", BAD),
    "NUL in a value": (OK + b"A: \0\r\n\r\n", BAD),
    "a lone CR in a value": (OK + b"A: b\rc\r\nContent-Length: 2\r\n\r\nok", BAD),
    "not UTF-8 in a value": (OK + b"A: \xe9\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
    "the same length twice": (OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
    "two lengths": (OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok", BAD),
    "a list of lengths": (OK + b"Content-Length: 2, 2\r\n\r\nok", (200, b"ok")),
    "a negative length": (OK + b"Content-Length: -2\r\n\r\nok", BAD),
    "a signed length": (OK + b"Content-Length: +2\r\n\r\nok", BAD),
    "a length in hex": (OK + b"Content-Length: 0x2\r\n\r\nok", BAD),
    "an empty length": (OK + b"Content-Length:\r\n\r\n", BAD),
    "a length with zeros": (OK + b"Content-Length: 0002\r\n\r\nok", (200, b"ok")),
    "a length of 50 digits": (OK + b"Content-Length: " + b"9" * 50 + b"\r\n\r\n", BAD),
    "204 without a length": (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
    "204 with a length": (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", (204, b"")),
    "304 with a length": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", (304, b"")),
    "304 with chunks declared": (b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", (304, b"")),
    "HEAD with a length": (OK + b"Content-Length: 5\r\n\r\n", (200, b"")),
    "HEAD with chunks declared": (CHUNKED, (200, b"")),
    "HEAD with a coding": (OK + b"Content-Encoding: gzip\r\nContent-Length: 99999999\r\n\r\n", (200, b"")),
    "100 first": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nok", (200, b"ok")),
    "103 first, with bare LF": (b"HTTP/1.1 103 Hints\nLink: x\n\n" + OK + b"Content-Length: 2\r\n\r\nok", (200, b"ok")),
    "199 first": (b"HTTP/1.1 199 ?\r\nContent-Length: 9\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nok", (200, b"ok")),
    "101": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", BAD),
    "a bad version after 100": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/2.0 200 OK\r\n\r\n", BAD),
    "status 099": (b"HTTP/1.1 099 OK\r\n\r\n", BAD),
    "status 1000": (b"HTTP/1.1 1000 OK\r\n\r\n", BAD),
    "status 20": (b"HTTP/1.1 20 OK\r\n\r\n", BAD),
    "status 999": (b"HTTP/1.1 999 ?\r\nContent-Length: 2\r\n\r\nok", (999, b"ok")),
    "HTTP/0.9": (b"<html>", BAD),
    "HTTP/1.2": (b"HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok", BAD),
    "HTTP/2.0": (b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok", BAD),
    "HTTP/2": (b"HTTP/2 200\r\nContent-Length: 2\r\n\r\nok", BAD),
    "HTTP/1.01": (b"HTTP/1.01 200 OK\r\nContent-Length: 2\r\n\r\nok", BAD),
    "http/1.1": (b"http/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", BAD),
    "ICY": (b"ICY 200 OK\r\nContent-Length: 2\r\n\r\nok", BAD),
    "an SSH server": (b"SSH-2.0-OpenSSH_9.2\r\n", BAD),
    "an empty line first": (b"\r\n" + OK + b"Content-Length: 2\r\n\r\nok", BAD),
    "chunks": (CHUNKED + b"2\r\nok\r\n0\r\n\r\n", (200, b"ok")),
    "chunks with extensions": (CHUNKED + b"1;a=b\r\no\r\n01;c\r\nk\r\n0;d\r\n\r\n", (200, b"ok")),
    "chunks with trailers": (CHUNKED + b"2\r\nok\r\n0\r\nA: b\r\nC: d\r\n\r\n", (200, b"ok")),
    "chunks and a length": (
        OK + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        (200, b"ok"),
    ),
    "another transfer coding": (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", BAD),
    "bare LF after a chunk's size": (CHUNKED + b"2\nok", BAD),
    "bare LF after a chunk's extension": (CHUNKED + b"2;a\nok\r\n0\r\n\r\n", BAD),
    "bare LF after a chunk": (CHUNKED + b"2\r\nok\n", BAD),
    "bare LF after the last size": (CHUNKED + b"2\r\nok\r\n0\n", BAD),
    "bare LF in trailers": (CHUNKED + b"2\r\nok\r\n0\r\nA: b\n", BAD),
    "bare LF instead of trailers": (CHUNKED + b"2\r\nok\r\n0\r\n\n", BAD),
    "a chunk without a size": (CHUNKED + b"\r\nok\r\n", BAD),
    "a chunk of a negative size": (CHUNKED + b"-2\r\nok\r\n", BAD),
    "a chunk of a signed size": (CHUNKED + b"+2\r\nok\r\n", BAD),
    "a chunk with 0x": (CHUNKED + b"0x2\r\nok\r\n", BAD),
    "a chunk that is longer than its size": (CHUNKED + b"2\r\nokay\r\n", BAD),
    "an invalid trailer": (CHUNKED + b"2\r\nok\r\n0\r\nrubbish\r\n\r\n", BAD),
    "identity": (coded(b"identity"), (200, b"ok")),
    "no coding": (coded(b"none"), (200, b"ok")),
    "no coding, listed": (coded(b"Identity, NONE"), (200, b"ok")),
    "an unknown coding": (coded(b"br"), BAD),
    "not in the declared coding": (coded(b"gzip"), BAD),
    "two codings": (coded(b"gzip, gzip"), BAD),
    "a redirect without a body": (redirect(b"/landed", b"Content-Length: 0"), (200, b"/landed")),
    "a redirect with a body without an end": (redirect(b"/landed") + b"x", (200, b"/landed")),
    "a redirect with a short body": (redirect(b"/landed", b"Content-Length: 9") + b"x", (200, b"/landed")),
    "a redirect with a large body": (redirect(b"/landed", b"Content-Length: 99999999") + b"x", (200, b"/landed")),
    "a redirect with an invalid body": (
        redirect(b"/landed", b"Transfer-Encoding: chunked") + b"2\nok",
        (200, b"/landed"),
    ),
    "a redirect with an unknown coding": (
        redirect(b"/landed", b"Content-Encoding: br", b"Content-Length: 1") + b"x",
        (200, b"/landed"),
    ),
    "a redirect to UTF-8": (redirect("/\u00fcber".encode(), b"Content-Length: 0"), (200, b"/%C3%BCber")),
    "a redirect to latin-1": (redirect(b"/\xfcber", b"Content-Length: 0"), (200, b"/%FCber")),
    "a redirect to UTF-8 beside latin-1": (
        redirect("/\u00fcber".encode(), b"A: \xfc", b"Content-Length: 0"),
        (200, b"/%C3%BCber"),
    ),
    "a redirect to the same target twice": (
        redirect(b"/landed", b"Location: /landed", b"Content-Length: 0"),
        (200, b"/landed"),
    ),
    "a redirect to two targets": (redirect(b"/a", b"Location: /b", b"Content-Length: 2") + b"ok", (302, b"ok")),
    "a redirect to nowhere": (redirect(b"", b"Content-Length: 2") + b"ok", (302, b"ok")),
    "300 with a target": (b"HTTP/1.1 300 ?\r\nLocation: /landed\r\nContent-Length: 2\r\n\r\nok", (300, b"ok")),
}
OPEN_OR_CLOSED: dict[str, tuple[bytes, Outcome, Outcome]] = {
    "until the end": (OK + b"\r\nok", LATE, (200, b"ok")),
    "until the end, with bare LF": (b"HTTP/1.1 200 OK\n\nok", LATE, (200, b"ok")),
    "until the end, 1.0": (b"HTTP/1.0 200 OK\r\n\r\nok", LATE, (200, b"ok")),
    "half a status line": (b"HTTP/1.1 20", LATE, BAD),
    "half a head": (OK + b"A: b\r\n", LATE, BAD),
    "half a head with bare LF": (b"HTTP/1.1 200 OK\nA: b\n", LATE, BAD),
    "a short body": (OK + b"Content-Length: 3\r\n\r\nok", LATE, BAD),
    "half a chunk": (CHUNKED + b"3\r\nok", LATE, BAD),
    "no last chunk": (CHUNKED + b"2\r\nok\r\n", LATE, BAD),
    "half the trailers": (CHUNKED + b"2\r\nok\r\n0\r\nA: b\r\n", LATE, BAD),
    "a redirect to nowhere with a short body": (redirect(b"", b"Content-Length: 3") + b"ok", LATE, BAD),
}


def tables(ends: bool) -> list[tuple[float, list[tuple[str, bytes, Outcome]]]]:
    """Return the responses that time out, and the others, with the timeout for them."""
    rows = [(name, data, outcome) for name, (data, outcome) in SAME.items()]
    rows += [(name, data, after if ends else before) for name, (data, before, after) in OPEN_OR_CLOSED.items()]
    late, others = ([row for row in rows if (row[2] == LATE) is is_late] for is_late in (True, False))
    return [(TIMEOUT, late), (LONG_TIMEOUT, others)]


def whole(sock: socket.socket, data: bytes) -> None:
    sock.sendall(data)


def byte_by_byte(sock: socket.socket, data: bytes) -> None:
    for at in range(len(data)):
        sock.sendall(data[at : at + 1])


def in_three_parts(sock: socket.socket, data: bytes) -> None:
    third = len(data) // 3
    for part in (data[:third], data[third : 2 * third], data[2 * third :]):
        sock.sendall(part)
        time.sleep(0.005)  # so that the parts mostly arrive one by one


def serve(responses: list[bytes], deliver: Deliver, ends: bool, peer: Peer) -> None:
    """Respond to each request with the response whose number is its path; for other paths, with the path itself."""
    peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        peer.read_request()
        path = re.findall(rb"(?:GET|HEAD) /(\S*) HTTP/1.1\r\n", peer.received)[-1]
        if path.isdigit():
            deliver(peer.sock, responses[int(path)])
        else:
            peer.sock.sendall(LANDED % (len(path) + 1, b"/" + path))
        if ends:
            peer.sock.shutdown(socket.SHUT_WR)


def method(name: str) -> str:
    return "HEAD" if name.startswith("HEAD") else "GET"


def by_request(url: str, timeout: float, job: tuple[int, str]) -> Outcome:
    number, name = job
    with closing(open_transport(timeout=timeout, ca_bundle=None, environ={})) as client:
        try:
            with closing(Sender(client, url, None).send(Call(method(name), f"{url}/{number}")).response) as response:
                body = b"".join(decode(response.chunks(), response.headers.get("Content-Encoding")))
        except NetworkError:
            return BAD
        except TimeoutExpired:
            return LATE
        return response.status, body


def by_batch(xapi: Xapi, url: str, timeout: float, names: list[str]) -> list[Outcome]:
    lines = [json.dumps({"path": f"/{number}", "method": method(name)}) for number, name in enumerate(names)]
    args = ("batch", "--ordered", "-j", "200", "--timeout", str(timeout))
    outcome = xapi(*args, input="\n".join(lines), env={"XAPI_BASE_URL": url, "XAPI_TOKEN": "t"})
    return [_of_line(line) for line in out_lines(outcome.out)]


def _of_line(line: dict[str, Any]) -> Outcome:
    if "error" in line:
        return str(line["error"]["kind"])
    return line["status"], line["text"].encode() if "text" in line else base64.b64decode(line["base64"])


@pytest.mark.parametrize(("deliver", "ends"), combined([whole, in_three_parts, byte_by_byte], [False, True]))
def test_request_and_batch_interpret_every_response_identically(xapi: Xapi, deliver: Deliver, ends: bool) -> None:
    for timeout, rows in tables(ends):
        names = [name for name, _, _ in rows]
        step = partial(serve, [data for _, data, _ in rows], deliver, ends)
        with Server([step]) as server, ThreadPoolExecutor(16) as pool:
            requested = list(pool.map(partial(by_request, server.url, timeout), enumerate(names)))
            batched = by_batch(xapi, server.url, timeout, names)

        expected = {name: outcome for name, _, outcome in rows}
        assert dict(zip(names, requested, strict=True)) == expected
        assert dict(zip(names, batched, strict=True)) == expected


def test_request_names_the_reason_for_a_refused_redirect() -> None:
    two = redirect(b"/a", b"Location: /b", b"Content-Length: 0")
    with (
        Server([partial(serve, [two], whole, False)]) as server,
        closing(open_transport(timeout=LONG_TIMEOUT, ca_bundle=None, environ={})) as client,
    ):
        reply = Sender(client, server.url, None).send(Call("GET", f"{server.url}/0"))
        reply.response.close()

    assert isinstance(reply.refused_redirect, RedirectError)
    assert "two different Location headers; report this to the operators" in str(reply.refused_redirect)

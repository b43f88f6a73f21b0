"""Scripts for `tests.support.servers.Server` that send surplus data, which no client may treat as its next response.

Each response contains the method and path of its request; a surplus is a response without them.
"""

import re
import ssl
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from tests.support.servers import Peer, Server, Step
from xapi_cli.http.pool import GRACE_PERIOD

Result = TypeVar("Result")
SURPLUS = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nsurplus"


def in_time(script: Step, run: Callable[[Server], Result], tls: ssl.SSLContext | None = None, runs: int = 5) -> Result:
    """Return what *run* returns for a server that follows *script*.

    The server of a busy machine may send surplus bytes after the grace period, which no client could notice. Then the
    result is that of another run, of at most *runs*.
    """
    with Server([script], tls=tls) as server:
        result = run(server)
    is_late = max(server.gaps, default=0) >= GRACE_PERIOD
    return in_time(script, run, tls, runs - 1) if is_late and runs > 1 else result


def echo(*, delay: float | None = None, size: int = 0, surplus: bytes = SURPLUS) -> Step:
    """Respond to each request, the *surplus* *delay* seconds later (with None, in the same write).

    A response has at least *size* bytes.
    """

    def step(peer: Peer) -> None:
        for request in _requests(peer):
            response = _response(request, size)
            if delay is None:
                peer.sock.sendall(response + surplus)
            else:
                send_with_surplus(peer, response, delay, surplus)

    return step


def stray_body(status: int = 200, *, declared: bool = True) -> Step:
    """Send a body 1 ms after each response that must not have one: that to HEAD, and each with 204 and 304."""

    def step(peer: Peer) -> None:
        length = b"Content-Length: %d\r\n" % len(SURPLUS) if declared else b""
        for request in _requests(peer):
            if status == 200 and not request.startswith("HEAD"):
                peer.sock.sendall(_response(request))
                continue
            head = b"HTTP/1.1 %d X\r\nX-Request: %s\r\n%s\r\n" % (status, request.encode(), length)
            send_with_surplus(peer, head, 0.001)

    return step


def send_with_surplus(peer: Peer, response: bytes, delay: float, surplus: bytes = SURPLUS) -> None:
    """Send *response*, and *surplus* at least *delay* seconds later; record how much later it was."""
    start = time.monotonic()
    try:
        peer.sock.sendall(response)
        time.sleep(delay)
        peer.sock.sendall(surplus)
    finally:
        peer.server.gaps.append(time.monotonic() - start)


def _requests(peer: Peer) -> Iterator[str]:
    number = 0
    while True:
        peer.read_request()
        number += 1
        method, path = re.findall(rb"^([A-Z]+) (\S+) HTTP/1.1\r$", peer.received, re.MULTILINE)[number - 1]
        yield f"{method.decode()} {path.decode()}"


def _response(request: str, size: int = 0) -> bytes:
    body = request.encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %06d\r\n\r\n"
    return head % max(len(body), size - len(head % 0)) + body.ljust(size - len(head % 0))

"""A server of pages: one function responds to each request, in the order in which they arrive on any connection."""

import json
from collections.abc import Callable
from typing import Any

from tests.commands.api import response
from tests.support.servers import Peer, Server

Respond = Callable[[str], bytes]
"""Takes the target of a request and returns the response; without one, the connection is closed."""


class PageServer(Server):
    """Serve *respond*, and record the targets and the values of the Authorization header of all requests."""

    def __init__(self, respond: Respond) -> None:
        super().__init__([self._serve])
        self.targets: list[str] = []
        self.tokens: list[str] = []
        self._respond = respond

    def _serve(self, peer: Peer) -> None:
        while True:
            start = len(peer.received)
            peer.read_request()
            head = bytes(peer.received[start:]).decode("utf-8", "surrogateescape")
            target = head.split(" ")[1]
            fields = [line.partition(": ") for line in head.split("\r\n")]
            self.targets.append(target)
            self.tokens += [value for name, _, value in fields if name.lower() == "authorization"]
            reply = self._respond(target)
            peer.sock.sendall(reply)
            if not reply or b"Connection: close" in reply.partition(b"\r\n\r\n")[0]:
                return


def page(value: Any, *headers: str, status: str = "200 OK") -> bytes:
    """Return a response with *value* as JSON, or with those bytes."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return response(status, body, *headers)


def link(target: str) -> str:
    """Return the header that links to the next page."""
    return f'Link: <{target}>; rel="next"'


def numbered(last: int) -> Respond:
    """Return a function that serves the pages `/items?page=1` to *last*, each with two items."""

    def respond(target: str) -> bytes:
        number = int(target.rpartition("=")[2]) if "=" in target else 1
        items = [{"id": 2 * number - 1}, {"id": 2 * number}]
        return page(items, *([link(f"?page={number + 1}")] if number < last else []))

    return respond


def lines(*numbers: int) -> str:
    """Return the output for the items with these numbers."""
    return "".join(f'{{"id":{number}}}\n' for number in numbers)

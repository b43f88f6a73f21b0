"""After a 401: one login, and a replay of the same request with the same body."""

import hashlib
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.api import response
from tests.support.program import Outcome, Xapi
from tests.support.servers import OK, Peer, Server, close, head, reset

SMALL = bytes(range(256))
LARGE = os.urandom(1024) * 6_000  # exceeds the memory limit of a spooled body


def _fifo(directory: Path) -> list[str]:
    os.mkfifo(directory / "fifo")
    threading.Thread(target=lambda: (directory / "fifo").write_bytes(LARGE), daemon=True).start()
    return ["-d", "@fifo"]


KINDS: dict[str, Callable[[Path], tuple[list[str], bytes | str | None]]] = {
    "text": lambda directory: (["-d", "verbatim é"], None),
    "JSON fields": lambda directory: (["a=1", "b:=1.10"], None),
    "form fields": lambda directory: (["--form", "a=x y", "b=@small.txt"], None),
    "a large file": lambda directory: (["-d", "@large"], None),
    "a FIFO": lambda directory: (_fifo(directory), None),
    "a large pipe": lambda directory: (["-d", "@-"], LARGE),
    "a redirected file": lambda directory: (["-d", "@-"], "large"),
    "multipart": lambda directory: (["title=x", "file@large", "pipe@-"], SMALL),
}


class _Api:
    """Responds with 401 to the first request and with 200 to others, and stores their bodies."""

    def __init__(self, refuse: Callable[[Peer], None]) -> None:
        self.bodies: list[bytes] = []
        self.tokens: list[str] = []
        self._refuse = refuse
        self.logins = 0

    def __call__(self, peer: Peer) -> None:
        while True:
            start = len(peer.received)
            while b"\r\n\r\n" not in peer.received[start:]:
                peer.read_some()
            target = bytes(peer.received[start:]).split()[1]
            if target == b"/x-api/token":
                _rest(peer, start)
                self.logins += 1
                body = b'{"access_token":"token-%d","token_type":"bearer","expires_in":3600}' % self.logins
                peer.sock.sendall(response("200 OK", body, "Content-Type: application/json"))
                continue
            token = re.search(rb"Authorization: Bearer (\S+)", bytes(peer.received[start:]))
            self.tokens.append(token[1].decode() if token else "")
            if len(self.tokens) == 1:
                self._refuse(peer)
                return
            self.bodies.append(_rest(peer, start))
            peer.sock.sendall(OK)


def _rest(peer: Peer, start: int) -> bytes:
    """Read the body of the request that starts at byte *start*."""
    end = peer.received.index(b"\r\n\r\n", start) + 4
    length = re.search(rb"content-length: *(\d+)", bytes(peer.received[start:end]).lower())
    size = int(length[1]) if length else 0
    while len(peer.received) < end + size:
        peer.read_some()
    return bytes(peer.received[end : end + size])


UNAUTHORIZED = response("401 Unauthorized", b"", "WWW-Authenticate: Bearer")


def _after_the_body(peer: Peer) -> None:
    _rest(peer, 0)
    peer.sock.sendall(UNAUTHORIZED)


def _early_and_close(peer: Peer) -> None:
    peer.sock.sendall(response("401 Unauthorized", b"", "Connection: close"))
    peer.sock.settimeout(0.3)
    peer.read_request()  # read everything, so that closing does not reset the connection


def _endless(peer: Peer) -> None:
    _rest(peer, 0)
    peer.sock.sendall(b"HTTP/1.1 401 No\r\n\r\n")
    while True:
        peer.sock.sendall(b"x" * 65536)


@pytest.mark.parametrize(
    "kind, refuse",
    [  # each value is in a test that is not slow; CI runs all combinations
        pytest.param(kind, refuse, marks=pytest.mark.slow if (row - column) % 3 else ())
        for row, kind in enumerate(KINDS)
        for column, refuse in enumerate([_after_the_body, _early_and_close, _endless])
    ],
)
def test_the_replay_has_the_same_body(xapi: Xapi, tmp_path: Path, kind: str, refuse: Callable[[Peer], None]) -> None:
    directory = xapi.home
    (directory / "small.txt").write_text("é &=\n" * 100, "utf-8")
    (directory / "large").write_bytes(LARGE)
    args, given = KINDS[kind](directory)
    api, plain = _Api(refuse), _Api(_after_the_body)
    plain.tokens.append("not refused")

    def called(served: _Api) -> Outcome:
        with Server([served]) as server:
            env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "secret"}
            assert xapi("login", env=env).code == 0
            if not isinstance(given, str):
                return xapi("request", "PUT", "/a", *args, input=given, env=env)
            with (directory / given).open("rb") as file:
                process = xapi.start("request", "PUT", "/a", *args, stdin=file, env=env)
                out, err = process.communicate()
                return Outcome(process.returncode, out.decode(), err.decode())

    outcome = called(api)

    assert (outcome.code, outcome.out, api.logins) == (0, "ok", 2)
    assert outcome.err.startswith("xapi: logged in as me at ")
    assert outcome.err.count("\n") == 1
    assert api.tokens == ["token-1", "token-2"]
    if kind == "a FIFO":
        (directory / "fifo").unlink()
        args, given = KINDS[kind](directory)
    assert called(plain).code == 0
    assert _without_boundary(api.bodies[0]) == _without_boundary(plain.bodies[0])
    assert list(xapi.temporary.iterdir()) == []


def _without_boundary(body: bytes) -> str:
    found = re.match(rb"--[0-9a-f]{32}\r\n", body)
    plain = body.replace(found[0][2:-2], b"boundary") if found else body
    return f"{len(body)} bytes, {hashlib.sha256(plain).hexdigest()}"


def test_a_second_401_exits_with_10_and_prints_its_body(xapi: Xapi) -> None:
    no = response("401 No", b'{"error":"invalid_token"}')
    api: dict[str, Any] = {"logins": 0}

    def play(peer: Peer) -> None:
        while True:
            start = len(peer.received)
            peer.read_request()
            if b"POST /x-api/token" in peer.received[start:]:
                api["logins"] += 1
                peer.sock.sendall(response("200 OK", b'{"access_token":"t%d","token_type":"bearer"}' % api["logins"]))
            else:
                peer.sock.sendall(no)

    with Server([play]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "secret"}
        outcome = xapi("request", "POST", "/a", "a=1", env=env)

    assert (outcome.code, outcome.out) == (10, '{"error":"invalid_token"}')
    assert outcome.err.splitlines()[-1].startswith(
        f"xapi: error: POST {server.url}/a responded with 401 No: invalid_token; "
    )
    received = b"".join(server.received)
    assert received.count(b"POST /a ") <= 2
    assert api["logins"] <= 2


@pytest.mark.parametrize("end", [close(), reset()])
def test_a_connection_that_breaks_during_an_upload_exits_with_11(xapi: Xapi, end: Callable[[Peer], None]) -> None:
    with Server([head(), end]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        outcome = xapi("request", "POST", "/", "-d", "@-", input=LARGE, env=env)

    assert (outcome.code, outcome.out) == (11, "")
    assert "the POST may have been processed" in outcome.err
    assert list(xapi.temporary.iterdir()) == []

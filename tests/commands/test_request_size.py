"""Bodies of any size are sent and received in constant memory."""

import subprocess
import zlib
from pathlib import Path

import pytest

from tests.commands.api import bearing, response
from tests.support.program import Xapi, measured
from tests.support.servers import OK, Peer, Server, forever, request, send

MEBIBYTE = 1024 * 1024
LIMIT = 100 * MEBIBYTE  # of resident memory


def _run(
    xapi: Xapi,
    server: Server,
    *args: str,
    stdin: bytes | None = None,
    mebibytes: int = 0,
    env: dict[str, str] | None = None,
) -> tuple[int, int, str]:
    """Return exit code, peak memory and stderr; *stdin* is written repeatedly."""
    peak = xapi.home / "peak"
    process = xapi.start(
        *args,
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=env or bearing(server),
        argv=measured(peak),
    )
    if stdin:
        assert process.stdin
        for _ in range(mebibytes):
            process.stdin.write(stdin)
        process.stdin.close()
        process.stdin = None
    _, err = process.communicate()
    return process.returncode, int(peak.read_text()), err.decode()


def _count(peer: Peer) -> None:
    """Read a request of any size without storing it, and respond."""
    _skip(peer, _length(peer))
    peer.sock.sendall(OK)


def _length(peer: Peer) -> int:
    """Read the headers of a request; return the number of bytes of its body that are unread."""
    while b"\r\n\r\n" not in peer.received:
        peer.read_some()
    head, _, start = bytes(peer.received).partition(b"\r\n\r\n")
    return int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]) - len(start)


def _skip(peer: Peer, size: int) -> None:
    while size > 0:
        data = peer.sock.recv(min(size, MEBIBYTE))
        if not data:
            raise EOFError
        size -= len(data)


def _body(mebibytes: int) -> bytes:
    return response("200 OK", b"", f"Content-Length: {mebibytes * MEBIBYTE}")


@pytest.mark.slow
@pytest.mark.parametrize("args", [[], ["-o", "out"]])
def test_a_large_download_uses_constant_memory(xapi: Xapi, args: list[str]) -> None:
    mebibytes = 300

    def stream(peer: Peer) -> None:
        for _ in range(mebibytes):
            peer.sock.sendall(b"x" * MEBIBYTE)

    with Server([request(), send(_body(mebibytes)), stream]) as server:
        code, peak, err = _run(xapi, server, "request", "/", *args)

    assert (code, err) == (0, "")
    assert peak < LIMIT
    if args:
        assert (xapi.home / "out").stat().st_size == mebibytes * MEBIBYTE


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pipe", "file", "upload"])
def test_a_large_upload_uses_constant_memory(xapi: Xapi, kind: str) -> None:
    mebibytes = 300
    args = {"pipe": ["-d", "@-"], "file": ["-d", "@large"], "upload": ["f@large"]}[kind]
    with Path(xapi.home / "large").open("wb") as file:
        file.truncate(mebibytes * MEBIBYTE)
    with Server([_count]) as server:
        stdin = b"x" * MEBIBYTE if kind == "pipe" else None
        code, peak, err = _run(xapi, server, "request", "/", *args, stdin=stdin, mebibytes=mebibytes)

    assert (code, err) == (0, "")
    assert peak < LIMIT
    assert list(xapi.temporary.iterdir()) == []


@pytest.mark.slow
def test_a_decompression_bomb_uses_constant_memory(xapi: Xapi) -> None:
    mebibytes = 300
    packer = zlib.compressobj(wbits=31)
    packed = b"".join(packer.compress(b"\0" * MEBIBYTE) for _ in range(mebibytes)) + packer.flush()
    with Server([request(), send(response("200 OK", packed, "Content-Encoding: gzip"))]) as server:
        code, peak, err = _run(xapi, server, "request", "/")

    assert (code, err) == (0, "")
    assert peak < LIMIT


@pytest.mark.parametrize("piece", [b"X-Header: value\r\n", b"x"])
def test_endless_response_headers_are_rejected(xapi: Xapi, piece: bytes) -> None:
    with Server([request(), send(b"HTTP/1.1 200 OK\r\n"), forever(piece * 1000)]) as server:
        code, peak, err = _run(xapi, server, "request", "/")

    assert code == 11
    assert peak < LIMIT
    assert err.count("\n") == 1

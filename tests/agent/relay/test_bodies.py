"""Bodies over connections of the relay: memory, slow readers, early responses and descriptors."""

import re
import ssl
import threading
from pathlib import Path

import pytest

from tests.agent.relays import Relay, borrower, get
from tests.http.clients import Zeros
from tests.support.servers import OK, Peer, Server, Step, head, request, send, serve, until_closed, wait_for


def peak_memory(relay: Relay) -> int:
    """Return the peak of the relay's resident memory in MiB."""
    status = Path(f"/proc/{relay.process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) // 1024


@pytest.mark.parametrize(
    "mebibytes", [128, pytest.param(2048, marks=[pytest.mark.soak, pytest.mark.timeout(900)])], ids="{} MiB".format
)
def test_large_bodies_take_no_memory_in_either_direction(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext, mebibytes: int
) -> None:
    size = mebibytes * 1024 * 1024

    def swallow(peer: Peer) -> None:
        left = size
        while left > 0:
            left -= len(peer.sock.recv(256 * 1024))

    def flood(peer: Peer) -> None:
        peer.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 65536):
            peer.sock.sendall(bytes(65536))

    with Server([head(), swallow, flood, until_closed()], tls=server_tls) as server:
        with Server([serve()], tls=server_tls) as small:
            get(relay, bundle, small.url)
        before = peak_memory(relay)
        with (
            borrower(relay, bundle, timeout=60) as http,
            http.stream("PUT", server.url, content=Zeros(size), headers={"Content-Length": str(size)}) as response,
        ):
            assert sum(map(len, response.iter_raw())) == size
        peak = peak_memory(relay)
        print(f"{mebibytes} MiB each way: a peak of {peak} MiB, {before} MiB before")  # noqa: T201 - for `make soak`
        assert peak < before + 16
        assert relay.status()["loans"] == 2


def test_a_slow_reader_holds_the_server_back(relay: Relay, bundle: Path, server_tls: ssl.SSLContext) -> None:
    sent = []

    def flood(peer: Peer) -> None:
        peer.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        peer.sock.settimeout(1)
        while True:
            try:
                peer.sock.sendall(bytes(65536))
            except TimeoutError:
                break
            sent.append(65536)
        is_stuck.set()

    is_stuck = threading.Event()
    with (
        Server([request(), flood], tls=server_tls) as server,
        borrower(relay, bundle) as http,
        http.stream("GET", server.url) as response,
    ):
        next(response.iter_raw())
        assert is_stuck.wait(30)
        assert sum(sent) < 64 * 1024 * 1024


def test_what_was_sent_before_an_early_response_reaches_the_server(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext
) -> None:
    body = b"x" * 200_000
    may_read = threading.Event()

    def read_all(peer: Peer) -> None:
        while not peer.received.endswith(body):
            peer.read_some()
        is_read.set()

    is_read = threading.Event()
    early: list[Step] = [head(), send(OK), wait_for(may_read), read_all]
    with Server(early, tls=server_tls) as server, borrower(relay, bundle) as http:
        assert http.post(server.url, content=body).content == b"ok"
        http.close()
        may_read.set()
        assert is_read.wait(30)


@pytest.mark.slow
def test_two_hundred_calls_leave_no_descriptor_open(relay: Relay, bundle: Path, server_tls: ssl.SSLContext) -> None:
    import resource

    resource.prlimit(relay.process.pid, resource.RLIMIT_NOFILE, (24, 24))
    one_use = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    with Server([serve(one_use)], tls=server_tls) as server, Server([serve()], tls=server_tls) as kept:
        for _ in range(100):
            assert get(relay, bundle, server.url) == b"ok"
            assert get(relay, bundle, kept.url) == b"ok"
        assert len(kept.received) == 1
    status = relay.status()
    assert (status["loans"], status["misses"]) == (200, 0)

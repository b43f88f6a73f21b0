"""The limit of the time in which the headers of a request must arrive, by a clock that the tests set."""

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from xapi_cli.http.network import Network
from xapi_cli.proxy import server
from xapi_cli.proxy.rules import Rules
from xapi_cli.proxy.server import Server

REFUSED = b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n"  # with 421: the host is not that of the proxy
STATUS, TIMEOUT = b"HTTP/1.1 421 ", b"HTTP/1.1 408 "


class _Proxy:
    """A proxy with one client: it processes only what has arrived, and limits headers to 10 s of the clock *now*."""

    def __init__(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(server, "_TICK", 0.0)
        network = Network(timeout=10, ca_bundle=None, environ={})
        rules = Rules("http://127.0.0.1:1", "key")
        self._server = Server(network, cast("Any", None), rules, timeout=10, redact=str, complete=lambda error: None)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        self._server.listen(listener, None)
        self.client = socket.socket(socket.AF_UNIX)
        self.client.connect(path)
        self.client.setblocking(False)

    def step_at(self, now: float) -> None:
        """Process all that has arrived, and what has expired at the time *now*."""
        self.now = now
        steps = iter(range(8))
        self._server.serve(lambda: next(steps, None) is None, grace=0)

    def received(self) -> bytes:
        """Return what the client can read now."""
        data = b""
        while True:
            self.step_at(self.now)
            try:
                block = self.client.recv(1_000_000)
            except BlockingIOError:
                return data
            if not block:
                return data
            data += block

    def close(self) -> None:
        self.client.close()
        self._server.close()


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Proxy]:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    running = _Proxy("socket", monkeypatch)
    yield running
    running.close()


def test_the_limit_begins_with_the_first_byte_of_each_request_and_no_other_byte_extends_it(proxy: _Proxy) -> None:
    proxy.client.send(REFUSED[:-1])
    proxy.step_at(0)
    proxy.client.send(REFUSED[-1:] + REFUSED[:5])
    proxy.step_at(9)
    assert proxy.received().count(STATUS) == 1
    proxy.client.send(REFUSED[5:10])
    proxy.step_at(18.9)
    assert proxy.received() == b""

    proxy.step_at(19)
    assert proxy.received().startswith(TIMEOUT)


def test_no_time_limit_applies_to_requests_while_the_client_does_not_read_responses(proxy: _Proxy) -> None:
    sent, unsent, count = 0, b"", 1
    for _ in range(1000):  # until the proxy has processed all that it takes
        unsent = unsent or 100 * REFUSED
        try:
            count = proxy.client.send(unsent)
        except BlockingIOError:
            count = 0
        sent, unsent = sent + count, unsent[count:]
        proxy.step_at(0)
        if not count:
            break
    assert not count

    proxy.step_at(1000)
    replies = proxy.received()

    assert replies.count(STATUS) == sent // len(REFUSED)
    assert TIMEOUT not in replies

"""Connections outlive the process that opened them: the relay lends each one to one process at a time."""

import os
import re
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from tests.agent import relays
from tests.agent.relays import Relay, borrower
from tests.http.clients import Zeros, tls_of
from tests.servers import (
    OK,
    Peer,
    Server,
    Step,
    forward,
    free_port,
    hang,
    head,
    request,
    reset,
    send,
    serve,
    until_closed,
    wait_for,
)
from tests.surplus import echo
from xapi_cli.errors import NetworkError, TimeoutExpired
from xapi_cli.http import tls
from xapi_cli.http.loans import REPLY_TIMEOUT
from xapi_cli.http.proxies import Proxy
from xapi_cli.http.transport import Transport

HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    with relays.running(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def bundle(ca: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(path)
    return path


@pytest.fixture(scope="module")
def server_tls(ca: trustme.CA) -> ssl.SSLContext:
    return tls_of(ca.issue_cert("localhost", "127.0.0.1"))


def get(relay: Relay, bundle: Path | None, url: str, authorization: str = "Bearer one") -> bytes:
    """Send a request as a process of its own would."""
    with borrower(relay, bundle) as http:
        return http.get(url, headers={"Authorization": authorization}).content


def cold_error(bundle: Path | None, url: str, timeout: float = 20) -> str:
    """Return the error of a client that opens its connections itself."""
    transport = Transport(lambda: tls.create_context(str(bundle) if bundle else None, {}))
    with (
        httpx.Client(transport=transport, timeout=timeout, trust_env=False) as http,
        pytest.raises((NetworkError, TimeoutExpired)) as caught,
    ):
        http.get(url)
    return str(caught.value)


def warm_error(relay: Relay, bundle: Path | None, url: str, timeout: float = 20) -> str:
    with (
        borrower(relay, bundle, timeout=timeout) as http,
        pytest.raises((NetworkError, TimeoutExpired)) as caught,
    ):
        http.get(url)
    return str(caught.value)


@pytest.mark.parametrize("is_https", [True, False], ids=["https", "http"])
def test_a_connection_is_used_by_one_process_after_another(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext, is_https: bool
) -> None:
    lines: list[str] = []
    with Server([serve()], tls=server_tls if is_https else None) as server:
        for _ in range(5):
            with borrower(relay, bundle, trace=lines.append) as http:
                response = http.put(server.url, content=b"x" * 100_000)
                assert (response.content, response.extensions["exposed"]) == (b"ok", False)
        assert len(server.received) == 1
        version = ", TLSv1.3" if is_https else ""
        assert lines == [
            f"* connected to {server.name} (127.0.0.1{version})",
            *[f"* using the open connection to {server.name}"] * 4,
        ]
    assert relay.status() == {"kept": 1, "loans": 5, "reused": 4, "misses": 0}


def test_one_process_can_send_several_requests(relay: Relay, bundle: Path, server_tls: ssl.SSLContext) -> None:
    with Server([serve()], tls=server_tls) as server, borrower(relay, bundle) as http:
        assert [http.get(server.url).content for _ in range(5)] == [b"ok"] * 5
        assert len(server.received) == 1


def test_credentials_do_not_share_a_connection(relay: Relay, bundle: Path, server_tls: ssl.SSLContext) -> None:
    with Server([serve()], tls=server_tls) as server:
        for authorization in ["Bearer one", "Bearer two", "Bearer one", ""]:
            get(relay, bundle, server.url, authorization)
        assert [sorted(set(re.findall(rb"Bearer \w+", data))) for data in server.received] == [
            [b"Bearer one"],
            [b"Bearer two"],
            [],
        ]


def test_a_connection_that_has_carried_no_credentials_can_carry_any(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext
) -> None:
    with Server([serve()], tls=server_tls) as server:
        for authorization in ["", "Bearer one", "Bearer one"]:
            get(relay, bundle, server.url, authorization)
        assert len(server.received) == 1


def test_a_process_uses_only_connections_whose_certificate_it_trusts(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    with Server([serve()], tls=server_tls) as server:
        get(relay, bundle, server.url)
        for untrusting in [other, None]:
            assert warm_error(relay, untrusting, server.url) == cold_error(untrusting, server.url)
        bundle.write_bytes(other.read_bytes())
        assert "unknown CA" in warm_error(relay, bundle, server.url)


def test_proxies_with_different_credentials_do_not_share_a_connection(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext
) -> None:
    with Server([serve()], tls=server_tls) as server, Server([forward()]) as proxy:
        for secret in [b"Basic one", b"Basic two", b"Basic one"]:
            through = Proxy("http", proxy.host, proxy.port, secret)
            with borrower(relay, bundle, proxy=through) as http:
                assert http.get(server.url).content == b"ok"
        assert [re.findall(rb"Basic \w+", data) for data in proxy.received] == [[b"Basic one"], [b"Basic two"]]


@pytest.mark.parametrize(
    "script",
    [
        [],
        [reset()],
        [request()],
        [request(), reset()],
        [request(), send(b"HTTP/1.1 200")],
        [request(), send(HALF)],
        [request(), send(b"HTTP/1.1 200 OK\r\n\r\nwithout close_notify")],
        [request(), send(b"rubbish\r\n\r\n")],
        [request(), send(HALF), hang()],
    ],
)
def test_a_failure_is_reported_as_without_the_relay(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext, script: list[Step]
) -> None:
    timeout = 2 if len(script) == 3 else 20  # the last one is silent
    with Server(script, tls=server_tls) as server:
        assert warm_error(relay, bundle, server.url, timeout) == cold_error(bundle, server.url, timeout)
    assert relay.status()["kept"] == 0


def test_a_server_that_cannot_be_reached_is_reported_as_without_the_relay(relay: Relay, bundle: Path) -> None:
    with Server([hang()]) as deaf, Server([send(OK)]) as plain:
        urls = [f"https://127.0.0.1:{free_port()}", f"https://{deaf.name}", f"https://{plain.name}"]
        for url in urls:
            assert warm_error(relay, bundle, url, 2) == cold_error(bundle, url, 2)


def test_a_body_that_ends_with_close_notify_is_complete(relay: Relay, bundle: Path, server_tls: ssl.SSLContext) -> None:
    def good_bye(peer: Peer) -> None:
        peer.sock.settimeout(5)
        assert isinstance(peer.sock, ssl.SSLSocket)
        peer.sock.unwrap()

    with Server([request(), send(b"HTTP/1.1 200 OK\r\n\r\na body"), good_bye], tls=server_tls) as server:
        assert get(relay, bundle, server.url) == b"a body"
    assert relay.status()["kept"] == 0


@pytest.mark.parametrize("delay", [None, 0.0, 0.02])
def test_no_process_receives_surplus_bytes(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext, delay: float | None
) -> None:
    with Server([echo(delay=delay)], tls=server_tls) as server:
        for number in range(8):
            assert get(relay, bundle, f"{server.url}/{number}") == f"GET /{number}".encode()
        assert len(server.received) == 8


def test_a_kept_connection_that_fails_is_replaced(relay: Relay, bundle: Path, server_tls: ssl.SSLContext) -> None:
    with Server([request(), send(OK), request()], [serve()], tls=server_tls) as server:
        get(relay, bundle, server.url)
        assert get(relay, bundle, server.url) == b"ok"
        assert len(server.received) == 2


@pytest.mark.parametrize("body", [b"body", [b"streamed"]], ids=["POST", "stream"])
def test_a_request_that_may_not_be_resent_gets_a_new_connection(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext, body: bytes | list[bytes]
) -> None:
    with Server([request(), send(OK), request()], [serve()], tls=server_tls) as server:
        get(relay, bundle, server.url)
        with borrower(relay, bundle) as http:
            method = "POST" if isinstance(body, bytes) else "PUT"
            response = http.request(method, server.url, headers={"Authorization": "Bearer one"}, content=body)
        assert response.content == b"ok"
        assert len(server.received) == 2


def test_the_connection_of_a_login_is_used_by_no_other_process(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext
) -> None:
    with Server([serve()], tls=server_tls) as server:
        with borrower(relay, bundle) as http:
            http.post(server.url, content=b"password")
            http.get(server.url, headers={"Authorization": "Bearer one"})
        get(relay, bundle, server.url, "Bearer two")
        get(relay, bundle, server.url, "Bearer one")
        assert [b"password" in data for data in server.received] == [True, False, False]
        assert b"Bearer one" in server.received[0]


def test_nothing_is_sent_over_a_kept_connection_after_the_deadline(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext
) -> None:
    with Server([serve()], tls=server_tls) as server:
        get(relay, bundle, server.url)
        sent = len(server.received[0])
        headers = {"Authorization": "Bearer one"}
        with borrower(relay, bundle) as http, pytest.raises(TimeoutExpired) as caught:
            http.get(server.url, headers=headers, extensions={"timeout": {}, "deadline": time.monotonic() - 1})
        assert not caught.value.sent
        assert [len(data) for data in server.received] == [sent]


def test_connections_are_lent_in_parallel(relay: Relay, bundle: Path, server_tls: ssl.SSLContext) -> None:
    arrived = threading.Barrier(20, timeout=20)
    failures: list[BaseException] = []

    def together(peer: Peer) -> None:
        while True:
            peer.read_request()
            arrived.wait()
            peer.sock.sendall(OK)

    def work(url: str) -> None:
        try:
            with borrower(relay, bundle, timeout=20) as http:
                assert http.get(url).content == b"ok"
        except BaseException as error:  # noqa: BLE001  # reported by the test
            failures.append(error)

    with Server([together], tls=server_tls) as server:
        for _ in range(2):
            threads = [threading.Thread(target=work, args=(server.url,)) for _ in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert failures == []


# --- Failures of the relay and of borrowers -----------------------------------------------------------------


def test_a_relay_that_is_killed_is_a_network_error_and_later_calls_do_without_it(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext
) -> None:
    with Server([request(), send(HALF), hang()], [serve()], tls=server_tls) as server:
        with borrower(relay, bundle) as http, http.stream("GET", server.url) as response:
            parts = response.iter_raw()
            assert next(parts) == b"half"
            relay.process.kill()
            with pytest.raises(NetworkError, match=r"truncated after 4 bytes \(the agent's connection relay"):
                next(parts)
        assert get(relay, bundle, server.url) == b"ok"


def test_a_stopped_relay_is_not_waited_for(relay: Relay, bundle: Path, server_tls: ssl.SSLContext) -> None:
    with Server([serve()], tls=server_tls) as server:
        get(relay, bundle, server.url)
        relay.stop()
        try:
            with borrower(relay, bundle, reply_timeout=REPLY_TIMEOUT) as http:
                assert http.get(server.url).content == b"ok"
            assert len(server.received) == 2
        finally:
            relay.process.send_signal(signal.SIGCONT)


def test_a_relay_that_stops_during_a_call_is_a_timeout(relay: Relay, bundle: Path, server_tls: ssl.SSLContext) -> None:
    def stop(peer: Peer) -> None:
        relay.stop()

    with Server([request(), stop, send(OK), hang()], tls=server_tls) as server:
        try:
            assert warm_error(relay, bundle, server.url, 2).startswith(f"no response from {server.name} within 2 s")
        finally:
            relay.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    "reply", [b"", b"\0\0\0\2{}", b"\xff" * 8, b"\0\0\0\x0f" + b'{"type":"lent"}', b"\0\0\0\1{"], ids=repr
)
def test_a_relay_that_does_not_follow_the_protocol_is_not_used(
    tmp_path: Path, bundle: Path, server_tls: ssl.SSLContext, reply: bytes
) -> None:
    def respond() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(65536)
            peer.sendall(reply)
            peer.shutdown(socket.SHUT_WR)
            peer.recv(1)

    class Planted(Relay):
        def __init__(self, path: Path) -> None:
            self.path = path

    with socket.socket(socket.AF_UNIX) as listener, Server([serve()], tls=server_tls) as server:
        listener.bind(str(tmp_path / "relay"))
        listener.listen(1)
        thread = threading.Thread(target=respond)
        thread.start()
        assert get(Planted(tmp_path / "relay"), bundle, server.url) == b"ok"
        thread.join(10)
        assert len(server.received) == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"\0\0\0\2{}", b"\xff" * 9, b"\0\0\0\4null", b"\0\0\0\x0f" + b'{"type":"lend"}'],
    ids=repr,
)
def test_the_relay_survives_any_input(relay: Relay, bundle: Path, server_tls: ssl.SSLContext, data: bytes) -> None:
    for _ in range(3):
        sock = relay.connect()
        assert sock is not None
        sock.sendall(data)
        sock.close()
    with Server([serve()], tls=server_tls) as server:
        assert get(relay, bundle, server.url) == b"ok"
    assert relay.status()["loans"] == 1


def test_the_connection_of_a_killed_process_is_closed(relay: Relay, bundle: Path, server_tls: ssl.SSLContext) -> None:
    is_closed = threading.Event()

    def notice(peer: Peer) -> None:
        with pytest.raises((EOFError, OSError)):
            peer.read_some()
        is_closed.set()

    with Server([request(), send(HALF), notice], tls=server_tls) as server:
        child = os.fork()
        if child == 0:
            try:
                with borrower(relay, bundle) as http, http.stream("GET", server.url) as response:
                    next(response.iter_raw())
                    os.kill(os.getpid(), signal.SIGKILL)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        assert is_closed.wait(10)
    assert relay.status()["kept"] == 0


def test_loans_in_progress_end_as_usual_after_the_lifeline_has_ended(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext
) -> None:
    is_over = threading.Event()
    with Server([request(), wait_for(is_over), send(OK), until_closed()], tls=server_tls) as server:
        thread = threading.Thread(target=lambda: results.append(get(relay, bundle, server.url)))
        results: list[bytes] = []
        thread.start()
        while not (server.received and server.received[0]):
            thread.join(0.01)
        relay.end()
        is_over.set()
        thread.join(10)
        assert results == [b"ok"]
        assert relay.process.wait(20) == 0


@pytest.mark.slow
def test_an_idle_connection_is_closed_after_the_keep_alive_timeout(
    relay: Relay, bundle: Path, server_tls: ssl.SSLContext
) -> None:
    is_closed = threading.Event()

    def notice(peer: Peer) -> None:
        with pytest.raises((EOFError, OSError)):
            peer.read_some()
        is_closed.set()

    with Server([request(), send(OK), notice], tls=server_tls) as server:
        get(relay, bundle, server.url)
        assert is_closed.wait(30)
        assert relay.status()["kept"] == 0


# --- Bodies -------------------------------------------------------------------------------------------------


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
        assert is_read.wait(10)


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

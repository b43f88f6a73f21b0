"""Connections outlive the process that opened them: the relay lends each one to one process at a time."""

import re
import ssl
import threading
import time
from pathlib import Path

import httpx
import pytest
import trustme

from tests.agent.relays import HALF, Relay, borrower, get, warm_error
from tests.support.servers import (
    OK,
    Peer,
    Server,
    Step,
    forward,
    free_port,
    half_close,
    hang,
    request,
    reset,
    send,
    serve,
    until_closed,
)
from tests.support.surplus import echo, in_time
from xapi_cli.errors import NetworkError, TimeoutExpired
from xapi_cli.http import tls
from xapi_cli.http.httpx_transport import HttpxTransport
from xapi_cli.http.proxies import Proxy
from xapi_cli.http.transport import Transport


def cold_error(bundle: Path | None, url: str, timeout: float = 20) -> str:
    """Return the error of a client that opens its connections itself."""
    transport = Transport(lambda: tls.create_context(str(bundle) if bundle else None, {}))
    with (
        httpx.Client(transport=HttpxTransport(transport), timeout=timeout, trust_env=False) as http,
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
        [
            half_close(),
            until_closed(),
        ],  # closing both could also be a reset, if the request had arrived
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
    def run(server: Server) -> tuple[list[bytes], int]:
        return [get(relay, bundle, f"{server.url}/{number}") for number in range(8)], len(server.received)

    assert in_time(echo(delay=delay), run, server_tls) == ([f"GET /{number}".encode() for number in range(8)], 8)


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


def test_a_connection_is_not_given_back_after_a_401(relay: Relay, bundle: Path, server_tls: ssl.SSLContext) -> None:
    """The relay would keep it open beside that of the login, and the server may serve one connection at a time."""
    rejected = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
    with Server([serve(rejected)], [serve()], tls=server_tls) as server:
        with borrower(relay, bundle) as http:
            assert http.get(server.url, headers={"Authorization": "Bearer one"}).status_code == 401
        assert get(relay, bundle, server.url, "Bearer one") == b"ok"


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

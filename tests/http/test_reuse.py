"""A response never reaches the wrong request: connections are reused only if they have no unread data."""

import json
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import trustme

from tests.features.batch.server import out_lines
from tests.support.program import Outcome, Xapi
from tests.support.servers import OK, Peer, Server, Step, Stopwatch, hang, request, send, serve
from tests.support.surplus import echo, in_time, send_with_surplus, stray_body
from xapi_cli.http.httpx_transport import HttpxTransport
from xapi_cli.http.pool import GRACE_PERIOD
from xapi_cli.http.transport import open_transport

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
REJECTED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"

SURPLUSES = {
    "in the same write": echo(),
    "at once": echo(delay=0),
    "after 0.5 ms": echo(delay=0.0005),
    "after 30 ms": echo(delay=0.03),
    "after a whole block": echo(size=65_536),
}


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server_tls(ca: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    return context


STRAY_BODIES = {
    "HEAD": (("HEAD", "GET"), stray_body()),
    "HEAD, not declared": (("HEAD", "GET"), stray_body(declared=False)),
    "204": (("GET", "DELETE"), stray_body(204)),
    "204, not declared": (("GET", "DELETE"), stray_body(204, declared=False)),
    "304": (("GET",), stray_body(304)),
}


@pytest.fixture(scope="module")
def bundle(ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(path)
    return path


def client(bundle: Path | None = None) -> httpx.Client:
    transport = open_transport(ca_bundle=str(bundle) if bundle else None, environ={})
    return httpx.Client(transport=HttpxTransport(transport), timeout=10, trust_env=False)


def wrong(out: str) -> list[tuple[str, object]]:
    """Return each request of a batch that did not receive its own response, with what it received."""
    got = [(each["id"], each["headers"].get("x-request") or each["text"].strip()) for each in out_lines(out)]
    return [pair for pair in got if pair[0] != pair[1]]


def lines(count: int, methods: tuple[str, ...] = ("GET",)) -> str:
    requests = [(methods[number % len(methods)], f"/{number}") for number in range(count)]
    return "".join(
        json.dumps({"id": f"{method} {path}", "method": method, "path": path}) + "\n" for method, path in requests
    )


@pytest.mark.parametrize(
    "jobs, is_secure",
    [
        pytest.param("1", False, id="plain-1"),
        pytest.param("8", True, id="tls-8"),
        pytest.param("8", False, id="plain-8", marks=pytest.mark.slow),
        pytest.param("1", True, id="tls-1", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("script", SURPLUSES.values(), ids=SURPLUSES)
def test_no_line_of_a_batch_receives_surplus_bytes(
    xapi: Xapi, server_tls: ssl.SSLContext, bundle: Path, script: Step, is_secure: bool, jobs: str
) -> None:
    def run(server: Server) -> Outcome:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t", "SSL_CERT_FILE": str(bundle)}
        return xapi("batch", "-j", jobs, input=lines(24, ("GET", "POST")), env=env)

    outcome = in_time(script, run, server_tls if is_secure else None)
    assert (outcome.code, wrong(outcome.out), len(out_lines(outcome.out))) == (0, [], 24), outcome


@pytest.mark.parametrize("jobs", ["1", "8"])
@pytest.mark.parametrize("methods, script", STRAY_BODIES.values(), ids=STRAY_BODIES)
def test_no_line_of_a_batch_receives_a_forbidden_body(
    xapi: Xapi, methods: tuple[str, ...], script: Step, jobs: str
) -> None:
    def run(server: Server) -> Outcome:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        return xapi("batch", "-j", jobs, input=lines(24, methods), env=env)

    outcome = in_time(script, run)
    assert (outcome.code, wrong(outcome.out), len(out_lines(outcome.out))) == (0, [], 24), outcome


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("script", SURPLUSES.values(), ids=SURPLUSES)
def test_no_request_of_a_client_receives_surplus_bytes(
    server_tls: ssl.SSLContext, bundle: Path, script: Step, is_secure: bool
) -> None:
    def run(server: Server) -> list[tuple[str, str]]:
        with client(bundle) as http:
            return [(path, http.get(server.url + path).text.strip()) for path in map("/{}".format, range(20))]

    got = in_time(script, run, server_tls if is_secure else None)
    assert got == [(path, f"GET {path}") for path, _ in got]


@pytest.mark.parametrize("methods, script", STRAY_BODIES.values(), ids=STRAY_BODIES)
def test_no_request_of_a_client_receives_a_forbidden_body(methods: tuple[str, ...], script: Step) -> None:
    def run(server: Server) -> list[str]:
        with client() as http:
            got = [http.request(method, server.url) for method in methods * 5]
        return [each.headers.get("X-Request") or each.text for each in got]

    assert in_time(script, run) == [f"{method} /" for method in methods * 5]


def test_threads_that_share_a_client_receive_their_own_responses() -> None:
    paths = [f"/{number}" for number in range(40)]

    def run(server: Server) -> list[str]:
        with client() as http, ThreadPoolExecutor(4) as threads:
            return list(threads.map(lambda path: http.get(server.url + path).text, paths))

    got = in_time(echo(delay=0.001), run)

    assert got == [f"GET {path}" for path in paths]


def test_a_correct_server_is_used_over_one_connection() -> None:
    with Server([serve()]) as server, client() as http, Stopwatch() as watch:
        for _ in range(100):
            http.get(server.url)

    assert len(server.received) == 1
    assert watch.seconds < 100 * GRACE_PERIOD  # which passes once, not before each request


def test_after_surplus_bytes_no_connection_is_reused() -> None:
    with Server([request(), send(OK + OK), hang()], [serve()]) as server, client() as http:
        for _ in range(3):
            http.get(server.url)

    assert len(server.received) == 3


def test_the_replay_after_a_401_and_its_login_receive_no_surplus_bytes(xapi: Xapi) -> None:
    token = b'{"access_token":"new","token_type":"bearer"}'
    granted = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(token), token)

    def api(peer: Peer) -> None:
        while True:
            start = len(peer.received)
            peer.read_request()
            received = bytes(peer.received[start:])
            is_good = b"Bearer new" in received
            reply = granted if received.startswith(b"POST") else GOOD if is_good else REJECTED
            send_with_surplus(peer, reply, 0.005)

    def run(server: Server) -> list[Outcome]:
        login = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "p", "XAPI_STORAGE": "file"}
        return [xapi("request", "/", env=login), xapi("batch", input=lines(4), env=login)]

    got = in_time(api, run)

    assert [each.code for each in got] == [0, 0], got
    assert got[0].out == "good"
    assert {each["text"] for each in out_lines(got[1].out)} == {"good"}

"""The wire, against servers on loopback that do as their script says."""

import os
import random
import re
import select
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import trustme

from tests.servers import (
    OK,
    Peer,
    Server,
    Step,
    Stopwatch,
    drip,
    forever,
    forward,
    free_port,
    half_close,
    hang,
    head,
    request,
    reset,
    send,
    serve,
    sleep,
    until_closed,
    wait_for,
)
from xapi_cli.errors import NetworkError, TimeoutExpired, UsageError, XapiError
from xapi_cli.http import tls
from xapi_cli.http.proxies import Proxy
from xapi_cli.http.transport import Transport

CANARY = "hunter2-canary"
SOON = 5  # seconds; far less than what is hung up on would take, far more than a busy machine needs


def no_tls() -> ssl.SSLContext:
    raise AssertionError("no https here")


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server_tls(ca: trustme.CA) -> ssl.SSLContext:
    return tls_of(ca.issue_cert("localhost", "127.0.0.1"))


@pytest.fixture(scope="module")
def client_tls(ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    bundle = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(bundle)
    return tls.context(str(bundle), {})


def tls_of(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def client(
    transport: Transport | None = None, *, timeout: float | httpx.Timeout = 5, headers: dict[str, str] | None = None
) -> httpx.Client:
    return httpx.Client(transport=transport or Transport(no_tls), timeout=timeout, headers=headers, trust_env=False)


def get(server: Server, *, timeout: float | httpx.Timeout = 5, **extensions: object) -> httpx.Response:
    with client(timeout=timeout) as http:
        return http.get(server.url, extensions=extensions)


class Source(httpx.SyncByteStream):
    """A body that can be had again and again, and that counts how often it was."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks
        self.times = 0

    def __iter__(self) -> Iterator[bytes]:
        self.times += 1
        yield from self.chunks


class Zeros(httpx.SyncByteStream):
    """A large body that needs no memory."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(self.size // 65536):
            yield bytes(65536)


# --- What goes over the wire -------------------------------------------------


def test_a_request_and_its_response_go_over_the_wire_as_they_are() -> None:
    answer = b"HTTP/1.1 201 Made it\r\nX-One: 1\r\nx-two: \xe9\r\nX-One: 2\r\nContent-Length: 5\r\n\r\nhello"
    with Server([request(), send(answer)]) as server, client(headers={"User-Agent": "me"}) as http:
        response = http.post(f"{server.url}/a%20b?c=d", content=b"body", headers=[(b"X-Q", b"\xc3\xa9")])

        assert (
            server.received[0]
            == (
                f"POST /a%20b?c=d HTTP/1.1\r\nHost: {server.name}\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
                "Connection: keep-alive\r\nUser-Agent: me\r\nX-Q: é\r\nContent-Length: 4\r\n\r\nbody"
            ).encode()
        )
    assert (response.status_code, response.content) == (201, b"hello")
    assert response.headers.raw == [
        (b"X-One", b"1"),
        (b"x-two", b"\xe9"),
        (b"X-One", b"2"),
        (b"Content-Length", b"5"),
    ]
    assert response.extensions["http_version"] == b"HTTP/1.1"
    assert response.extensions["reason_phrase"] == b"Made it"
    assert response.extensions["tls"] is None
    assert response.extensions["proxy"] is None


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: 1\r\n\r\n",
            b"abcde",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nup to the end", b"up to the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nold", b"old"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 999 ?\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", b"ok"),
    ],
)
def test_every_way_to_end_a_body_is_understood(answer: bytes, body: bytes) -> None:
    with Server([request(), send(answer)]) as server:
        assert get(server).content == body


def test_a_body_arrives_piece_by_piece_as_it_comes() -> None:
    more = threading.Event()
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    with (
        Server([request(), send(answer), wait_for(more), send(b"1\r\nd\r\n0\r\n\r\n")]) as server,
        client() as http,
        http.stream("GET", server.url) as response,
    ):
        parts = response.iter_raw()
        assert next(parts) == b"abc"
        more.set()
        assert list(parts) == [b"d"]


def test_a_response_to_head_may_declare_a_body_but_its_connection_is_not_reused() -> None:
    with Server([serve(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")]) as server, client() as http:
        assert http.head(server.url).content == b""
        assert http.head(server.url).content == b""
        assert len(server.received) == 2


def test_a_body_of_unknown_length_is_sent_in_chunks() -> None:
    with Server([request(), send(OK)]) as server, client() as http:
        http.post(server.url, content=iter([b"abc", b"", b"de"]))
        assert server.received[0].endswith(b"\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")


def test_ipv6_addresses_are_reached_and_named_in_brackets() -> None:
    with Server([request(), send(OK)], host="::1") as server:
        assert get(server).content == b"ok"
        assert f"Host: {server.name}\r\n".encode() in server.received[0]
    with pytest.raises(NetworkError, match=re.escape(f"no connection to [::1]:{server.port}: connection refused")):
        get(server)


def test_a_name_with_several_addresses_is_tried_until_one_answers() -> None:
    with Server([serve()]) as server, client() as http:
        assert http.get(f"http://localhost:{server.port}").content == b"ok"


# --- Connections -------------------------------------------------------------


def test_a_connection_serves_one_request_after_the_other() -> None:
    with Server([serve()]) as server, client() as http:
        assert [http.post(server.url, content=b"x").content for _ in range(5)] == [b"ok"] * 5
        assert len(server.received) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more than promised",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ],
)
def test_a_connection_that_is_over_or_suspicious_serves_no_second_request(answer: bytes) -> None:
    with Server([request(), send(answer), until_closed()]) as server, client() as http:
        assert http.get(server.url).content == b"ok"
        assert http.get(server.url).content == b"ok"
        assert len(server.received) == 2


def test_a_connection_that_the_server_closed_meanwhile_is_replaced_before_anything_is_sent() -> None:
    with Server([request(), send(OK)], [serve()]) as server, client() as http:
        http.post(server.url, content=b"1")
        pool = http._transport._pool  # type: ignore[attr-defined]  # noqa: SLF001  # only its socket tells of the end
        [[idle]] = pool._idle.values()  # noqa: SLF001  # the same
        assert select.select([idle], [], [], 10)[0]
        assert http.post(server.url, content=b"2").content == b"ok"
        assert [received[-1:] for received in server.received] == [b"1", b"2"]


def test_an_idle_connection_is_not_used_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server([serve()]) as server, client() as http:
        http.get(server.url)
        later = time.monotonic() + 6
        monkeypatch.setattr(time, "monotonic", lambda: later)
        http.get(server.url)
        assert len(server.received) == 2


@pytest.mark.parametrize("ending", [[], [reset()]], ids=["closed", "reset"])
def test_an_idempotent_request_is_sent_again_when_an_old_connection_breaks(ending: list[Step]) -> None:
    with Server([request(), send(OK), request(), *ending], [serve()]) as server, client() as http:
        http.get(server.url)
        assert http.put(server.url, content=b"body").content == b"ok"
        assert [received.count(b"PUT") for received in server.received] == [1, 1]
        assert server.received[1].endswith(b"body")


def test_a_post_is_not_sent_again_when_an_old_connection_breaks() -> None:
    with Server([request(), send(OK), request()], [serve()]) as server, client() as http:
        http.get(server.url)
        with pytest.raises(NetworkError) as caught:
            http.post(server.url, content=b"body")
        assert caught.value.sent
        assert caught.value.hint == "the POST may have been processed: check before you send it again"
        assert len(server.received) == 1


def test_a_request_is_sent_again_once_only() -> None:
    with Server([request(), send(OK), request()], [request()], [serve()]) as server, client() as http:
        http.get(server.url)
        with pytest.raises(NetworkError):
            http.get(server.url)
        assert len(server.received) == 2


def test_a_request_is_not_sent_again_when_its_answer_had_begun() -> None:
    with Server([request(), send(OK), request(), send(b"HTTP/1.1 200")], [serve()]) as server, client() as http:
        http.get(server.url)
        with pytest.raises(NetworkError, match="in the middle of its answer"):
            http.get(server.url)
        assert len(server.received) == 1


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        (iter([b"once"]), {}),
        ((part for part in [b"once"]), {}),
        ((part for part in [b"once"]), {"Content-Length": "4"}),
    ],
)
def test_a_body_that_can_be_had_only_once_is_not_lost_when_an_old_connection_breaks(
    content: Iterator[bytes], headers: dict[str, str]
) -> None:
    with Server([request(), send(OK), request()], [serve()]) as server, client() as http:
        http.get(server.url)
        with pytest.raises(NetworkError, match="without an answer"):
            http.put(server.url, content=content, headers=headers)


def test_threads_share_a_transport() -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(25):
                body = f"{number}-{turn}".encode()
                assert http.post(echo.url, content=body).content == body
        except (XapiError, AssertionError) as error:
            failures.append(error)

    def echoing(peer: Peer) -> None:
        while True:
            peer.read_request()
            body = bytes(peer.received).rpartition(b"\r\n\r\n")[2]
            peer.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with Server([echoing]) as echo, client() as http:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert len(echo.received) <= 8


def test_closing_ends_what_other_threads_wait_for() -> None:
    outcome: list[BaseException] = []
    has_begun = threading.Event()

    def work() -> None:
        try:
            with http.stream("GET", server.url) as response:
                for _ in response.iter_raw():
                    has_begun.set()
        except XapiError as error:
            outcome.append(error)

    with Server([request(), send(b"HTTP/1.1 200 OK\r\n\r\nno length"), hang()]) as server:
        http = client(timeout=60)
        thread = threading.Thread(target=work)
        thread.start()
        assert has_begun.wait(10)
        http.close()
        thread.join(10)
        assert not thread.is_alive()
    assert isinstance(outcome[0], NetworkError)
    assert "was cut off after 9 bytes (connection aborted)" in str(outcome[0])


def test_no_socket_is_left_open() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("counts descriptors in /proc")
    scripts: list[list[Step]] = [[request()], [reset()], [request(), send(b"rubbish\r\n\r\n")], [request(), send(OK)]]
    closed = free_port()
    with Server(*scripts) as server:
        before = descriptors()
        for _ in range(len(scripts)):
            try:
                get(server)
            except NetworkError:
                pass
        with pytest.raises(NetworkError), client() as http:
            http.get(f"http://127.0.0.1:{closed}")
        deadline = time.monotonic() + 5
        while descriptors() > before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert descriptors() <= before


# --- Bodies that nobody wants -------------------------------------------------


def test_a_discarded_body_leaves_the_connection_usable_when_it_is_short() -> None:
    answer = b"HTTP/1.1 401 No\r\nContent-Length: 5\r\n\r\nnever"
    with Server([serve(answer)]) as server, client() as http:
        with http.stream("GET", server.url) as response:
            response.extensions["discard"]()
            assert list(response.iter_raw()) == []
        http.get(server.url)
        assert len(server.received) == 1


@pytest.mark.parametrize(
    "rest",
    [[forever(b"x" * 65536)], [hang()], [drip(b"x" * 1000, 0.05)], [reset()], []],
    ids=["endless", "silent", "dripping", "reset", "short"],
)
def test_discarding_a_body_never_takes_long(rest: list[Step]) -> None:
    answer = b"HTTP/1.1 401 No\r\nContent-Length: 999999999\r\n\r\nx"
    with Server([request(), send(answer), *rest], [serve()]) as server, client() as http:
        with http.stream("GET", server.url) as response:
            with Stopwatch() as watch:
                response.extensions["discard"]()
            assert watch.seconds < SOON
            assert list(response.iter_raw()) == []
        assert http.get(server.url).content == b"ok"


def test_discarding_and_closing_twice_does_no_harm() -> None:
    with Server([serve()]) as server, client() as http:
        response = http.send(http.build_request("GET", server.url), stream=True)
        response.extensions["discard"]()
        response.extensions["discard"]()
        response.stream.close()  # type: ignore[union-attr]  # httpx types it as sync or async
        response.close()
        response.close()
        assert http.get(server.url).content == b"ok"
        assert len(server.received) == 1


def test_a_body_that_is_closed_half_read_does_not_spoil_the_next_request() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200000
    with Server([serve(answer)]) as server, client() as http:
        for _ in range(3):
            with http.stream("GET", server.url) as response:
                assert next(response.iter_raw()).startswith(b"x")
        assert len(http.get(server.url).content) == 200000


# --- Answers that come early ---------------------------------------------------

EARLY = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 4\r\n\r\nwho?"


@pytest.mark.parametrize(
    "rest", [[hang()], [], [reset()], [half_close(), hang()]], ids=["stays", "closes", "resets", "half-closes"]
)
@pytest.mark.parametrize("kind", ["length", "chunked"])
def test_an_answer_that_comes_during_a_big_upload_is_read_at_once(rest: list[Step], kind: str) -> None:
    size = 64 * 1024 * 1024
    headers = {"Content-Length": str(size)} if kind == "length" else {"Transfer-Encoding": "chunked"}
    with (
        Server([head(), send(EARLY), *rest], [serve()]) as server,
        client() as http,
        Stopwatch() as watch,
        http.stream("POST", server.url, content=Zeros(size), headers=headers) as response,
    ):
        assert response.status_code == 401
        response.extensions["discard"]()
        response.close()
        assert http.get(server.url).content == b"ok"
        assert len(server.received) == 2
    assert watch.seconds < SOON


def test_a_body_is_sent_to_its_end_when_the_server_says_early_that_all_is_well() -> None:
    size = 16 * 1024 * 1024
    with Server([head(), send(OK), sleep(0.2), request()]) as server, client() as http:
        response = http.post(server.url, content=Zeros(size), headers={"Content-Length": str(size)})
        assert response.content == b"ok"
        deadline = time.monotonic() + 5
        while not server.received[0].endswith(bytes(size)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert server.received[0].endswith(b"\r\n\r\n" + bytes(size))


def test_informational_answers_do_not_stop_an_upload() -> None:
    size = 8 * 1024 * 1024
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"
    with Server([head(), send(early), sleep(0.1), request(), send(OK)]) as server, client() as http:
        assert http.post(server.url, content=Zeros(size), headers={"Content-Length": str(size)}).content == b"ok"


def test_a_connection_that_breaks_during_an_upload_says_so() -> None:
    size = 64 * 1024 * 1024
    with Server([head(), reset()]) as server, client() as http, pytest.raises(NetworkError) as caught:
        http.post(server.url, content=Zeros(size), headers={"Content-Length": str(size)})
    assert re.fullmatch(
        rf"(the connection to {server.name} broke before the answer: connection reset"
        rf"|{server.name} closed the connection without an answer)",
        caught.value.message,
    )
    assert (caught.value.sent, caught.value.answered) == (True, False)
    assert "may have been processed" in str(caught.value)


@pytest.mark.parametrize("chunks", [[b"abc"], [b"abcde", b"f"], []])
def test_a_body_that_is_not_as_long_as_announced_is_an_error_of_its_own(chunks: list[bytes]) -> None:
    with Server([request(), send(OK)]) as server, client() as http, pytest.raises(XapiError) as caught:
        http.post(server.url, content=Source(*chunks), headers={"Content-Length": "5"})
    assert (caught.value.message, caught.value.exit_code) == ("the request's body changed while it was sent", 1)


def test_an_error_of_the_body_itself_passes_through_and_ends_the_connection() -> None:
    def body() -> Iterator[bytes]:
        yield b"first"
        raise OSError("disk on fire")

    with Server([until_closed()]) as server, client() as http:
        with pytest.raises(OSError, match="disk on fire"):
            http.post(server.url, content=body())
        assert not http._transport._pool._lent  # type: ignore[attr-defined]  # noqa: SLF001  # nothing else tells


# --- Time ------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"

STALLS: dict[str, tuple[list[Step], str, bool]] = {
    "silent": ([request(), hang()], "no answer from {} within 1 s", True),
    "slow-loris head": (
        [request(), drip(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 999, 0.05)],
        "no answer from {} within 1 s",
        True,
    ),
    "endless 103": (
        [request(), drip(b"HTTP/1.1 103 Hint\r\n\r\n" * 999, 0.05, 21)],
        "no answer from {} within 1 s",
        True,
    ),
    "silent in the body": ([request(), send(HEAD + b"ab"), hang()], "no more data from {} within 1 s", True),
    "chunk extension in drips": (
        [request(), send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), drip(b"5;" + b"x" * 999, 0.05)],
        "no more data from {} within 1 s",
        True,
    ),
}


@pytest.mark.parametrize("stall", STALLS)
def test_a_server_that_stalls_ends_in_a_timeout(stall: str) -> None:
    script, message, sent = STALLS[stall]
    with Server(script) as server, Stopwatch() as watch, pytest.raises(TimeoutExpired) as caught:
        get(server, timeout=httpx.Timeout(10, read=1))
    assert caught.value.message == message.format(server.name)
    assert caught.value.sent == sent
    assert 0.9 < watch.seconds < SOON


@pytest.mark.parametrize("stall", STALLS)
def test_the_deadline_ends_every_stall(stall: str) -> None:
    with Server(STALLS[stall][0]) as server, Stopwatch() as watch, pytest.raises(TimeoutExpired) as caught:
        get(server, timeout=60, deadline=time.monotonic() + 1)
    assert caught.value.message.endswith(f"{server.name} before --max-time ran out")
    assert caught.value.hint == "raise --max-time to wait longer"
    assert 0.9 < watch.seconds < SOON


def test_the_deadline_bounds_a_body_that_drips_for_ever() -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Server([request(), send(answer), drip(b"1\r\nx\r\n" * 999, 0.02, 6)]) as server:
        with Stopwatch() as watch, pytest.raises(TimeoutExpired, match="before the time for a login ran out"):
            get(server, timeout=1, deadline=time.monotonic() + 1.5, deadline_name="the time for a login")
        assert 1.4 < watch.seconds < SOON


def test_a_body_that_keeps_coming_slowly_is_no_timeout() -> None:
    with Server([request(), send(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n"), drip(b"x" * 20, 0.12)]) as server:
        assert get(server, timeout=1.5).content == b"x" * 20


def test_a_reader_who_takes_his_time_is_no_timeout() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n" + b"x" * 4000000
    with (
        Server([request(), send(answer)]) as server,
        client(timeout=1.5) as http,
        http.stream("GET", server.url) as response,
    ):
        parts = response.iter_raw()
        size = len(next(parts))
        time.sleep(2)
        assert size + sum(map(len, parts)) == 4000000


def test_a_server_that_does_not_read_ends_in_a_timeout() -> None:
    size = 64 * 1024 * 1024
    with (
        Server([hang()]) as server,
        client(timeout=httpx.Timeout(10, write=0.5)) as http,
        Stopwatch() as watch,
        pytest.raises(TimeoutExpired) as caught,
    ):
        http.post(server.url, content=Zeros(size), headers={"Content-Length": str(size)})
    assert caught.value.message == f"{server.name} took no data within 0.5 s"
    assert caught.value.sent
    assert caught.value.hint == "the POST may have been processed: check before you send it again"
    assert watch.seconds < SOON


def test_a_server_that_reads_slowly_but_steadily_is_no_timeout() -> None:
    def sip(peer: Peer) -> None:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        for _ in range(10):
            time.sleep(0.25)
            for _ in range(8):
                peer.read_some()
        peer.read_request()

    size = 8 * 1024 * 1024
    with Server([sip, send(OK)]) as server, client(timeout=2) as http:
        assert http.post(server.url, content=Zeros(size), headers={"Content-Length": str(size)}).content == b"ok"


@pytest.fixture
def full() -> Iterator[list[int]]:
    """Ports on 127.0.0.2 and on whose listening sockets no connection is accepted any more."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    address = listener.getsockname()
    crowd = []
    for _ in range(3):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(address)
        crowd.append(sock)
    yield [address[1]]
    for sock in crowd:
        sock.close()
    listener.close()


def test_connecting_has_a_limit(full: list[int]) -> None:
    with client(timeout=0.5) as http, Stopwatch() as watch, pytest.raises(TimeoutExpired) as caught:
        http.get(f"http://127.0.0.1:{full[0]}/")
    assert caught.value.message == f"no connection to 127.0.0.1:{full[0]} within 0.5 s (TCP)"
    assert not caught.value.sent
    assert watch.seconds < SOON


def resolving(monkeypatch: pytest.MonkeyPatch, resolve: Callable[[str, int], list[tuple[str, int]]]) -> None:
    """Let the resolver of this machine answer for names under .test."""
    real = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, type: int = 0, flags: int = 0) -> Any:  # noqa: A002  # socket's own names
        if isinstance(host, bytes) and host.endswith(b".test") and not flags:
            infos = []
            for address in resolve(host.decode(), port):
                family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
                infos.append((family, socket.SOCK_STREAM, 6, "", address))
            return infos
        return real(host, port, type=type, flags=flags)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_looking_up_a_name_has_a_limit_and_takes_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    lookups = []

    def never(host: str, port: int) -> list[tuple[str, int]]:
        lookups.append(host)
        done.wait(10)
        return []

    resolving(monkeypatch, never)
    try:
        with client(timeout=0.4) as http, Stopwatch() as watch:
            for _ in range(3):
                with pytest.raises(TimeoutExpired) as caught:
                    http.get("http://api.test/")
                assert caught.value.message == "no connection to api.test:80 within 0.4 s (name look-up)"
        assert watch.seconds < SOON
        assert lookups == ["api.test"]
    finally:
        done.set()


def test_dead_addresses_do_not_hold_up_the_living_one(monkeypatch: pytest.MonkeyPatch, full: list[int]) -> None:
    with Server([serve()]) as server:
        dead = [("127.0.0.1", full[0])] * 1 + [("127.0.0.1", free_port())] * 2
        resolving(monkeypatch, lambda host, port: [*dead, ("127.0.0.1", server.port)])
        with client(timeout=3) as http, Stopwatch() as watch:
            assert http.get("http://api.test/").content == b"ok"
        assert watch.seconds < SOON


def test_all_addresses_together_have_one_limit(monkeypatch: pytest.MonkeyPatch, full: list[int]) -> None:
    resolving(monkeypatch, lambda host, port: [("127.0.0.1", full[0])] + [("127.0.0.1", full[0], 0)[:2]] * 3)
    with (
        client(timeout=0.7) as http,
        Stopwatch() as watch,
        pytest.raises(TimeoutExpired, match=r"within 0\.7 s \(TCP\)"),
    ):
        http.get("http://api.test/")
    assert watch.seconds < SOON


def test_the_deadline_bounds_connecting_and_sending_too(full: list[int], client_tls: ssl.SSLContext) -> None:
    size = 64 * 1024 * 1024
    with Server([hang()]) as deaf, client(Transport(lambda: client_tls), timeout=60) as http:
        for url, missing in [
            (f"http://127.0.0.1:{full[0]}/", f"no connection to 127.0.0.1:{full[0]} before --max-time ran out (TCP)"),
            (f"https://{deaf.name}/", f"no connection to {deaf.name} before --max-time ran out (TLS handshake)"),
            (deaf.url, f"{deaf.name} took no data before --max-time ran out"),
        ]:
            with Stopwatch() as watch, pytest.raises(TimeoutExpired) as caught:
                http.put(
                    url,
                    content=Zeros(size),
                    headers={"Content-Length": str(size)},
                    extensions={"deadline": time.monotonic() + 1},
                )
            assert caught.value.message == missing
            assert watch.seconds < SOON


def test_a_deadline_that_has_passed_lets_nothing_go_out() -> None:
    with Server([serve()]) as server:
        with pytest.raises(TimeoutExpired) as caught:
            get(server, deadline=time.monotonic() - 1)
        assert not caught.value.sent
        assert not any(server.received)


def test_connecting_and_the_tls_handshake_share_a_limit(client_tls: ssl.SSLContext) -> None:
    with Server([hang()]) as server, client(Transport(lambda: client_tls), timeout=1) as http:
        with Stopwatch() as watch, pytest.raises(TimeoutExpired, match=r"within 1 s \(TLS handshake\)"):
            http.get(f"https://{server.name}")
        assert watch.seconds < SOON


# --- Lies and accidents ------------------------------------------------------------

START = b"HTTP/1.1 200 OK\r\n"
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n"


def says(answer: bytes, *rest: Step) -> list[Step]:
    return [request(), send(answer), *rest]


def invalid(flaw: str) -> str:
    return f"the answer of {{}} is not valid HTTP ({flaw})"


def cut_off(size: int, reason: str) -> str:
    return f"the body from {{}} was cut off after {size} bytes ({reason})"


TOO_LONG = invalid("a head of more than 100,000 bytes")
NO_STATUS = invalid("illegal status line")
BAD_VERSION = invalid("an HTTP version other than 1.0 and 1.1")
BARE_LF = "a line feed without a carriage return between chunks"
BAD_LENGTH = invalid("bad Content-Length")
CLOSED = "connection closed by the server"

LIES: dict[str, tuple[list[Step], str]] = {
    "closes at once": ([head()], "{} closed the connection without an answer"),
    "closes after the request": ([request()], "{} closed the connection without an answer"),
    "closes in the head": (says(START + b"X: "), "{} closed the connection in the middle of its answer"),
    "resets": ([request(), reset()], "the connection to {} broke before the answer: connection reset"),
    "rubbish": (says(b"rubbish\x1b]52;c;eHh4\x07\r\n\r\n"), NO_STATUS),
    "HTTP/0.9": (says(b"<html>\n\n"), NO_STATUS),
    "an SSH server": ([send(b"SSH-2.0-OpenSSH_9.2\r\n"), request(), send(b"\r\n")], NO_STATUS),
    "a TLS server": (says(b"\x15\x03\x01\x00\x02\x02\x46"), NO_STATUS),
    "status 1000": (says(b"HTTP/1.1 1000 OK\r\n\r\n"), NO_STATUS),
    "status 099": (says(b"HTTP/1.1 099 OK\r\n\r\n"), invalid("a status under 100")),
    "status 101": (says(b"HTTP/1.1 101 OK\r\nUpgrade: x\r\n\r\n"), invalid("a switch to another protocol")),
    "no colon": (says(START + b"hunter2-canary\r\n\r\n"), invalid("illegal header line")),
    "two lengths": (
        says(START + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        invalid("conflicting Content-Length headers"),
    ),
    "a negative length": (says(START + b"Content-Length: -1\r\n\r\n"), BAD_LENGTH),
    "a length of 50 digits": (says(START + b"Content-Length: " + b"9" * 50 + b"\r\n\r\n"), BAD_LENGTH),
    "another transfer coding": (
        says(START + b"Transfer-Encoding: gzip, chunked\r\n\r\n"),
        invalid("an unknown transfer coding"),
    ),
    "an endless head": (says(START, forever(b"X: y\r\n" * 1000)), TOO_LONG),
    "an endless line": (says(START, forever(b"H" * 65536)), TOO_LONG),
    "an endless line of another protocol": ([request(), forever(b"H" * 65536)], NO_STATUS),
    "an SSH server that waits": (says(b"SSH-2.0-OpenSSH_9.2\r\n", hang()), NO_STATUS),
    "HTTP/1.2": (says(b"HTTP/1.2 200 OK\r\n", hang()), BAD_VERSION),
    "HTTP/2.0": (says(b"HTTP/2.0 200 OK\r\n", hang()), BAD_VERSION),
    "103 for ever": ([request(), forever(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 100)], TOO_LONG),
    "a short body": (says(START + b"Content-Length: 5\r\n\r\nabc"), cut_off(3, CLOSED)),
    "a reset in the body": (
        says(START + b"Content-Length: 5\r\n\r\nabc", sleep(0.1), reset()),
        cut_off(3, "connection reset"),
    ),
    "chunks without an end": (says(CHUNKED + b"3\r\nabc\r\n"), cut_off(3, CLOSED)),
    "a bad chunk": (says(CHUNKED + b"3\r\nabcXY"), cut_off(3, "malformed chunk footer")),
    "bare LF after a chunk's size": (says(CHUNKED + b"3\r\nabc\r\n3\ndef", hang()), cut_off(3, BARE_LF)),
    "bare LF in trailers": (says(CHUNKED + b"3\r\nabc\r\n0\r\nA: b\n", hang()), cut_off(3, BARE_LF)),
    "an endless chunk header": (says(CHUNKED + b"3;", forever(b"x" * 65536)), cut_off(0, "an endless line")),
    "endless trailers": (says(CHUNKED + b"0\r\n", forever(b"X: y\r\n" * 1000)), cut_off(0, "an endless line")),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_is_no_answer_is_one_clear_error(lie: str) -> None:
    script, message = LIES[lie]
    with Server(script) as server, Stopwatch() as watch, pytest.raises(NetworkError) as caught:
        get(server)
    assert caught.value.message == message.format(server.name)
    assert caught.value.sent or lie == "an SSH server"  # whose banner may be there before the request is sent
    assert caught.value.answered == ("the body" in message)
    assert str(caught.value).isprintable()
    assert CANARY not in repr(caught.value)
    assert watch.seconds < SOON


def test_what_came_of_a_body_before_it_was_cut_off_is_delivered() -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndefXX"
    with Server([request(), send(answer)]) as server, client() as http, http.stream("GET", server.url) as response:
        parts = response.iter_raw()
        assert next(parts) == b"abcdef"
        with pytest.raises(NetworkError, match="was cut off after 6 bytes"):
            next(parts)


@pytest.mark.parametrize(("size", "fits"), [(99_000, True), (101_000, False)])
def test_the_limit_of_a_head_is_exact_however_it_arrives(size: int, fits: bool) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: " + b"x" * (size - 50) + b"\r\n\r\n"
    with Server([request(), send(answer)]) as server:
        if fits:
            assert get(server).status_code == 200
        else:
            with pytest.raises(NetworkError, match="a head of more than 100,000 bytes"):
                get(server)


def test_an_endless_body_passes_in_little_memory() -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    for chunk in (b"1\r\nx\r\n" * 10000, b"10000\r\n" + b"x" * 65536 + b"\r\n"):
        with (
            Server([request(), send(answer), forever(chunk)]) as server,
            client() as http,
            http.stream("GET", server.url) as response,
        ):
            size = 0
            tracemalloc.start()
            for part in response.iter_raw():
                assert len(part) <= 65536
                size += len(part)
                if size > (5_000_000 if len(chunk) == 65545 else 50_000):
                    break
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 5_000_000


def test_mutated_answers_end_in_a_response_or_a_failure_of_ours() -> None:
    dice = random.Random(20261)
    seeds = [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 11\r\nSet-Cookie: a=b\r\n\r\nhello world",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX: y\r\n\r\n",
        b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.0 404 Not Found\r\nConnection: close\r\n\r\nnot here",
    ]
    answers = [mutated(dice, dice.choice(seeds)) for _ in range(1500)]
    waiting = iter(answers)

    def next_answer(peer: Peer) -> None:
        peer.read_request()
        peer.sock.sendall(next(waiting))

    kinds = set()
    with Server([next_answer]) as server, Transport(no_tls) as transport:
        limits = {"timeout": {"read": 5}}
        asked = httpx.Request("GET", server.url, headers={"Authorization": f"Bearer {CANARY}"}, extensions=limits)
        for answer in answers:
            try:
                response = transport.handle_request(asked)
                list(response.iter_raw())
                kinds.add("response")
            except (NetworkError, TimeoutExpired) as error:
                assert str(error).isprintable(), answer
                assert CANARY not in str(error), answer
                kinds.add("failure")
    assert kinds == {"response", "failure"}


def mutated(dice: random.Random, answer: bytes) -> bytes:
    data = bytearray(answer)
    for _ in range(dice.randint(1, 4)):
        place = dice.randrange(len(data))
        match dice.randrange(5):
            case 0:
                data[place] = dice.randrange(256)
            case 1:
                del data[place : place + dice.randint(1, 8)]
            case 2:
                data[place:place] = dice.randbytes(dice.randint(1, 8))
            case 3:
                data[place:place] = data[place : place + dice.randint(1, 30)]
            case _:
                data[place:place] = dice.choice([b"\r\n", b"\n", b"\r", b":", b"\0", b"1e5", b"-", b"chunked"])
        data = data or bytearray(b"\n")
    return bytes(data)


# --- Addresses and requests that cannot be -------------------------------------------


def test_a_port_where_nobody_listens_is_named() -> None:
    port = free_port()
    with client() as http, pytest.raises(NetworkError) as caught:
        http.post(f"http://127.0.0.1:{port}/", content=b"x")
    assert str(caught.value) == (
        f"no connection to 127.0.0.1:{port}: connection refused; "
        "nothing listens there: check host and port of the base URL, and whether the server runs"
    )
    assert (caught.value.sent, caught.value.answered) == (False, False)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "no such host"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), "name look-up failed"),
        (socket.gaierror(socket.EAI_FAIL, "Not\x1b recoverable."), r"name look-up failed (not\x1b recoverable)"),
        (UnicodeError("label too long"), "no such host"),
    ],
)
def test_a_name_that_leads_nowhere_is_named(monkeypatch: pytest.MonkeyPatch, failure: Exception, message: str) -> None:
    def fail(host: str, port: int) -> list[tuple[str, int]]:
        raise failure

    resolving(monkeypatch, fail)
    with client() as http, pytest.raises(NetworkError) as caught:
        http.get("http://api.test/")
    assert caught.value.message == f"no connection to api.test:80: {message}"


def test_a_name_without_addresses_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, lambda host, port: [])
    with client() as http, pytest.raises(NetworkError, match="no such host"):
        http.get("http://api.test/")


@pytest.mark.parametrize("host", ["a" * 300, "...", "xn--", "-", f"{'x' * 64}.example"])
def test_no_host_name_is_a_crash(host: str) -> None:
    try:
        asked = httpx.Request("GET", f"http://{host}/")
    except (httpx.InvalidURL, UnicodeError):
        return  # what httpx itself refuses never gets here
    with pytest.raises(NetworkError, match="no connection to"):
        Transport(no_tls).handle_request(asked)


@pytest.mark.parametrize("url", ["http://127.0.0.1:0/", "http://127.0.0.1:99999/", "ftp://127.0.0.1/"])
def test_a_url_that_cannot_be_requested_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        Transport(no_tls).handle_request(httpx.Request("GET", url))


@pytest.mark.parametrize(
    "bad",
    [
        httpx.Request("GET", "http://127.0.0.1/", headers={"Authorization": f"Bearer {CANARY}\n"}),
        httpx.Request("GET", "http://127.0.0.1/", headers={"X-Y": f"{CANARY}\0"}),
        httpx.Request("G T", "http://127.0.0.1/"),
        httpx.Request("CONNECT", "http://127.0.0.1/"),
        httpx.Request("É", "http://127.0.0.1/"),
    ],
)
def test_a_request_that_is_no_http_is_refused_without_showing_it(bad: httpx.Request) -> None:
    with pytest.raises(UsageError) as caught:
        Transport(no_tls).handle_request(bad)
    error: BaseException | None = caught.value
    while error is not None:
        assert CANARY not in repr(error)
        error = error.__cause__ or error.__context__


# --- TLS ---------------------------------------------------------------------------


def test_https_works_and_says_which_tls(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    lines: list[str] = []
    transport = Transport(lambda: client_tls, trace=lines.append)
    with Server([serve()], tls=server_tls) as server, client(transport) as http:
        response = http.get(server.url)
        assert http.post(server.url, content=bytes(300_000)).content == b"ok"
        assert response.extensions["tls"] == "TLSv1.3"
        assert lines == [
            f"* connected to {server.name} (127.0.0.1, TLSv1.3)",
            f"* using the open connection to {server.name}",
        ]


def test_a_big_body_goes_both_ways_over_tls(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    size = 16 * 1024 * 1024
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (size, bytes(size))
    with Server([serve(answer)], tls=server_tls) as server, client(Transport(lambda: client_tls)) as http:
        response = http.put(server.url, content=Zeros(size), headers={"Content-Length": str(size)})
        assert response.content == bytes(size)
        assert server.received[0].endswith(bytes(size))


def test_an_early_answer_is_read_over_tls_too(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    size = 64 * 1024 * 1024
    with (
        Server([head(), send(EARLY), hang()], tls=server_tls) as server,
        client(Transport(lambda: client_tls)) as http,
        Stopwatch() as watch,
    ):
        assert http.put(server.url, content=Zeros(size), headers={"Content-Length": str(size)}).content == b"who?"
    assert watch.seconds < SOON


def test_a_body_that_ends_without_tls_saying_so_was_cut_off(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    with (
        Server([request(), send(b"HTTP/1.1 200 OK\r\n\r\nhalf a body")], tls=server_tls) as server,
        client(Transport(lambda: client_tls)) as http,
        pytest.raises(NetworkError, match=r"was cut off after 11 bytes \(connection closed by the server\)"),
    ):
        http.get(server.url)


def test_a_body_that_ends_with_tls_saying_so_is_complete(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    def good_bye(peer: Peer) -> None:
        peer.sock.settimeout(2)
        assert isinstance(peer.sock, ssl.SSLSocket)
        peer.sock.unwrap()

    with (
        Server([request(), send(b"HTTP/1.1 200 OK\r\n\r\na body"), good_bye], tls=server_tls) as server,
        client(Transport(lambda: client_tls)) as http,
    ):
        assert http.get(server.url).content == b"a body"


def test_threads_make_one_tls_context_and_their_handshakes_do_not_wait_for_each_other(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    made = []

    def make() -> ssl.SSLContext:
        made.append(1)
        return client_tls

    def be_stuck() -> None:
        with pytest.raises((NetworkError, TimeoutExpired)):
            http.get(f"https://{deaf.name}")

    shaking_hands, enough = threading.Event(), threading.Event()
    with (
        Server([Peer.read_some, lambda peer: shaking_hands.set(), wait_for(enough)]) as deaf,
        Server([serve()], tls=server_tls) as server,
        client(Transport(make), timeout=60) as http,
    ):
        stuck = threading.Thread(target=be_stuck)
        stuck.start()
        assert shaking_hands.wait(10)
        assert http.get(server.url).content == b"ok"
        assert stuck.is_alive()
        enough.set()
        stuck.join(10)
        assert not stuck.is_alive()
        assert made == [1]


# --- Proxies -----------------------------------------------------------------------


def through(proxy: Server, authorization: bytes | None = None) -> Callable[[str, str, int], Proxy]:
    return lambda scheme, host, port: Proxy("http", proxy.host, proxy.port, authorization)


def test_plain_http_asks_the_proxy_for_the_whole_url() -> None:
    with Server([serve()]) as proxy, client(Transport(no_tls, through(proxy, b"Basic cHJveHk="))) as http:
        response = http.get("http://user:secret@api.test:8080/a?b=c", headers={"Authorization": "Bearer x"})
        assert response.content == b"ok"
        assert response.extensions["proxy"] == proxy.name
        assert proxy.received[0].startswith(b"GET http://api.test:8080/a?b=c HTTP/1.1\r\nHost: api.test:8080\r\n")
        assert b"\r\nProxy-Authorization: Basic cHJveHk=\r\n" in proxy.received[0]


def test_https_goes_through_a_tunnel_that_sees_no_token(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    with Server([serve()], tls=server_tls) as server, Server([forward()]) as proxy:
        lines: list[str] = []
        transport = Transport(lambda: client_tls, through(proxy, b"Basic cHJveHk="), lines.append)
        with client(transport, headers={"Authorization": f"Bearer {CANARY}"}) as http:
            assert [http.get(server.url).content for _ in range(2)] == [b"ok", b"ok"]
        tunnel = f"CONNECT {server.name} HTTP/1.1\r\nHost: {server.name}\r\nProxy-Authorization: Basic cHJveHk=\r\n\r\n"
        assert proxy.received == [tunnel.encode()]
        assert CANARY.encode() in server.received[0]
        assert b"cHJveHk" not in server.received[0]
        assert lines[0] == f"* connected to {server.name} through the proxy {proxy.name} (127.0.0.1, TLSv1.3)"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([request(), send(b"HTTP/1.1 407 No\r\n\r\n")], "the proxy {} wants a username and password (status 407)"),
        ([request(), send(b"HTTP/1.1 502 Bad\r\n\r\n")], "the proxy {} refuses to connect to the server (status 502)"),
        ([request(), send(b"HTTP/1.1 302 Away\r\n\r\n")], "the proxy {} refuses to connect to the server (status 302)"),
        ([request()], "the proxy {} closed the connection without an answer"),
        ([request(), reset()], "the connection to the proxy {} broke before the answer: connection reset"),
        ([request(), send(b"nonsense\r\n\r\n")], "the answer of the proxy {} is not valid HTTP (illegal status line)"),
        ([request(), send(START), forever(b"x" * 9999)], TOO_LONG.replace("{}", "the proxy {}")),
        ([request(), send(b"HTTP/1.1 200 OK\r\n\r\nhello")], "the proxy {} sends data before TLS has begun"),
    ],
)  # fmt: skip
def test_a_proxy_that_fails_is_named(client_tls: ssl.SSLContext, script: list[Step], message: str) -> None:
    with (
        Server(script) as proxy,
        client(Transport(lambda: client_tls, through(proxy))) as http,
        pytest.raises(NetworkError) as caught,
    ):
        http.post("https://api.test/", content=b"x")
    assert caught.value.message == message.format(proxy.name)
    assert not caught.value.sent


def test_a_proxy_that_hangs_up_at_once_is_named(client_tls: ssl.SSLContext) -> None:
    with (
        Server([reset()]) as proxy,
        client(Transport(lambda: client_tls, through(proxy))) as http,
        pytest.raises(NetworkError) as caught,
    ):
        http.post("https://api.test/", content=b"x")
    assert caught.value.message in {  # the reset may come while connecting, while asking, or while waiting
        f"no connection to the proxy {proxy.name}: connection reset",
        f"no connection to the proxy {proxy.name}: connection closed by the server",
        f"the connection to the proxy {proxy.name} broke before the answer: connection reset",
        f"the proxy {proxy.name} closed the connection without an answer",
    }
    assert not caught.value.sent


def test_a_proxy_that_wants_a_password_is_not_mistaken_for_the_api() -> None:
    with (
        Server([serve(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")]) as proxy,
        client(Transport(no_tls, through(proxy, b"Basic eA=="))) as http,
        pytest.raises(NetworkError) as caught,
    ):
        http.get("http://api.test/")
    assert str(caught.value) == (
        f"the proxy {proxy.name} wants another username and password (status 407); "
        f"put them into HTTPS_PROXY, like http://USER:PASSWORD@{proxy.name}"
    )


def test_a_proxy_that_is_down_is_named() -> None:
    down = Proxy("http", "127.0.0.1", free_port(), b"Basic c2VjcmV0", "http_proxy")
    with client(Transport(no_tls, lambda *_: down)) as http, pytest.raises(NetworkError) as caught:
        http.get("http://api.test/")
    assert str(caught.value) == (
        f"no connection to the proxy {down}: connection refused; check http_proxy, or name the server in NO_PROXY"
    )


def test_a_proxy_that_keeps_silent_ends_in_a_timeout(client_tls: ssl.SSLContext) -> None:
    with (
        Server([hang()]) as proxy,
        client(Transport(lambda: client_tls, through(proxy)), timeout=1) as http,
        Stopwatch() as watch,
        pytest.raises(TimeoutExpired) as caught,
    ):
        http.get("https://api.test/")
    assert caught.value.message == f"no connection to api.test:443 through the proxy {proxy.name} within 1 s (proxy)"
    assert watch.seconds < SOON

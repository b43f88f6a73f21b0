"""Connections are reused only when that is safe, and bodies that are not needed do not block them."""

import os
import select
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.http.clients import SOON, client, get, no_tls
from tests.support.servers import (
    OK,
    Peer,
    Server,
    Step,
    Stopwatch,
    close,
    drip,
    forever,
    free_port,
    hang,
    request,
    reset,
    send,
    serve,
    until_closed,
    wait_for,
)
from xapi_cli.errors import NetworkError, XapiError
from xapi_cli.http.messages import build_request
from xapi_cli.http.transport import Transport


def test_a_connection_is_reused_for_successive_requests() -> None:
    with Server([serve()]) as server, client() as http:
        assert [http.post(server.url, content=b"x").content for _ in range(5)] == [b"ok"] * 5
        assert len(server.received) == 1


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more than promised",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ],
)
def test_a_closed_or_ambiguous_connection_is_not_reused(reply: bytes) -> None:
    with Server([request(), send(reply), until_closed()]) as server, client() as http:
        assert http.get(server.url).content == b"ok"
        assert http.get(server.url).content == b"ok"
        assert len(server.received) == 2


def test_a_connection_that_the_server_closed_is_replaced_before_sending() -> None:
    with Server([request(), send(OK)], [serve()]) as server, client() as http:
        http.post(server.url, content=b"1")
        pool = http._transport._transport._pool  # type: ignore[attr-defined]  # noqa: SLF001  # only its socket shows it of the end
        [[idle]] = pool._idle.values()  # noqa: SLF001  # the same
        assert select.select([idle], [], [], 10)[0]
        assert http.post(server.url, content=b"2").content == b"ok"
        assert [received[-1:] for received in server.received] == [b"1", b"2"]


def test_an_idle_connection_is_not_reused_after_the_keep_alive_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server([serve()]) as server, client() as http:
        http.get(server.url)
        later = time.monotonic() + 6
        monkeypatch.setattr(time, "monotonic", lambda: later)
        http.get(server.url)
        assert len(server.received) == 2


@pytest.mark.parametrize("ending", [[], [reset()]], ids=["closed", "reset"])
def test_an_idempotent_request_is_resent_when_a_reused_connection_fails(ending: list[Step]) -> None:
    with Server([request(), send(OK), request(), *ending], [serve()]) as server, client() as http:
        http.get(server.url)
        assert http.put(server.url, content=b"body").content == b"ok"
        assert [received.count(b"PUT") for received in server.received] == [1, 1]
        assert server.received[1].endswith(b"body")


def test_a_post_is_not_resent_when_a_reused_connection_fails() -> None:
    with Server([request(), send(OK), request()], [serve()]) as server, client() as http:
        http.get(server.url)
        with pytest.raises(NetworkError) as caught:
            http.post(server.url, content=b"body")
        assert caught.value.sent
        assert caught.value.hint == "the POST may have been processed: check before you send it again"
        assert len(server.received) == 1


def test_a_request_is_resent_only_once() -> None:
    with Server([request(), send(OK), request()], [request()], [serve()]) as server, client() as http:
        http.get(server.url)
        with pytest.raises(NetworkError):
            http.get(server.url)
        assert len(server.received) == 2


def test_a_request_is_not_resent_after_its_response_has_started() -> None:
    with Server([request(), send(OK), request(), send(b"HTTP/1.1 200")], [serve()]) as server, client() as http:
        http.get(server.url)
        with pytest.raises(NetworkError, match="in the middle of its response"):
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
def test_a_single_use_body_is_not_lost_when_a_reused_connection_fails(
    content: Iterator[bytes], headers: dict[str, str]
) -> None:
    with Server([request(), send(OK), request()], [serve()]) as server, client() as http:
        http.get(server.url)
        with pytest.raises(NetworkError, match="without a response"):
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


def test_closing_ends_the_waits_of_other_threads() -> None:
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
        assert has_begun.wait(30)
        http.close()
        thread.join(10)
        assert not thread.is_alive()
    assert isinstance(outcome[0], NetworkError)
    assert "was truncated after 9 bytes (connection aborted)" in str(outcome[0])


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


def test_a_short_discarded_body_leaves_the_connection_reusable() -> None:
    reply = b"HTTP/1.1 401 No\r\nContent-Length: 5\r\n\r\nnever"
    with Server([serve(reply)]) as server, client() as http:
        with http.stream("GET", server.url) as response:
            response.extensions["response"].discard()
            assert list(response.iter_raw()) == []
        http.get(server.url)
        assert len(server.received) == 1


@pytest.mark.parametrize(
    "rest",
    [[forever(b"x" * 65536)], [hang()], [drip(b"x" * 1000, 0.05)], [reset()], []],
    ids=["endless", "silent", "dripping", "reset", "short"],
)
def test_discarding_a_body_takes_limited_time(rest: list[Step]) -> None:
    reply = b"HTTP/1.1 401 No\r\nContent-Length: 999999999\r\n\r\nx"
    with Server([request(), send(reply), *rest], [serve()]) as server, client() as http:
        with http.stream("GET", server.url) as response:
            with Stopwatch() as watch:
                response.extensions["response"].discard()
            assert watch.seconds < SOON
            assert list(response.iter_raw()) == []
        assert http.get(server.url).content == b"ok"


def test_discarding_and_closing_twice_is_allowed() -> None:
    with Server([serve()]) as server, client() as http:
        response = http.send(http.build_request("GET", server.url), stream=True)
        response.extensions["response"].discard()
        response.extensions["response"].discard()
        response.stream.close()  # type: ignore[union-attr]  # httpx types it as sync or async
        response.close()
        response.close()
        assert http.get(server.url).content == b"ok"
        assert len(server.received) == 1


def test_a_short_body_that_is_held_leaves_the_connection_reusable_and_can_be_read() -> None:
    reply = b"HTTP/1.1 401 No\r\nContent-Length: 5\r\n\r\nnever"
    with Server([serve(reply)]) as server, closing(Transport(no_tls)) as transport:
        unread = transport.send(build_request("GET", f"{server.url}/", []))
        unread.hold()
        closed = transport.send(build_request("GET", f"{server.url}/", []))
        closed.hold()
        closed.close()
        assert (list(unread.chunks()), list(closed.chunks())) == ([b"never"], [])
        unread.hold()
        assert list(unread.chunks()) == []
        assert len(server.received) == 1


def test_a_body_that_is_too_long_to_be_held_is_read_to_its_end() -> None:
    body = b"".join(b"%06d\n" % number for number in range(100_000))
    reply = b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with Server([request(), send(reply)]) as server, closing(Transport(no_tls)) as transport:
        response = transport.send(build_request("GET", f"{server.url}/", []))
        response.hold()
        assert b"".join(response.chunks()) == body


def test_a_body_that_does_not_arrive_soon_is_read_later() -> None:
    is_held = threading.Event()
    reply = b"HTTP/1.1 401 No\r\nContent-Length: 5\r\n\r\nne"
    with (
        Server([request(), send(reply), wait_for(is_held), send(b"ver")]) as server,
        closing(Transport(no_tls)) as transport,
    ):
        response = transport.send(build_request("GET", f"{server.url}/", []))
        response.hold()
        is_held.set()
        assert b"".join(response.chunks()) == b"never"


def test_an_error_in_a_body_that_is_held_is_raised_when_it_is_read() -> None:
    reply = b"HTTP/1.1 401 No\r\nContent-Length: 5\r\n\r\nne"
    with Server([request(), send(reply), close()]) as server, closing(Transport(no_tls)) as transport:
        response = transport.send(build_request("GET", f"{server.url}/", []))
        response.hold()
        read = response.chunks()
        assert next(read) == b"ne"
        with pytest.raises(NetworkError, match="truncated after 2 bytes"):
            next(read)


def test_a_partly_read_body_does_not_affect_the_next_request() -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200000
    with Server([serve(reply)]) as server, client() as http:
        for _ in range(3):
            with http.stream("GET", server.url) as response:
                assert next(response.iter_raw()).startswith(b"x")
        assert len(http.get(server.url).content) == 200000

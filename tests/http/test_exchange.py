"""One exchange, driven directly: no bytes over a connection, no clock."""

import gc
import socket
import weakref
from contextlib import suppress

import pytest

from xapi_cli.errors import NetworkError, TimeoutExpired
from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.exchange import MAX_DISCARDED, Exchange
from xapi_cli.http.proxies import Proxy

ROUTE = Route("http", "api.test", 80)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = b"PUT / HTTP/1.1\r\n\r\nbody"


def exchange(method: str = "GET", *, sent: int | None = None, **more: bool) -> Exchange:
    """Return an exchange whose request was sent, or only *sent* bytes of it."""
    begun = Exchange(ROUTE, method, **more)  # type: ignore[arg-type]  # mypy does not know which options are given
    begun.offer(REQUEST, is_last=True)
    begun.sent(len(REQUEST) if sent is None else sent)
    return begun


def body_of(begun: Exchange) -> bytes:
    body = b""
    while not begun.has_response and (block := begun.body()):
        body += block
    return body


def allows_reuse(ended: Exchange) -> bool:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        return ended.end(Connection(ours, ROUTE))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_complete_exchange_allows_another_one(size: int) -> None:
    begun, body = exchange(), b""
    for start in range(0, len(OK), size):
        assert not begun.is_done
        begun.receive(OK[start : start + size])
        body += body_of(begun)

    assert (body, begun.is_done, allows_reuse(begun)) == (b"ok", True, True)


@pytest.mark.parametrize(
    "method, reply",
    [
        ("GET", OK + b"H"),
        ("GET", b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"),
        ("GET", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"),  # the server may send the body anyway
        ("GET", b"HTTP/1.1 304 OK\r\nContent-Length: 2\r\n\r\n"),
    ],
)
def test_a_connection_whose_next_bytes_are_not_certain_is_not_reused(method: str, reply: bytes) -> None:
    begun = exchange(method)
    begun.receive(reply)
    body_of(begun)

    assert (begun.is_done, allows_reuse(begun)) == (True, False)


def test_after_an_early_success_the_rest_of_the_request_is_sent() -> None:
    begun = exchange("PUT", sent=3)
    begun.receive(OK)

    assert body_of(begun) == b"ok"
    assert (begun.is_sending, begun.has_response, begun.is_done) == (True, True, False)
    begun.sent(len(begun.unsent))
    assert (begun.is_done, allows_reuse(begun)) == (True, True)


@pytest.mark.parametrize("status", [301, 401, 413, 500])
def test_after_another_early_response_the_rest_of_the_request_is_not_sent(status: int) -> None:
    begun = exchange("PUT", sent=3)
    begun.receive(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)
    body_of(begun)

    assert (begun.is_sending, begun.is_done, allows_reuse(begun)) == (False, True, False)


def test_a_request_that_was_not_offered_to_its_end_prevents_reuse() -> None:
    begun = Exchange(ROUTE, "PUT")
    begun.offer(REQUEST)
    begun.sent(len(REQUEST))
    begun.receive(OK)
    body_of(begun)

    assert (begun.has_response, begun.is_done, allows_reuse(begun)) == (True, False, False)


def test_nothing_is_offered_after_a_part_that_could_not_be_sent() -> None:
    begun = Exchange(ROUTE, "PUT")
    begun.offer(REQUEST)
    begun.sent(3)
    begun.receive(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")
    body_of(begun)
    begun.offer(b"", is_last=True)

    assert (bytes(begun.unsent), begun.is_done, allows_reuse(begun)) == (REQUEST[3:], True, False)


def test_a_response_that_arrived_before_sending_failed_is_the_result() -> None:
    begun = exchange("PUT", sent=3)
    begun.cannot_send()
    assert not begun.is_sending
    begun.receive(OK)

    assert (body_of(begun), begun.is_done, allows_reuse(begun)) == (b"ok", True, False)


@pytest.mark.parametrize(
    "method, sent, again",
    [("GET", 0, True), ("GET", 5, True), ("POST", 0, True), ("POST", 5, False), ("PATCH", 5, False), ("PUT", 5, True)],
)
def test_a_request_on_a_reused_connection_is_sent_again_if_that_changes_nothing(
    method: str, sent: int, again: bool
) -> None:
    begun = exchange(method, sent=sent, is_reused=True)
    with pytest.raises(NetworkError) as caught:
        begun.receive(b"")

    assert (begun.may_resend, caught.value.sent) == (again, bool(sent))
    assert (caught.value.hint is not None) == (not again)
    fresh = exchange(method, sent=sent)
    with pytest.raises(NetworkError):
        fresh.receive(b"")
    assert not fresh.may_resend


def test_a_request_is_not_sent_again_after_a_byte_of_the_response_or_if_its_body_cannot_be_read_again() -> None:
    begun = exchange(is_reused=True)
    begun.receive(b"H")
    with pytest.raises(NetworkError, match="in the middle of its response"):
        begun.receive(b"")
    assert not begun.may_resend

    begun = exchange(is_reused=True)
    begun.is_replayable = False
    with pytest.raises(NetworkError):
        begun.receive(ConnectionResetError(104, "reset"))
    assert not begun.may_resend


def test_over_tls_a_request_may_have_been_sent_although_no_byte_was_taken() -> None:
    begun = exchange("POST", sent=0, is_reused=True, over_tls=True)
    with pytest.raises(NetworkError):
        begun.receive(b"")

    assert not begun.may_resend


@pytest.mark.parametrize("how", ["truncated", "too long", "too late", "not valid"])
def test_a_body_that_is_not_needed_does_not_fail_but_prevents_reuse(how: str) -> None:
    begun = Exchange(ROUTE, "GET", needs_body=lambda head: head.status != 503)
    begun.offer(REQUEST, is_last=True)
    begun.sent(len(REQUEST))
    begun.receive(b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
    assert (begun.is_discarding, begun.body(), begun.is_done) == (True, b"", False)
    match how:
        case "truncated":
            begun.receive(b"")
        case "too long":
            begun.receive(b"%x\r\n%s\r\n" % (MAX_DISCARDED, b"x" * MAX_DISCARDED))
        case "too late":
            assert begun.expire()
        case "not valid":
            begun.receive(b"rubbish\n")

    assert (begun.is_done, allows_reuse(begun)) == (True, False)


def test_a_short_body_that_is_not_needed_keeps_the_connection() -> None:
    begun = exchange()
    begun.receive(OK[:-1])
    begun.discard()
    begun.receive(OK[-1:])

    assert (begun.is_done, allows_reuse(begun)) == (True, True)


def test_a_timeout_names_what_is_missing() -> None:
    begun = exchange("PUT", sent=3)
    assert (begun.awaited(), begun.expire()) == ("api.test:80 accepted no data", False)
    begun.sent(len(begun.unsent))
    assert (begun.awaited(), begun.expire()) == ("no response from api.test:80", False)
    begun.receive(OK[:-1])
    assert (begun.awaited(), begun.expire()) == ("no more data from api.test:80", False)


def test_a_timeout_of_sending_after_a_response_does_not_end_the_exchange() -> None:
    begun = exchange("PUT", sent=3)
    begun.receive(OK[:-1])

    assert begun.expire()
    assert not begun.is_sending
    begun.receive(OK[-1:])
    assert (body_of(begun), begun.is_done, allows_reuse(begun)) == (b"ok", True, False)


def test_a_failed_exchange_is_freed_without_the_garbage_collector() -> None:
    def failed() -> weakref.ref[Exchange]:
        begun = exchange()
        with suppress(NetworkError):
            begun.receive(b"")
        return weakref.ref(begun)

    assert not gc.isenabled()
    assert failed()() is None


@pytest.mark.parametrize("method, hint", [("GET", None), ("POST", "the POST may have been processed")])
def test_an_error_records_whether_the_request_was_sent(method: str, hint: str | None) -> None:
    error = TimeoutExpired("late")
    exchange(method).record_sent(error)

    assert error.sent
    assert (error.hint or "").startswith(hint or "")
    assert (error.hint is None) == (hint is None)
    safe = TimeoutExpired("late")
    exchange("POST", is_safe_to_resend=True).record_sent(safe)
    assert (safe.sent, safe.hint) == (True, None)


@pytest.mark.parametrize(
    ("method", "status", "has_hint"),
    [("POST", 200, True), ("PATCH", 302, True), ("POST", 503, False), ("PUT", 200, False)],
)
def test_the_error_for_a_truncated_body_states_whether_the_request_may_have_been_processed(
    method: str, status: int, has_hint: bool
) -> None:
    begun = exchange(method)
    begun.receive(b"HTTP/1.1 %d Hm\r\nContent-Length: 9\r\n\r\nabc" % status)
    begun.body()
    begun.receive(b"")
    with pytest.raises(NetworkError) as caught:
        begun.body()

    hint = f"the {method} may have been processed: check before you send it again"
    assert caught.value.hint == (hint if has_hint else None)


def test_a_407_of_a_proxy_is_an_error_and_that_of_a_server_a_response() -> None:
    reply = b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n"
    proxied = Exchange(ROUTE._replace(proxy=Proxy("http", "proxy.test", 3128)), "GET")
    with pytest.raises(NetworkError, match="requires a username and password"):
        proxied.receive(reply)

    begun = exchange()
    begun.receive(reply)
    assert begun.head is not None
    assert begun.head.status == 407

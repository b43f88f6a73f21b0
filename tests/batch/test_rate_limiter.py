"""The rate limiter of a batch: the rate, and the waits that the API asks for."""

import itertools
import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.batch.server import Api, ReceivedRequest, Reply, paths
from tests.support.servers import OK, Peer, Server, request, send, serve, wait_for
from tests.support.threads import wait_until
from xapi_cli.auth.token_source import TokenSource
from xapi_cli.batch import rate_limiter
from xapi_cli.batch.engine import Engine
from xapi_cli.batch.in_flight import InFlight, Outcome
from xapi_cli.batch.input import entries
from xapi_cli.batch.input.line_reader import Line
from xapi_cli.batch.memory_budget import LIMIT, MemoryBudget
from xapi_cli.batch.rate_limiter import RateLimiter
from xapi_cli.errors import NetworkError, UsageError
from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.flow import FinalResponse, Policy
from xapi_cli.http.network import Network
from xapi_cli.http.pool import GRACE_PERIOD
from xapi_cli.request.redirects import redirected_call
from xapi_cli.tokens import Token


class Clock:
    """A clock that the test controls."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# the bucket


@pytest.mark.parametrize(
    "text, rate", [("5", 5), ("5/s", 5), ("90/m", 1.5), ("0.5", 0.5), ("1000/s", 1000), ("0.5/m", 0.5 / 60)]
)
def test_a_rate_is_a_number_per_second_or_minute(text: str, rate: float) -> None:
    assert rate_limiter.parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "0", "0.0/m", "-1", "5/h", "5/", "/s", "1e3", "inf", "nan", "５", "1 /s", "\x1b"])
def test_another_text_is_a_usage_error_without_control_characters(text: str) -> None:
    with pytest.raises(UsageError, match="is not a valid rate; write N, N/s or N/m") as caught:
        rate_limiter.parse_rate(text)
    assert str(caught.value).isprintable()


def test_requests_are_spread_over_the_second_from_the_beginning() -> None:
    clock = Clock()
    limited = RateLimiter(4, clock=clock)
    sent = []
    for _ in range(256):  # two seconds in steps that a float represents exactly
        sent.append(limited.try_acquire())
        clock.now += 1 / 128

    assert [number for number, each in enumerate(sent) if each] == [*range(0, 256, 32)]


@given(
    st.floats(0.01, 5000), st.lists(st.floats(0, 3, allow_subnormal=False), min_size=1, max_size=60), st.integers(1, 40)
)
def test_no_second_has_more_requests_than_the_rate(rate: float, steps: list[float], attempts: int) -> None:
    clock = Clock()
    limited = RateLimiter(rate, clock=clock)
    times = []
    for step in steps:
        clock.now += step
        times += [clock.now for _ in range(attempts) if limited.try_acquire()]

    count = math.ceil(rate)  # over more than a second if the rate is not a whole number
    assert all(later - earlier >= count / rate - 1e-9 for earlier, later in zip(times, times[count:], strict=False))


def test_a_burst_after_an_interruption_counts_toward_its_second() -> None:
    clock = Clock()
    limited = RateLimiter(100, clock=clock)
    times = []
    for turn in range(2000):  # each takes a millisecond; one takes an hour
        clock.now += 3600 if turn == 500 else 0.001
        while limited.try_acquire():
            times.append(clock.now)

    resumed = [each for each in times if each > clock.now - 100]
    assert len(set(resumed[:10])) == 1
    assert resumed[100] - resumed[0] > 0.99


def test_unused_capacity_does_not_accumulate() -> None:
    clock = Clock()
    limited = RateLimiter(100, clock=clock)
    limited.try_acquire()
    clock.now += 3600

    assert 10 <= sum(limited.try_acquire() for _ in range(1000)) <= 11


@pytest.mark.parametrize("turn", [0.005, 0.02, 0.05])
def test_a_delayed_caller_still_reaches_the_rate(turn: float) -> None:
    clock = Clock()
    limited = RateLimiter(1000, clock=clock)
    sent = 0
    for _ in range(round(10 / turn)):  # an event loop that needs *turn* seconds for each turn
        while limited.try_acquire():
            sent += 1
        clock.now += turn

    assert 9500 <= sent <= 10000


def test_without_a_rate_all_requests_are_permitted() -> None:
    assert all(RateLimiter(clock=Clock()).try_acquire() for _ in range(1000))


def test_a_pause_delays_all_requests_and_the_longest_one_counts() -> None:
    clock = Clock()
    paused = RateLimiter(clock=clock)

    assert [paused.pause(10), paused.pause(5), paused.pause(0)] == [True, False, False]
    assert (paused.try_acquire(), paused.next_time) == (False, clock.now + 10)
    clock.now += 10
    assert paused.try_acquire()
    assert paused.pause(1)


def test_after_a_pause_the_rate_applies_again() -> None:
    clock = Clock()
    limited = RateLimiter(2, clock=clock)
    limited.pause(60)
    clock.now += 60

    assert [limited.try_acquire() for _ in range(3)] == [True, False, False]


def test_pauses_can_be_switched_off() -> None:
    unpaused = RateLimiter(pauses=False, clock=Clock())

    assert not unpaused.pause(10)
    assert unpaused.try_acquire()


# requests


class Run:
    """An engine that sends lines to the server at *url*, with the rate limiter of a *clock*."""

    api: Api  # if the server is one

    def __init__(self, url: str, count: int, retries: int, rate: float | None, *, pauses: bool = True) -> None:
        self.clock, self.outcomes, self.notes = Clock(), list[Outcome](), list[str]()
        self.budget = MemoryBudget()
        lines = paths(count).encode().splitlines(keepends=True)
        self._entries = [entries.parse(Line(number, data, b""), url) for number, data in enumerate(lines, 1)]
        policy = Policy(
            url,
            replays=1,
            retries=retries,
            redirected=partial(redirected_call, base_url=url),
            note=self.notes.append,
        )
        self.engine = Engine(
            Network(timeout=20, ca_bundle=None, environ={}, deadline=None),
            policy,
            TokenSource(_Credentials()),  # type: ignore[arg-type]  # a login never happens
            jobs=8,
            timeout=20,
            budget=self.budget,
            next_entry=lambda: self._entries.pop(0) if self._entries else None,
            on_done=self._done,
            limiter=RateLimiter(rate, pauses=pauses, clock=self.clock),
        )

    def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.engine.step(has_more=lambda: bool(self._entries))

    def settle(self) -> None:
        """Perform everything that needs no time to pass."""
        for _ in range(50):
            self.engine.wake()
            self.engine.step(has_more=lambda: bool(self._entries))

    def _done(self, request: InFlight, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


class _Credentials:
    def current(self) -> Token:
        return Token("t")


@contextmanager
def running(
    response: Callable[[ReceivedRequest], Reply],
    count: int,
    *,
    retries: int = 0,
    rate: float | None = None,
    pauses: bool = True,
) -> Iterator[Run]:
    with Api(response, open_to_all=True) as api, closing(Run(api.url, count, retries, rate, pauses=pauses)) as run:
        run.api = api
        yield run


@contextmanager
def closing(run: Run) -> Iterator[Run]:
    try:
        yield run
    finally:
        run.engine.cancel(NetworkError("the test has ended"))
        run.engine.close()


def test_requests_are_sent_when_the_rate_permits_them_with_any_number_of_jobs() -> None:
    with running(lambda received: Reply(), 4, rate=1) as run:
        for sent in (1, 2, 3, 4):
            run.until(lambda: len(run.outcomes) == sent)  # noqa: B023 - it is called in this iteration
            run.settle()
            assert len(run.api.requests) == sent
            run.clock.now += 1


class _Dials:
    """Open the first *immediate* connections immediately, and the others when *may_open* is set."""

    def __init__(self) -> None:
        self.immediate, self.may_open, self.opened = 0, threading.Event(), list[Connection]()
        self._dial, self.begun, self._ended = Network.dial, 0, 0

    def dial(self, network: Network, route: Route) -> Connection:
        self.begun += 1
        try:
            if self.begun > self.immediate:
                self.may_open.wait(60)
            connection = self._dial(network, route)
            self.opened.append(connection)
        finally:
            self._ended += 1
        return connection

    def close(self) -> None:
        """Close all connections, including those that opened after the engine was closed."""
        self.may_open.set()
        wait_until(lambda: self._ended == self.begun, "no connection is being opened")
        for each in self.opened:
            each.close()

    def open_for_4_lines(self, run: Run) -> None:
        """Let *run* have four lines in flight, two seconds after the first, and then open their connections."""
        for in_flight in (1, 2, 3, 4):
            run.settle()
            assert run.engine.in_flight == in_flight
            run.clock.now += 0.5
        self.may_open.set()
        wait_until(lambda: len(self.opened) == 4, "all connections are open")


@pytest.fixture
def dials(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Dials]:
    made = _Dials()

    def dial(network: Network, route: Route) -> Connection:
        return made.dial(network, route)

    monkeypatch.setattr(Network, "dial", dial)
    yield made
    made.close()


def test_no_second_has_more_requests_than_the_rate_if_connections_take_long_to_open(dials: _Dials) -> None:
    with running(lambda received: Reply(), 4, rate=2) as run:
        dials.open_for_4_lines(run)
        for sent in (2, 4):
            run.until(lambda: len(run.outcomes) >= sent)  # noqa: B023 - it is called in this iteration
            run.settle()
            assert len(run.api.requests) == sent
            run.clock.now += 1


def test_a_request_that_the_rate_holds_does_not_get_surplus_bytes_as_its_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has a connection that carried another request; what arrives there before it is sent is no response to it."""
    dial, may_open, may_open_more, dials = Network.dial, threading.Event(), threading.Event(), itertools.count()
    may_send_more, has_sent_more = threading.Event(), threading.Barrier(3)

    def dial_late(network: Network, route: Route) -> Connection:
        (may_open if next(dials) < 2 else may_open_more).wait(60)
        return dial(network, route)

    def sent_more(peer: Peer) -> None:
        has_sent_more.wait(60)

    surplus = send(b"HTTP/1.1 418 Surplus\r\nContent-Length: 0\r\n\r\n")
    first = [request(), send(OK), wait_for(may_send_more), surplus, sent_more]
    monkeypatch.setattr(Network, "dial", dial_late)
    with Server(first, first, *[[serve()]] * 4) as server, closing(Run(server.url, 4, 0, 2)) as run:
        for in_flight in (1, 2, 3, 4):
            run.settle()
            assert run.engine.in_flight == in_flight
            run.clock.now += 0.5
        may_open.set()
        run.until(lambda: len(run.outcomes) == 2)
        end = time.monotonic() + 5 * GRACE_PERIOD  # then, the others have the connections of the first two
        run.until(lambda: time.monotonic() >= end)
        may_send_more.set()
        has_sent_more.wait(60)
        run.settle()
        may_open_more.set()
        run.clock.now += 1
        run.until(lambda: len(run.outcomes) == 4)

    assert [each.response.status for each in run.outcomes if isinstance(each, FinalResponse)] == [200] * 4


@pytest.mark.parametrize("end", [b"", b"HTTP/1.1 408 Too Late\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"])
def test_a_request_that_the_rate_holds_is_not_sent_over_a_connection_that_the_server_ended(
    dials: _Dials, end: bytes
) -> None:
    """A server ends a new connection without a request after some seconds."""
    has_ended, (ending, end_all) = threading.Barrier(3), os.pipe()

    def reply_or_end(peer: Peer) -> None:
        if peer.sock.fileno() in select.select([peer.sock.fileno(), ending], [], [], 60)[0]:
            serve()(peer)
            return
        peer.sock.sendall(end)
        peer.sock.shutdown(socket.SHUT_WR)
        has_ended.wait(60)

    with Server(*[[reply_or_end]] * 4, [serve()]) as server, closing(Run(server.url, 4, 0, 2)) as run:
        dials.open_for_4_lines(run)
        run.until(lambda: len(run.outcomes) == 2)
        os.close(end_all)
        has_ended.wait(60)
        run.clock.now += 1
        run.until(lambda: len(run.outcomes) == 4)
    os.close(ending)

    assert [each.response.status for each in run.outcomes if isinstance(each, FinalResponse)] == [200] * 4


def test_requests_of_which_nothing_was_sent_end_if_the_batch_stops(dials: _Dials) -> None:
    with running(lambda received: Reply(), 4, rate=2) as run:
        dials.open_for_4_lines(run)
        run.until(lambda: len(run.outcomes) == 2)
        run.engine.stop()
        run.clock.now += 1
        run.settle()
        assert (run.engine.in_flight, len(run.api.requests)) == (0, 2)


@pytest.mark.parametrize(("status", "is_sent"), [(503, False), (303, True)])
def test_of_requests_that_the_rate_holds_again_only_those_after_a_redirect_are_sent_if_the_batch_stops(
    dials: _Dials, status: int, is_sent: bool
) -> None:
    headers = (("Retry-After", "0"), ("Location", "/end"))

    def response(received: ReceivedRequest) -> Reply:
        return Reply(status=status, headers=headers) if received.path == "/n/0" else Reply()

    with running(response, 4, retries=1, rate=2) as run:
        dials.open_for_4_lines(run)
        run.until(lambda: len(run.outcomes) == 1 and len(run.api.requests) == 2)
        end = time.monotonic() + 5 * GRACE_PERIOD  # then, it has a connection
        run.until(lambda: time.monotonic() >= end)
        assert (run.engine.in_flight, len(run.api.requests)) == (3, 2)
        run.engine.stop()
        run.settle()
        assert run.engine.in_flight == is_sent
        run.clock.now += 1
        run.until(lambda: run.engine.in_flight == 0)
        assert [each.path for each in run.api.requests[2:]] == ["/end"] * is_sent


def test_a_request_that_waits_for_a_connection_ends_if_the_batch_stops(dials: _Dials) -> None:
    dials.immediate = 1
    with running(lambda received: Reply(), 2) as run:
        run.until(lambda: run.engine.in_flight == 2)
        run.until(lambda: len(run.outcomes) == 1)
        run.engine.stop()
        run.settle()
        assert (run.engine.in_flight, len(run.api.requests)) == (0, 1)
        dials.may_open.set()
        run.until(lambda: len(dials.opened) == 2)
        run.settle()
        assert len(run.api.requests) == 1


def test_a_retry_counts_as_a_request() -> None:
    def response(received: ReceivedRequest) -> Reply:
        return Reply(status=503, headers=(("Retry-After", "0"),)) if received.path == "/n/0" else Reply()

    with running(response, 2, retries=9, rate=1) as run:
        run.until(lambda: len(run.notes) == 1)
        run.settle()
        assert [each.path for each in run.api.requests] == ["/n/0"]
        run.clock.now += 1
        run.until(lambda: len(run.notes) == 2)
        run.settle()
        assert [each.path for each in run.api.requests] == ["/n/0", "/n/0"]  # a retry precedes new lines


def test_a_request_after_a_redirect_counts_and_is_sent_even_if_the_batch_stops() -> None:
    def response(received: ReceivedRequest) -> Reply:
        return Reply(status=303, headers=(("Location", "/end"),)) if received.path == "/n/0" else Reply()

    with running(response, 2, rate=1) as run:
        run.until(lambda: len(run.api.requests) == 1)
        run.settle()
        assert not run.outcomes
        run.engine.stop()
        run.clock.now += 1
        run.until(lambda: len(run.outcomes) == 1)
        assert [each.path for each in run.api.requests] == ["/n/0", "/end"]
        assert not run.engine.step(has_more=lambda: True)


def test_a_429_with_retry_after_delays_all_lines() -> None:
    def response(received: ReceivedRequest) -> Reply:
        return Reply(status=429, headers=(("Retry-After", "300"),)) if received.path == "/n/0" else Reply()

    with running(response, 30, retries=1, rate=1) as run:
        run.until(lambda: bool(run.notes))
        run.settle()
        assert run.notes[0] == "the API responded with 429; sending no requests for 300.0 s"
        before = len(run.api.requests)
        run.clock.now += 299
        run.settle()
        assert len(run.api.requests) == before
        run.clock.now += 1
        run.until(lambda: len(run.outcomes) == 1)
        assert len(run.api.requests) == before + 1


def test_a_429_with_retry_after_delays_the_lines_that_have_a_connection_already(dials: _Dials) -> None:
    def response(received: ReceivedRequest) -> Reply:
        is_first = received is run.api.requests[0]  # two are sent together
        return Reply(status=429, headers=(("Retry-After", "300"),)) if is_first else Reply()

    with running(response, 4, retries=1, rate=2) as run:
        dials.open_for_4_lines(run)
        run.until(lambda: len(run.api.requests) == 2 and bool(run.notes))
        run.clock.now += 299
        run.settle()
        assert len(run.api.requests) == 2
        run.clock.now += 1
        run.until(lambda: len(run.api.requests) == 4)


@contextmanager
def _in_a_pause(dials: _Dials) -> Iterator[Run]:
    """Run four lines without a rate: the response to the first is a 429, and the others get connections after it."""

    def response(received: ReceivedRequest) -> Reply:
        return Reply(status=429, headers=(("Retry-After", "300"),)) if len(run.api.requests) == 1 else Reply()

    dials.immediate = 1
    with running(response, 4, retries=1) as run:
        run.until(lambda: bool(run.notes))
        dials.may_open.set()
        wait_until(lambda: len(dials.opened) == 4, "all connections are open")
        run.settle()
        yield run


def test_without_a_rate_a_429_with_retry_after_delays_the_lines_whose_connections_open_later(dials: _Dials) -> None:
    with _in_a_pause(dials) as run:
        run.clock.now += 299
        run.settle()
        assert len(run.api.requests) == 1
        run.clock.now += 1
        run.until(lambda: len(run.outcomes) == 3)
        assert len(run.api.requests) == 4


def test_a_connection_that_closes_in_a_pause_is_replaced_after_it(dials: _Dials) -> None:
    with _in_a_pause(dials) as run:
        for connection in dials.opened[1:]:
            connection.abort()
        run.settle()
        assert dials.begun == 4
        run.clock.now += 300
        run.until(lambda: len(run.outcomes) == 3)
        assert dials.begun > 4


def test_a_request_that_a_pause_holds_is_not_the_one_that_is_exempt_from_the_memory_budget(dials: _Dials) -> None:
    """Otherwise, nothing of the other responses would be read before the end of the pause."""
    have_arrived, may_end = threading.Barrier(3), threading.Event()

    def response(received: ReceivedRequest) -> Reply:
        have_arrived.wait(60)
        if received.path == "/n/0":  # it is retried, over a connection that opens in the pause
            return Reply(status=503, headers=(("Retry-After", "0"), ("Connection", "close")))
        if received.path == "/n/1":
            wait_until(lambda: dials.begun == 4, "the connection for the retry is being opened")
            return Reply(status=429, headers=(("Retry-After", "300"),))
        may_end.wait(60)
        return Reply()

    dials.immediate = 3
    with running(response, 3, retries=1) as run:
        run.until(lambda: any("sending no requests" in note for note in run.notes))
        dials.may_open.set()
        wait_until(lambda: len(dials.opened) == 4, "all connections are open")
        run.settle()
        run.budget.add(LIMIT)
        may_end.set()
        run.until(lambda: len(run.outcomes) == 1)
        assert len(run.api.requests) == 3


@pytest.mark.parametrize(
    "pauses, headers", [(False, (("Retry-After", "300"),)), (True, ()), (True, (("Retry-After", "301"),))]
)
def test_other_lines_are_sent_if_there_is_no_wait_or_it_is_switched_off(
    pauses: bool, headers: tuple[tuple[str, str], ...]
) -> None:
    def response(received: ReceivedRequest) -> Reply:
        return Reply(status=429, headers=headers) if received.path == "/n/0" else Reply()

    with running(response, 30, retries=1, pauses=pauses) as run:
        run.until(lambda: len(run.outcomes) >= 29)
        assert not any("sending no requests" in note for note in run.notes)


def test_a_429_from_another_origin_delays_no_other_line() -> None:
    with Api(lambda received: Reply(status=429, headers=(("Retry-After", "300"),)), open_to_all=True) as elsewhere:

        def response(received: ReceivedRequest) -> Reply:
            away = received.path == "/n/0"
            return Reply(status=302, headers=(("Location", f"{elsewhere.url}/"),)) if away else Reply()

        with running(response, 30, retries=1) as run:
            run.until(lambda: len(run.outcomes) == 29)
            run.until(lambda: len(run.notes) == 1)
            assert "retrying in 300.0 s" in run.notes[0]

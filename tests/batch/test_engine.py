"""The engine of a batch against a real server, without input lines and output."""

import os
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import trustme

from tests.batch.server import Api, ReceivedRequest, Reply
from tests.support.servers import OK, Peer, Server, Step, request, send, serve, wait_for
from tests.support.threads import wait_until
from xapi_cli.batch import engine, exchanges
from xapi_cli.batch.engine import Engine
from xapi_cli.batch.exchanges import BlockSize
from xapi_cli.batch.in_flight import InFlight, Outcome
from xapi_cli.batch.input.entries import Entry
from xapi_cli.batch.memory_budget import LIMIT, MemoryBudget
from xapi_cli.batch.rate_limiter import RateLimiter
from xapi_cli.errors import NetworkError, TimeoutExpired
from xapi_cli.http.flow import FinalResponse, Policy
from xapi_cli.http.network import Network
from xapi_cli.http.pool import GRACE_PERIOD
from xapi_cli.request.body.build import JSON
from xapi_cli.request.body.spool import Text
from xapi_cli.request.calls import Call
from xapi_cli.request.redirects import redirected_call


class _Run:
    """The results of an engine, by the numbers of the requests, in the order in which they ended.

    A call that is None stands for a line that has not arrived yet.
    """

    def __init__(
        self, api: Api | Server, calls: Iterable[Call | None], budget: MemoryBudget | None = None, **options: Any
    ) -> None:
        self.results: list[tuple[int, Outcome]] = []
        self.notes: list[str] = []
        self._entries = (call and Entry(number, call=call, size=10) for number, call in enumerate(calls, 1))
        self._has_ended = False
        self.budget = budget or MemoryBudget()
        policy: Policy[Call] = Policy(
            api.url,
            replays=0,
            retries=options.pop("retries", 0),
            redirected=partial(redirected_call, base_url=api.url),
            note=self.notes.append,
        )
        self.engine = Engine(
            Network(timeout=10, ca_bundle=options.pop("ca_bundle", None), environ=os.environ),
            policy,
            cast("Any", None),
            jobs=options.pop("jobs", 4),
            timeout=options.pop("timeout", 10.0),
            budget=self.budget,
            next_entry=self._next_entry,
            on_done=self._done,
            limiter=options.pop("limiter", RateLimiter()),
            **options,
        )

    def _next_entry(self) -> Entry | None:
        try:
            return next(self._entries)
        except StopIteration:
            self._has_ended = True
            return None

    def _done(self, request: InFlight, outcome: Outcome) -> None:
        self.results.append((request.number, outcome))

    def finish(self, stop: Callable[[], bool] = lambda: False) -> None:
        while self.engine.step(has_more=lambda: not self._has_ended):
            if stop():
                self.engine.stop()

    @property
    def statuses(self) -> dict[int, int | str]:
        return {
            number: outcome.response.status if isinstance(outcome, FinalResponse) else type(outcome).__name__
            for number, outcome in self.results
        }


@contextmanager
def _engine(api: Api, *paths: str, **options: Any) -> Iterator[_Run]:
    run = _Run(api, [Call("GET", api.url + path) for path in paths], **options)
    try:
        yield run
    finally:
        run.engine.close()


def _status_in_path(received: ReceivedRequest) -> Reply:
    return Reply(status=int(received.path[1:4]))


@pytest.fixture
def api() -> Iterator[Api]:
    with Api(_status_in_path, open_to_all=True) as server:
        yield server


@pytest.mark.parametrize("jobs", [1, 2, 8])
def test_every_request_has_one_result_and_the_budget_is_empty_at_the_end(api: Api, jobs: int) -> None:
    paths = ["/200", "/404", "/200", "/500", "/204", "/200"]
    with _engine(api, *paths, jobs=jobs) as run:
        run.finish()

        assert run.statuses == {number: int(path[1:]) for number, path in enumerate(paths, 1)}
        assert len(run.results) == len(api.requests) == len(paths)
        assert (run.engine.in_flight, run.budget.left) == (0, LIMIT)
    assert api.most_under_way <= jobs


def test_a_request_is_sent_while_the_next_line_takes_long(api: Api) -> None:
    arrived = threading.Event()
    has_arrived: list[bool] = []

    def respond(received: ReceivedRequest) -> Reply:
        if received.path == "/second":
            arrived.set()
        return Reply()

    def calls() -> Iterator[Call | None]:
        yield Call("GET", f"{api.url}/first")
        while not run.results:
            yield None
        time.sleep(GRACE_PERIOD)  # then the connection can be used again
        yield Call("GET", f"{api.url}/second")
        has_arrived.append(arrived.wait(20))

    api.response = respond
    run = _Run(api, calls())
    run.finish(stop=lambda: bool(has_arrived))
    run.engine.close()

    assert has_arrived == [True]


def test_a_request_that_waits_for_a_grace_period_is_sent_when_it_ends(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_TICK", 60)
    start = time.monotonic()
    with _engine(api, "/200", "/200", jobs=1) as run:
        run.finish()

    assert len(run.results) == 2
    assert time.monotonic() - start < 30


def test_an_idle_connection_is_watched_for_data_only() -> None:
    """It takes data at any time, so it would keep the engine busy after an upload that ends after its response."""

    def respond_early(peer: Peer) -> None:
        while b"\r\n\r\n" not in peer.received:
            peer.read_some()
        peer.sock.sendall(OK)  # before the buffers have room for more of the request

    with Server([respond_early, request(), serve()]) as server:
        run = _Run(server, [Call("POST", f"{server.url}/", (), Text(b"x" * 16 * 1024 * 1024, JSON))])
        run.finish()
        start = time.monotonic()
        run.engine.step(has_more=lambda: True)
        waited = time.monotonic() - start
        run.engine.close()

    assert run.statuses == {1: 200}
    assert waited > 0.1  # until the next look at the time limits


def test_a_connection_that_the_server_closes_before_a_request_is_sent_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A POST that is sent over it would be lost: nobody can know that the server has not processed it."""
    monkeypatch.setattr(engine, "_LONGEST_COLLECTION", 60)
    may_close, is_closed = threading.Event(), threading.Event()

    def closed(peer: Peer) -> None:
        peer.sock.close()
        is_closed.set()

    def calls() -> Iterator[Call | None]:
        yield Call("POST", f"{server.url}/first")
        while not run.results:
            yield None
        time.sleep(GRACE_PERIOD)  # then the connection can be used again
        yield None
        yield Call("POST", f"{server.url}/second")
        may_close.set()
        assert is_closed.wait(20)

    with Server([request(), send(OK), wait_for(may_close), closed], [serve()]) as server:
        run = _Run(server, calls())
        run.finish()
        run.engine.close()

    assert list(run.statuses.values()) == [200, 200]
    assert [b"/second" in each for each in server.received] == [False, True]


def test_a_response_that_has_arrived_does_not_wait_for_all_that_has_arrived_of_longer_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "_TURN", 0)  # one event per turn
    may_continue, is_over = threading.Event(), threading.Event()
    long_ones_have_arrived, have_arrived = threading.Barrier(5), threading.Barrier(6)
    head = send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n%s: \r\n\r\n" % (b"x" * 20_000))

    requested: list[Peer] = []

    def wait_for_long_ones(peer: Peer) -> None:
        long_ones_have_arrived.wait(60)

    def arrive(peer: Peer) -> None:
        have_arrived.wait(60)

    first, then = [request(), requested.append], [arrive, wait_for(is_over)]
    long = [*first, head, wait_for(may_continue), send(b"x" * 30_000), wait_for_long_ones, *then]
    short = [*first, wait_for_long_ones, send(OK), *then]  # becomes ready last, and so is last in the list of epoll
    with Server(*[long] * 4, short) as server:
        run = _Run(server, [Call("GET", server.url + "/n")] * 5, jobs=5)
        while len(requested) < 5 or run.budget.left > LIMIT - 4 * 60_000:  # a byte of a header counts three times
            run.engine.step(has_more=lambda: False)
        run.engine.step(has_more=lambda: False)  # leaves nothing in that list
        left = run.budget.left
        may_continue.set()
        have_arrived.wait(60)
        while not run.results:
            run.engine.step(has_more=lambda: False)
        received = left - run.budget.left
        run.engine.close()
        is_over.set()

    assert received <= 30_000  # from one of them


def test_a_response_over_tls_does_not_wait_for_all_of_a_record_of_each_longer_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engine, "_TURN", 0)  # one event per turn
    monkeypatch.setattr(engine, "_MAX_HANDICAP", 0)
    monkeypatch.setattr(exchanges, "_QUICK", 0)
    ca, tls, bundle = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), str(tmp_path / "ca.pem")
    ca.issue_cert("127.0.0.1").configure_cert(tls)
    ca.cert_pem.write_to_path(bundle)
    tls.num_tickets = 0  # they would be events
    requested: list[Peer] = []
    may_arrive, is_over = threading.Event(), threading.Event()
    long_ones_have_arrived, have_arrived = threading.Barrier(5), threading.Barrier(6)

    def wait_for_long_ones(peer: Peer) -> None:
        long_ones_have_arrived.wait(60)

    def arrive(peer: Peer) -> None:
        have_arrived.wait(60)

    first, then = [request(), requested.append, wait_for(may_arrive)], [arrive, wait_for(is_over)]
    long = [*first, send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 40_000), wait_for_long_ones]
    short = [*first, wait_for_long_ones, send(OK)]  # becomes ready last, and so is last in the list of epoll
    with Server(*[[*long, *then]] * 4, [*short, *then], tls=tls) as server:
        run = _Run(server, [Call("GET", server.url + "/n")] * 5, jobs=5, ca_bundle=bundle)
        while len(requested) < 5:
            run.engine.step(has_more=lambda: False)
        may_arrive.set()
        have_arrived.wait(60)
        left = run.budget.left
        while not run.results:
            run.engine.step(has_more=lambda: False)
        received = left - run.budget.left
        run.engine.close()
        is_over.set()

    # a record has 16 KiB: all of one record is read while the process is not late yet
    assert received <= 16 * 1024 + 4 * 3 * 1024


def test_less_of_all_responses_is_read_at_once_after_a_slow_block_and_more_after_quick_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "_TURN", 0)  # one event per turn
    monkeypatch.setattr(exchanges, "BLOCK", 8 * 1024)
    monkeypatch.setattr(exchanges, "_QUICK", 0)
    may_continue, is_over, have_arrived = threading.Event(), threading.Event(), threading.Barrier(7)

    def arrive(peer: Peer) -> None:
        have_arrived.wait(60)

    head = send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    long = [request(), head, wait_for(may_continue), send(b"x" * 20_000), arrive, wait_for(is_over)]
    with Server(*[long] * 6) as server:
        run = _Run(server, [Call("GET", server.url + "/n")] * 6, jobs=6)
        while run.budget.left > LIMIT - 6 * 250:  # bytes of each header
            run.engine.step(has_more=lambda: False)
        run.engine.step(has_more=lambda: False)  # after it, the process is not late
        may_continue.set()
        have_arrived.wait(60)
        sizes = []
        for is_quick in (True, True, True, False, False, False):
            monkeypatch.setattr(exchanges, "_QUICK", 99 if is_quick else 0)
            monkeypatch.setattr(exchanges, "_SLOW", 99 if is_quick else 0)
            left = run.budget.left
            run.engine.step(has_more=lambda: False)
            sizes.append(left - run.budget.left)
        run.engine.close()
        is_over.set()

    assert sizes == [20_000, 2048, 8192, 8192, 2048, 2048]


def test_a_block_that_is_slow_among_many_quick_ones_has_no_lasting_effect() -> None:
    """Another process may have run meanwhile."""
    size = BlockSize()
    sizes = []
    for turn in ([0.0001] * 9, [0.001] * 9, [0.0001] * 9, [0.0001] * 99 + [0.01], [0.0001] * 9, [0.01] * 3):
        for seconds in turn:
            size.took(seconds)
        size.end_turn()
        sizes.append(size.bytes // 1024)

    assert sizes == [8, 8, 32, 32, 64, 2]


def test_a_response_that_others_overtook_does_not_wait_for_those_that_arrive_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a response in two parts, the second one is processed although complete responses arrive without a pause."""
    monkeypatch.setattr(engine, "_TURN", 0)  # one event per turn
    monkeypatch.setattr(engine, "_MAX_HANDICAP", 0)
    number = 12
    requested: list[Peer] = []
    is_over = threading.Event()
    may_arrive, has_arrived = ([threading.Event() for _ in range(number)] for _ in range(2))

    def response(index: int, *parts: bytes) -> list[Step]:
        then = [send(parts[-1]), lambda peer: has_arrived[index].set(), wait_for(is_over)]
        return [request(), *map(send, parts[:-1]), requested.append, wait_for(may_arrive[index]), *then]

    in_parts = response(2, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", b"late")
    with Server(in_parts, *(response(index, OK) for index in range(number) if index != 2)) as server:
        run = _Run(server, [Call("GET", server.url + "/n")] * number, jobs=number)
        while len(requested) < number or run.budget.left == LIMIT - 10 * number:  # the first part takes memory
            run.engine.step(has_more=lambda: False)
        for index in range(number):
            may_arrive[index].set()
            assert has_arrived[index].wait(20)
            if index > 0:  # one more response has arrived than has been processed
                run.engine.step(has_more=lambda: False)
        run.engine.close()
        is_over.set()

    responses = [outcome.response for _, outcome in run.results if isinstance(outcome, FinalResponse)]
    assert len(responses) == number - 1
    assert [each.body for each in responses[:4]].count(b"late") == 1


def test_a_transient_failure_is_retried_while_others_go_on(api: Api) -> None:
    failures = iter([Reply(status=503)])
    second = Reply(between=lambda: wait_until(lambda: run.results, "the other one has ended", timeout=20))
    api.response = lambda received: next(failures, second) if received.path == "/flaky" else Reply()
    with _engine(api, "/flaky", "/other", retries=1) as run:
        run.finish()

        assert [number for number, _ in run.results] == [2, 1]
        assert run.statuses == {1: 200, 2: 200}
        assert len(run.notes) == 1


def test_a_redirect_is_followed_in_the_same_slot(api: Api) -> None:
    api.response = lambda received: (
        Reply(status=302, headers=(("Location", "/there"),)) if received.path == "/here" else Reply()
    )
    with _engine(api, "/here", jobs=1) as run:
        run.finish()

        assert run.statuses == {1: 200}
    assert [received.path for received in api.requests] == ["/here", "/there"]


def test_a_server_that_does_not_respond_ends_only_its_own_request(api: Api) -> None:
    ended = threading.Event()
    api.response = lambda received: Reply(between=lambda: ended.wait(20)) if received.path == "/slow" else Reply()
    with _engine(api, "/slow", "/quick", timeout=2) as run:
        run.finish()
        ended.set()

        assert run.statuses == {1: TimeoutExpired.__name__, 2: 200}


def test_a_stopped_engine_ends_what_is_in_flight_and_begins_nothing(api: Api) -> None:
    with _engine(api, *["/200"] * 20, jobs=2) as run:
        run.finish(stop=lambda: bool(run.results))

        assert 1 <= len(run.results) < 20
        assert len(run.results) == len(api.requests)


def test_a_cancelled_engine_gives_each_request_in_flight_the_error(api: Api) -> None:
    ended = threading.Event()
    api.response = lambda received: Reply(between=lambda: ended.wait(20))
    with _engine(api, "/a", "/b", jobs=2) as run:
        while len(api.requests) < 2:
            run.engine.step(has_more=lambda: True)
        run.engine.cancel(NetworkError("stopped"))
        ended.set()

        assert (run.statuses, run.engine.in_flight) == ({1: "NetworkError", 2: "NetworkError"}, 0)


def test_a_full_budget_admits_one_request_at_a_time(api: Api) -> None:
    with _engine(api, *["/200"] * 5, budget=MemoryBudget(1)) as run:
        run.finish()

        assert run.statuses == dict.fromkeys(range(1, 6), 200)
    assert api.most_under_way == 1


def test_an_unreachable_server_is_the_result_of_each_request() -> None:
    with Api(open_to_all=True) as gone:
        pass
    with _engine(gone, "/a", "/b") as run:
        run.finish()

        assert run.statuses == {1: "NetworkError", 2: "NetworkError"}

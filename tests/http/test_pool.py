"""A pool of connections, driven directly over pairs of sockets."""

import socket
from collections.abc import Iterator

import pytest

from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.pool import GRACE_PERIOD, KEEP_ALIVE_TIMEOUT, ConnectionPool

ROUTE = Route("http", "api.test", 80)
OTHER = Route("http", "other.test", 80)


class Pair:
    """A connection that has carried one exchange, and its server."""

    def __init__(self, status: int = 200) -> None:
        ours, self.server = socket.socketpair()
        self.connection = Connection(ours, ROUTE)
        self.connection.end_response("GET", status)

    @property
    def is_open(self) -> bool:
        return self.connection.fileno() >= 0


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made = [Pair() for _ in range(3)]
    yield made
    for pair in made:
        pair.server.close()
        pair.connection.close()


def age(pair: Pair, seconds: float) -> None:
    pair.connection.idle_since -= seconds


def test_a_connection_is_kept_for_its_key_only(pairs: list[Pair]) -> None:
    pool: ConnectionPool[Route] = ConnectionPool()
    assert pool.release(ROUTE, pairs[0].connection)

    assert pool.acquire(OTHER) is None
    assert (len(pool), pool.count(ROUTE)) == (1, 1)
    assert pool.acquire(ROUTE) is pairs[0].connection
    assert (len(pool), pool.count(ROUTE)) == (0, 0)


def test_idle_connections_are_closed_only_while_none_is_in_use(pairs: list[Pair]) -> None:
    pool: ConnectionPool[Route] = ConnectionPool()
    for pair in pairs:
        pool.release(ROUTE, pair.connection)
    used = pool.acquire(ROUTE)
    assert used is not None

    pool.close_unused()
    assert [pair.is_open for pair in pairs] == [True, True, True]

    pool.release(ROUTE, used)
    pool.close_unused()
    assert ([pair.is_open for pair in pairs], len(pool)) == ([False, False, False], 0)


def test_a_pool_that_never_waits_yields_a_connection_after_its_grace_period(pairs: list[Pair]) -> None:
    pool: ConnectionPool[Route] = ConnectionPool(waits=False)
    assert pool.next_grace_end(ROUTE) is None
    pool.release(ROUTE, pairs[0].connection)
    age(pairs[0], -60)  # its grace period does not end while the test is slow

    assert pool.acquire(ROUTE) is None
    assert pool.next_grace_end(ROUTE) == pairs[0].connection.idle_since + GRACE_PERIOD
    age(pairs[0], 60 + GRACE_PERIOD)
    assert pool.acquire(ROUTE) is pairs[0].connection


def test_a_connection_that_the_server_closed_is_closed_and_the_next_one_is_used(pairs: list[Pair]) -> None:
    closed: list[Connection] = []
    pool: ConnectionPool[Route] = ConnectionPool(on_close=closed.append)
    for pair in pairs[:2]:
        pool.release(ROUTE, pair.connection)
        age(pair, GRACE_PERIOD)
    pairs[1].server.close()  # the most recent one, which is chosen first

    assert pool.acquire(ROUTE) is pairs[0].connection
    assert closed == [pairs[1].connection]
    assert [pair.is_open for pair in pairs[:2]] == [True, False]


def test_a_route_with_surplus_bytes_is_never_used_again(pairs: list[Pair]) -> None:
    pool: ConnectionPool[Route] = ConnectionPool()
    pool.release(ROUTE, pairs[0].connection)
    pairs[0].server.send(b"HTTP/1.1 200 OK")

    assert pool.acquire(ROUTE) is None
    assert not pool.release(ROUTE, pairs[1].connection)
    assert [pair.is_open for pair in pairs[:2]] == [False, False]


def test_the_number_of_connections_is_limited(pairs: list[Pair]) -> None:
    pool: ConnectionPool[Route] = ConnectionPool(limit=2)

    assert [pool.release(ROUTE, pair.connection) for pair in pairs] == [True, True, False]
    assert [pair.is_open for pair in pairs] == [True, True, False]


def test_connections_that_were_idle_for_too_long_are_closed(pairs: list[Pair]) -> None:
    pool: ConnectionPool[Route] = ConnectionPool()
    for pair in pairs:
        pool.release(ROUTE, pair.connection)
    age(pairs[1], KEEP_ALIVE_TIMEOUT + 1)
    pool.close_expired()
    pool.remove(ROUTE, pairs[2].connection)

    assert [pair.is_open for pair in pairs] == [True, False, False]
    assert len(pool) == 1


@pytest.mark.parametrize("aborts", [True, False])
def test_a_closed_pool_keeps_nothing_and_aborts_what_is_in_use(pairs: list[Pair], aborts: bool) -> None:
    pool: ConnectionPool[Route] = ConnectionPool()
    pool.add(pairs[0].connection)
    pool.release(ROUTE, pairs[1].connection)
    pool.close(aborts=aborts)

    assert [pair.is_open for pair in pairs[:2]] == [True, False]
    if aborts:
        with pytest.raises(ConnectionAbortedError):
            pairs[0].connection.receive_now()
    else:
        assert pairs[0].connection.receive_now() is None
    assert not pool.release(ROUTE, pairs[0].connection)
    assert not pairs[0].is_open


def test_a_child_process_has_none_of_the_connections(pairs: list[Pair]) -> None:
    pool: ConnectionPool[Route] = ConnectionPool()
    pool.release(ROUTE, pairs[0].connection)
    pool.after_fork()

    assert pool.acquire(ROUTE) is None

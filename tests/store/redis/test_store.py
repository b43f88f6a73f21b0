"""Storage `redis` in a real server: keys, locks, logout markers, and what happens while the server fails."""

import os
import threading
from typing import Any, cast

import pytest

from tests.store.conftest import Open
from tests.support.redis_server import RedisServer
from tests.support.servers import Stopwatch
from tests.support.threads import wait_until
from xapi_cli.errors import StoreError
from xapi_cli.store.login_protocol import LockLost, SharedStore
from xapi_cli.tokens import Identity, Record, Token

ME = Identity("https://api.test", "me@example.com")
RECORD = Record(Token("a-token"), "a-password")
ACCOUNT = f"test:{{{ME.key}}}:account"


@pytest.fixture
def first(opened: Open) -> SharedStore:
    return cast("SharedStore", opened("redis"))


@pytest.fixture
def second(opened: Open) -> SharedStore:
    return cast("SharedStore", opened("redis"))


def _lock(store: SharedStore, *, lifetime: float = 60, force: bool = False) -> bool:
    return store.try_lock(ME, _owner(store), lifetime=lifetime, force=force).is_acquired


def _unlock(store: SharedStore) -> None:
    store.unlock(ME, _owner(store))


def _owner(store: SharedStore) -> str:
    return f"owner-{id(store)}"


def test_one_store_at_a_time_holds_the_lock(first: SharedStore, second: SharedStore) -> None:
    assert _lock(first)
    assert _lock(first)  # a repeated attempt, whose first reply was lost
    assert not _lock(second)
    _unlock(second)  # it does not hold it
    assert not _lock(second)
    _unlock(first)
    assert _lock(second)


def test_a_lock_expires(first: SharedStore, second: SharedStore, shared_redis: RedisServer) -> None:
    assert _lock(first, lifetime=0.05)
    wait_until(lambda: _lock(second))
    with pytest.raises(LockLost):
        first.write_locked(ME, RECORD, "")
    _unlock(first)
    assert second.write_locked(ME, Record(Token("second")), "")
    assert second.read(ME) == Record(Token("second"))


def test_the_lock_lasts_as_long_as_requested(first: SharedStore, shared_redis: RedisServer) -> None:
    assert _lock(first, lifetime=45)

    assert 40_000 < shared_redis.lock_milliseconds(ACCOUNT) <= 45_000
    assert 40_000 < cast("Any", shared_redis.oracle.pttl(ACCOUNT)) <= 45_000  # there is no record


def test_an_explicit_login_takes_the_lock_over(first: SharedStore, second: SharedStore) -> None:
    assert _lock(first)
    assert _lock(second, force=True)
    assert not _lock(first)


def test_a_write_stores_the_token_and_releases_the_lock_in_one_step(
    first: SharedStore, second: SharedStore, shared_redis: RedisServer
) -> None:
    assert _lock(first)
    assert first.write_locked(ME, RECORD, first.logout_marker(ME))

    assert shared_redis.keys() == ["record"]
    assert second.read(ME) == Record(RECORD.token)
    assert b"a-password" not in shared_redis.field(ACCOUNT, "record")


def test_the_version_changes_with_each_record(first: SharedStore, second: SharedStore) -> None:
    versions = [second.try_lock(ME, _owner(second), lifetime=60).version]
    _unlock(second)
    for token in ("one", "two"):
        assert _lock(first)
        assert first.write_locked(ME, Record(Token(token)), None)
        versions.append(first.try_lock(ME, _owner(first), lifetime=60).version)
        _unlock(first)

    assert len(set(versions)) == 3


def test_a_login_that_began_before_a_logout_stores_nothing(first: SharedStore, second: SharedStore) -> None:
    marker = first.logout_marker(ME)
    assert second.delete(ME) is False
    assert _lock(first)
    assert first.write_locked(ME, RECORD, marker) is False
    assert first.read(ME) is None
    assert _lock(second)  # the refused write has released the lock
    assert second.write_locked(ME, RECORD, second.logout_marker(ME)) is True


def test_a_logout_ends_the_lock_of_a_login_in_progress(first: SharedStore, second: SharedStore) -> None:
    marker = first.logout_marker(ME)
    assert _lock(first)
    second.delete(ME)
    assert _lock(second)
    assert first.write_locked(ME, RECORD, marker) is False


@pytest.fixture
def full_redis(redis_server: RedisServer) -> RedisServer:
    """A server without memory left."""
    redis_server.oracle.config_set("maxmemory", "1")
    return redis_server


def test_a_logout_without_memory_stops_logins_in_progress_as_any_other(opened: Open, full_redis: RedisServer) -> None:
    options = {"settings": {"redis_url": full_redis.url, "redis_prefix": "test:"}}
    first, second, waiting = (cast("SharedStore", opened("redis", **options)) for _ in range(3))
    full_redis.oracle.config_set("maxmemory", "0")
    first.write(ME, RECORD)
    before = waiting.logout_marker(ME)
    assert _lock(first)
    full_redis.oracle.config_set("maxmemory", "1")

    assert second.delete(ME) is True
    assert second.delete(ME) is False
    assert full_redis.keys() == ["logout"]
    full_redis.oracle.config_set("maxmemory", "0")
    assert not first.write_locked(ME, RECORD, before)
    assert _lock(waiting)
    assert not waiting.write_locked(ME, RECORD, before)


def test_a_repeated_write_whose_reply_was_lost_is_not_an_error(first: SharedStore) -> None:
    assert _lock(first)
    assert first.write_locked(ME, RECORD, "")
    assert first.write_locked(ME, RECORD, "")


def test_names_of_keys_contain_no_account(first: SharedStore, shared_redis: RedisServer) -> None:
    _lock(first)
    first.write_locked(ME, RECORD, None)
    first.failures.write(ME, "refused", b"{}")
    first.delete(ME)
    first.failures.write(ME, "failed", b"{}")

    keys = [key.decode() for key in cast("Any", shared_redis.oracle.keys("*"))]
    assert keys == [ACCOUNT]


def test_logout_markers_expire(first: SharedStore, shared_redis: RedisServer) -> None:
    first.delete(ME)
    first.failures.write(ME, "failed", b"{}")  # with the marker

    assert 3_500_000 < cast("Any", shared_redis.oracle.pttl(ACCOUNT)) <= 3_600_000


def test_a_failure_of_an_account_without_a_record_expires(first: SharedStore, shared_redis: RedisServer) -> None:
    first.failures.write(ME, "failed", b"{}")

    assert 55_000 < cast("Any", shared_redis.oracle.pttl(ACCOUNT)) <= 60_000


@pytest.mark.parametrize("text", ['{"at": 1.0}', "{}", '{"at": "now"}', "[]", "null", "1", '"x"', "x", "[" * 9999])
def test_a_login_deletes_failures_that_are_not_valid_any_more(
    first: SharedStore, shared_redis: RedisServer, text: str
) -> None:
    shared_redis.execute("HSET", ACCOUNT, "record", "x", "failure:refused", text)
    first.failures.write(ME, "rejected", b'{"at": %.1f}' % first.failures.now())

    assert _lock(first)
    assert shared_redis.keys() == ["expires", "failure:rejected", "owner", "record"]
    assert (first.failures.read(ME, "refused"), first.failures.read(ME, "rejected")) != (None, None)


def test_failures_are_shared_and_removed(first: SharedStore, second: SharedStore) -> None:
    first.failures.write(ME, "failed", b'{"a": 1}')
    assert second.failures.read(ME, "failed") == b'{"a": 1}'
    assert second.failures.read(ME, "refused") is None
    second.failures.remove(ME, ("failed", "refused"))
    assert first.failures.read(ME, "failed") is None


def test_the_clock_of_failures_is_that_of_the_server(first: SharedStore, shared_redis: RedisServer) -> None:
    seconds, _ = cast("Any", shared_redis.oracle.time())

    assert abs(first.failures.now() - seconds) < 5


def test_a_probe_leaves_nothing(first: SharedStore, shared_redis: RedisServer) -> None:
    first.probe()

    assert shared_redis.keys() == []


@pytest.mark.parametrize("text", [b"", b"garbage", b'{"version": 1}', b"x" * 300_000, b"\xff\xfe"])
def test_a_record_that_is_not_valid_is_no_record(first: SharedStore, shared_redis: RedisServer, text: bytes) -> None:
    shared_redis.execute("HSET", ACCOUNT, "record", text)

    assert first.read(ME) is None


def test_threads_share_one_connection(first: SharedStore) -> None:
    assert _lock(first)
    first.write_locked(ME, RECORD, None)
    found: list[Record | None] = []

    def read() -> None:
        found.extend(first.read(ME) for _ in range(50))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [Record(RECORD.token)] * 400


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # of Python 3.12; the child only reads
def test_a_child_process_has_a_connection_of_its_own(first: SharedStore) -> None:
    assert _lock(first)
    first.write_locked(ME, RECORD, None)
    source, sink = os.pipe()
    if (child := os.fork()) == 0:
        found = first.read(ME)
        os.write(sink, b"same" if found == Record(RECORD.token) else b"other")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(sink)
    with open(source, "rb") as pipe:
        assert pipe.read() == b"same"
    assert first.read(ME) == Record(RECORD.token)


def test_a_server_that_restarts_between_two_commands_is_found_again(opened: Open, redis_server: RedisServer) -> None:
    store = opened("redis", settings={"redis_url": redis_server.url, "redis_prefix": "test:"})
    assert store.read(ME) is None
    redis_server.stop()
    restart = threading.Timer(0.3, redis_server.start)
    restart.start()

    assert store.read(ME) is None
    restart.join()


def test_a_server_that_does_not_run_is_an_error_within_three_seconds_and_then_at_once(
    opened: Open, redis_server: RedisServer
) -> None:
    store = opened("redis", settings={"redis_url": redis_server.url, "redis_prefix": "test:"})
    redis_server.stop()
    with Stopwatch() as watch, pytest.raises(StoreError, match="cannot be reached"):
        store.read(ME)
    assert watch.seconds < 4.9  # less than two waits
    with Stopwatch() as watch, pytest.raises(StoreError, match="cannot be reached"):
        store.read(ME)
    assert watch.seconds < 2  # less than one wait for a server that does not run


def test_a_server_that_does_not_reply_is_an_error_within_three_seconds(opened: Open, redis_server: RedisServer) -> None:
    store = opened("redis", settings={"redis_url": redis_server.url, "redis_prefix": "test:"})
    store.read(ME)
    redis_server.freeze()
    with Stopwatch() as watch, pytest.raises(StoreError, match=r"cannot be reached: no reply within [12]"):
        store.read(ME)
    assert watch.seconds < 4.9  # less than two waits
    redis_server.thaw()

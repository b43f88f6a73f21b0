"""The agent's keeper: records, limits and any input."""

import re
import socket
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agent.keeper_clients import KEY, OTHER_KEY, cached, connected, failure, is_closed, number
from tests.support.keeper_process import KeeperProcess
from xapi_cli.agent.keeper import records as held_records
from xapi_cli.agent.keeper import server as keeper
from xapi_cli.errors import StoreError
from xapi_cli.store.agent import messages
from xapi_cli.store.agent.client import KeeperClient, NotRunning
from xapi_cli.store.agent.messages import Request

# records


def test_a_record_is_stored_returned_replaced_and_erased(client: KeeperClient) -> None:
    assert client.get(KEY)[0] is None
    assert client.put(KEY, b"first")
    assert client.put(KEY, b"second record")
    assert client.get(KEY)[0] == b"second record"
    assert client.erase(KEY)
    assert client.get(KEY)[0] is None
    assert not client.erase(KEY)


def test_a_record_with_the_generation_before_an_erasure_is_not_stored(client: KeeperClient) -> None:
    before = client.get(KEY)[1]
    assert client.put(KEY, b"one", expected=before)
    assert client.put(KEY, b"two", expected=before)  # storing does not change it
    client.erase(KEY)

    assert not client.put(KEY, b"three", expected=before)
    assert client.get(KEY)[0] is None
    assert client.put(OTHER_KEY, b"other", expected=client.get(OTHER_KEY)[1])
    assert client.put(KEY, b"four", expected=client.get(KEY)[1])


def test_an_erasure_that_is_long_ago_is_still_detected(client: KeeperClient) -> None:
    before = client.get(KEY)[1]
    client.erase(KEY)
    for key in range(held_records.MAX_ERASED + 1):
        client.erase(number(key))

    assert not client.put(KEY, b"late", expected=before)


def test_a_restarted_keeper_holds_nothing_and_has_other_generations(
    process: KeeperProcess, client: KeeperClient
) -> None:
    client.put(KEY, b"record")
    before = client.get(KEY)[1]
    process.kill()
    with pytest.raises(NotRunning):
        client.get(KEY)
    process.start()

    assert client.get(KEY)[0] is None
    assert not client.put(KEY, b"record", expected=before)


def test_the_list_contains_sizes_and_no_records(process: KeeperProcess, client: KeeperClient) -> None:
    client.put(KEY, b"CANARY" * 10)
    client.put(OTHER_KEY, b"x")

    assert [(each.key, each.size) for each in client.held()] == [(KEY, 60), (OTHER_KEY, 1)]
    with closing(connected(process)) as sock:
        sock.sendall(messages.pack_request(Request(messages.LIST)))
        assert b"CANARY" not in b"".join(iter(lambda: sock.recv(4096), b""))


def test_a_client_that_is_killed_while_it_sends_a_record_leaves_the_old_one(
    process: KeeperProcess, client: KeeperClient
) -> None:
    client.put(KEY, b"old")
    for sent in (messages.REQUEST_SIZE - 1, messages.REQUEST_SIZE, messages.REQUEST_SIZE + 5):
        with closing(connected(process)) as sock:
            sock.sendall((messages.pack_request(Request(messages.PUT, KEY, length=10)) + b"x" * 10)[:sent])
        assert client.get(KEY)[0] == b"old"


# limits


def test_a_record_beyond_the_limit_of_records_is_refused_and_the_others_remain(client: KeeperClient) -> None:
    for key in range(messages.MAX_RECORDS):
        assert client.put(number(key), b"record")

    with pytest.raises(StoreError, match="is full"):
        client.put(KEY, b"one more")
    assert client.put(number(7), b"replaced")
    assert client.erase(number(8))
    assert client.put(KEY, b"one more")
    assert len(client.held()) == messages.MAX_RECORDS


def test_a_new_record_replaces_the_cached_one_that_was_not_used_for_longest(client: KeeperClient) -> None:
    assert client.put(KEY, b"token")
    for key in range(messages.MAX_RECORDS - 1):
        assert client.put(cached(key), b"cached")
    assert client.get(cached(0))[0] == b"cached"

    assert client.put(OTHER_KEY, b"another token")
    assert client.put(cached(1000), b"one more")

    keys = {each.key for each in client.held()}
    assert len(keys) == messages.MAX_RECORDS
    assert {KEY, OTHER_KEY, cached(0), cached(1000)} <= keys
    assert not {cached(1), cached(2)} & keys


def test_cached_records_never_replace_tokens(client: KeeperClient) -> None:
    for key in range(messages.MAX_RECORDS):
        assert client.put(number(key), b"token")

    with pytest.raises(StoreError, match="is full"):
        client.put(cached(0), b"cached")
    assert {each.key for each in client.held()} == {number(key) for key in range(messages.MAX_RECORDS)}


def test_failures_take_no_place_of_a_record_and_are_bounded(process: KeeperProcess, client: KeeperClient) -> None:
    largest = b"x" * messages.MAX_FAILURE
    fitting = held_records.MAX_FAILURE_BYTES // messages.MAX_FAILURE
    for key in range(fitting + 2):
        assert client.put(failure(key), largest)
    for key in range(messages.MAX_RECORDS):
        assert client.put(number(key), b"token")

    assert [client.get(failure(key))[0] for key in range(3)] == [None, None, largest]
    assert client.put(failure(2), b"changed")
    assert (client.get(failure(2))[0], client.erase(failure(2)), client.get(failure(2))[0]) == (b"changed", True, None)
    assert len(client.held()) == messages.MAX_RECORDS
    with closing(connected(process)) as sock:
        header = bytearray(messages.pack_request(Request(messages.PUT, failure(0), length=messages.MAX_FAILURE)))
        header[-4:] = (messages.MAX_FAILURE + 1).to_bytes(4, "big")
        sock.sendall(header)
        assert messages.parse_response(sock.recv(messages.RESPONSE_SIZE)).status == messages.INVALID


def test_a_failure_is_held_for_a_minute() -> None:
    failures = held_records.HeldFailures()
    assert failures.seconds_left(1000.0) is None
    failures.put(failure(1), b"one", 1000.0)
    failures.put(failure(2), b"two", 1010.0)
    assert failures.seconds_left(1015.0) == 45.0

    failures.put(failure(1), b"again", 1020.0)
    assert (failures.get(failure(1), 1059.9), failures.get(failure(2), 1059.9)) == (b"again", b"two")
    assert (failures.get(failure(2), 1070.0), failures.seconds_left(1070.0)) == (None, 10.0)
    assert (failures.seconds_left(1080.0), failures.erase(failure(1))) == (None, False)


def test_more_failures_than_the_limit_drop_the_oldest() -> None:
    failures = held_records.HeldFailures()
    for key in range(held_records.MAX_FAILURES + 1):
        failures.put(failure(key), b"{}", 1000.0)

    assert failures.get(failure(0), 1000.0) is None
    assert failures.get(failure(1), 1000.0) == b"{}"


def test_the_clock_is_the_same_for_all_clients(process: KeeperProcess, client: KeeperClient) -> None:
    before = time.monotonic()
    assert before <= client.time() <= time.monotonic()


def test_the_largest_records_in_all_places_need_bounded_memory(process: KeeperProcess, client: KeeperClient) -> None:
    record = bytes(range(256)) * (messages.MAX_BODY // 256)
    for _ in range(2):
        for key in range(messages.MAX_RECORDS):
            client.put(number(key), record)

    assert client.get(number(5))[0] == record
    status = Path(f"/proc/{process.pid}/status").read_text()
    peak = int(re.findall(r"VmHWM:\s+(\d+)", status)[0])
    assert peak < 160 * 1024  # KiB: 65 MiB of records, and the interpreter


def test_a_longer_record_is_refused_before_it_is_received(process: KeeperProcess) -> None:
    with closing(connected(process)) as sock:
        header = bytearray(messages.pack_request(Request(messages.PUT, KEY, length=messages.MAX_BODY)))
        header[-4:] = (messages.MAX_BODY + 1).to_bytes(4, "big")
        sock.sendall(header)
        assert messages.parse_response(sock.recv(messages.RESPONSE_SIZE)).status == messages.INVALID
        assert is_closed(sock)


def test_incomplete_bodies_beyond_the_limit_drop_the_oldest(process: KeeperProcess, client: KeeperClient) -> None:
    fitting = keeper.MAX_RECEIVING // messages.MAX_BODY
    with ExitStack() as stack:
        slow = [stack.enter_context(closing(connected(process))) for _ in range(fitting + 2)]
        for key, sock in enumerate(slow):
            sock.sendall(messages.pack_request(Request(messages.PUT, number(key), length=messages.MAX_BODY)) + b"x")
        assert [is_closed(sock) for sock in slow[:2]] == [True, True]
        assert client.put(KEY, b"r" * messages.MAX_BODY)
        assert client.get(KEY)[0] == b"r" * messages.MAX_BODY


def test_more_connections_than_the_limit_do_not_block_a_client(process: KeeperProcess, client: KeeperClient) -> None:
    client.put(KEY, b"record")
    with ExitStack() as stack:
        silent = [stack.enter_context(closing(connected(process))) for _ in range(keeper.MAX_CONNECTIONS + 50)]
        assert client.get(KEY)[0] == b"record"
        assert [is_closed(sock) for sock in silent[:50]] == [True] * 50


@pytest.mark.slow
def test_a_client_that_never_completes_its_request_is_disconnected(process: KeeperProcess) -> None:
    with closing(connected(process)) as silent, closing(connected(process)) as slow:
        slow.sendall(messages.pack_request(Request(messages.PUT, KEY, length=10)) + b"12345")
        assert is_closed(silent)
        assert is_closed(slow)


def test_clients_that_do_not_receive_their_response_delay_no_other(
    process: KeeperProcess, client: KeeperClient
) -> None:
    record = b"r" * messages.MAX_BODY
    client.put(KEY, record)
    with ExitStack() as stack:
        for _ in range(100):
            sock = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(str(process.path))
            sock.sendall(messages.pack_request(Request(messages.GET, KEY)))
        assert client.get(KEY)[0] == record
        assert client.erase(KEY)  # while it is being sent
        assert client.get(KEY)[0] is None


def test_a_response_in_progress_is_complete_although_the_record_is_erased(
    process: KeeperProcess, client: KeeperClient
) -> None:
    record = b"r" * messages.MAX_BODY
    client.put(KEY, record)
    with closing(connected(process)) as sock:
        sock.sendall(messages.pack_request(Request(messages.GET, KEY)))
        first = sock.recv(messages.RESPONSE_SIZE)
        client.erase(KEY)
        rest = b"".join(iter(lambda: sock.recv(65536), b""))
    assert messages.parse_response(first).length == len(record)
    assert rest == record


# fuzzing


_HEADERS = st.builds(
    lambda operation, key, generation, length: messages.pack_request(Request(operation, key, generation, length)),
    st.sampled_from(sorted([messages.GET, messages.PUT, messages.ERASE, messages.LIST, messages.TIME, messages.LOCK]))
    | st.binary(min_size=1, max_size=1).filter(lambda operation: operation != messages.STOP),
    st.sampled_from([KEY, OTHER_KEY, cached(1), failure(1), bytes(33)]) | st.binary(min_size=33, max_size=33),
    st.binary(min_size=16, max_size=16) | st.just(messages.ANY),
    st.sampled_from([0, 1, 10, messages.MAX_BODY, 2**32 - 1]) | st.integers(0, 2**32 - 1),
)
_INPUTS = st.lists(_HEADERS | st.binary(max_size=200), max_size=4).map(b"".join)


@settings(max_examples=max(300, settings().max_examples), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_INPUTS)
@pytest.mark.slow
def test_any_input_leaves_it_running_with_a_record_intact(
    process: KeeperProcess, client: KeeperClient, data: bytes
) -> None:
    kept = number(1)
    client.put(kept, b"kept")
    with closing(connected(process)) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        try:
            received = b"".join(iter(lambda: sock.recv(65536), b""))
        except ConnectionResetError:
            received = b""
    if received:
        messages.parse_response(received[: messages.RESPONSE_SIZE])
    assert client.get(kept)[0] == b"kept"
    assert process.exit_code is None


def test_requests_as_bytes_are_the_requests_that_were_packed() -> None:
    for operation, length in ((messages.GET, 0), (messages.PUT, 10), (messages.ERASE, 0), (messages.LOCK, 0)):
        request = Request(operation, KEY, bytes(range(16)), length)
        assert messages.parse_request(messages.pack_request(request)) == request


@settings(max_examples=max(300, settings().max_examples))
@given(st.binary(max_size=messages.REQUEST_SIZE + 5) | _HEADERS)
def test_a_header_is_valid_or_malformed(data: bytes) -> None:
    for parse in (messages.parse_request, messages.parse_response, messages.parse_held, messages.parse_time):
        try:
            parse(data)
        except messages.Malformed:
            pass

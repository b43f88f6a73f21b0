"""Locks of the agent's keeper."""

from contextlib import ExitStack, closing

import pytest

from tests.agent.keeper_clients import KEY, OTHER_KEY, connected, is_served
from tests.support.keeper_process import KeeperProcess
from xapi_cli.agent.keeper import server as keeper
from xapi_cli.errors import StoreError
from xapi_cli.store.agent import messages
from xapi_cli.store.agent.client import KeeperClient
from xapi_cli.store.agent.messages import Request
from xapi_cli.system.lock import LockTimeout


def test_a_lock_is_exclusive_and_released_with_its_connection(client: KeeperClient) -> None:
    with client.locked(KEY, 20):
        with pytest.raises(LockTimeout), client.locked(KEY, 0.1):
            raise AssertionError("two holders")
        with client.locked(OTHER_KEY, 20):
            pass
    with client.locked(KEY, 20):
        pass


def test_waiting_clients_get_the_lock_in_order_of_arrival_even_if_one_has_gone(process: KeeperProcess) -> None:
    request = messages.pack_request(Request(messages.LOCK, KEY))
    with ExitStack() as stack:
        holder, gone, first, second = (stack.enter_context(closing(connected(process))) for _ in range(4))
        holder.sendall(request)
        assert messages.parse_response(holder.recv(messages.RESPONSE_SIZE)).status == messages.OK
        for sock in (gone, first, second):
            sock.sendall(request)
            is_served(process)
        gone.close()
        holder.close()
        assert messages.parse_response(first.recv(messages.RESPONSE_SIZE)).status == messages.OK
        second.setblocking(False)
        with pytest.raises(BlockingIOError):
            second.recv(1)
        second.settimeout(20)
        first.close()
        assert messages.parse_response(second.recv(messages.RESPONSE_SIZE)).status == messages.OK


def test_waiting_for_locks_leaves_space_for_other_clients(process: KeeperProcess, client: KeeperClient) -> None:
    request = messages.pack_request(Request(messages.LOCK, KEY))
    with ExitStack() as stack:
        for _ in range(keeper.MAX_CONNECTIONS // 2):
            stack.enter_context(closing(connected(process))).sendall(request)
        is_served(process)
        with pytest.raises(StoreError, match="too many processes wait"), client.locked(KEY, 20):
            raise AssertionError("the lock is held")
        assert client.put(KEY, b"record")

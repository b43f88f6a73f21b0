"""Storage `agent`: without a keeper, with one that hangs or is of another version, and during a logout."""

import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.conftest import Open
from tests.support.keeper_process import KeeperProcess
from tests.support.servers import Stopwatch
from xapi_cli.errors import StoreError
from xapi_cli.store.agent import messages
from xapi_cli.store.agent.client import KeeperClient, NotRunning
from xapi_cli.store.login_protocol import LockingStore
from xapi_cli.store.login_session import open_session
from xapi_cli.store.protocol import LoggedOut, StoreOptions
from xapi_cli.store.repository import TokenRepository
from xapi_cli.system.lock import LockTimeout
from xapi_cli.system.private_files import StateDirectory
from xapi_cli.tokens import Identity, Record, Token

ME = Identity("https://api.test", "me@example.com")
RECORD = Record(Token("token"), "password")
ABSENT = messages.pack_response(messages.Response(messages.ABSENT))


def agent(opened: Open, timeout: float = 20) -> LockingStore:
    return cast("LockingStore", opened("agent", timeout=timeout))


def test_without_a_keeper_there_is_no_record_and_none_can_be_written(opened: Open) -> None:
    store = agent(opened)

    assert store.read(ME) is None
    assert store.delete(ME) is False
    for action in (store.probe, lambda: store.begin(ME), lambda: store.write(ME, RECORD)):
        with pytest.raises(NotRunning) as caught:
            action()
        assert str(caught.value) == "no agent is running; run `xapi agent start`"


def test_after_the_keeper_has_ended_there_is_no_record(opened: Open, keeper: KeeperProcess) -> None:
    store = agent(opened)
    store.write(ME, RECORD)
    keeper.kill()

    assert store.read(ME) is None
    assert keeper.path.exists()  # its socket


def test_a_killed_keeper_is_replaced(opened: Open, keeper: KeeperProcess) -> None:
    store = agent(opened)
    store.write(ME, RECORD)
    keeper.kill()
    keeper.start()

    assert store.read(ME) is None
    store.write(ME, RECORD)
    assert store.read(ME) == RECORD


def test_a_keeper_that_does_not_respond_is_an_error_in_time(opened: Open, keeper: KeeperProcess) -> None:
    agent(opened).write(ME, RECORD)
    store = agent(opened, timeout=0.5)
    keeper.signal(signal.SIGSTOP)
    actions = (lambda: store.read(ME), lambda: store.write(ME, RECORD), lambda: store.delete(ME), store.probe)
    for action in actions:
        with Stopwatch() as watch, pytest.raises(StoreError, match=r"the agent did not respond within 0\.5 s"):
            action()
        assert watch.seconds < 10
    keeper.signal(signal.SIGCONT)
    assert agent(opened).read(ME) == RECORD


def test_a_full_queue_is_awaited_and_is_not_taken_for_an_absent_agent(opened: Open, keeper: KeeperProcess) -> None:
    agent(opened).write(ME, RECORD)
    keeper.signal(signal.SIGSTOP)
    waiting = []
    while True:
        sock = socket.socket(socket.AF_UNIX)
        waiting.append(sock)
        sock.setblocking(False)
        try:
            sock.connect(str(keeper.path))
        except BlockingIOError:
            break
    with pytest.raises(StoreError, match="did not respond"):
        agent(opened, timeout=0.2).read(ME)
    for sock in waiting:
        sock.close()
    keeper.signal(signal.SIGCONT)
    assert agent(opened).read(ME) == RECORD


def test_a_login_that_began_before_a_logout_stores_nothing(opened: Open, keeper: KeeperProcess) -> None:
    login, logout = agent(opened), agent(opened)
    login.begin(ME)
    assert logout.delete(ME) is False  # nothing was stored yet

    with pytest.raises(LoggedOut):
        login.write(ME, RECORD)
    assert login.read(ME) is None
    login.begin(ME)
    login.write(ME, RECORD)
    assert logout.read(ME) == RECORD


def test_a_login_that_could_not_notice_a_logout_stores_nothing(keeper: KeeperProcess) -> None:
    environ = {**os.environ, **keeper.environ}
    repository = TokenRepository(
        ME,
        "agent",
        StoreOptions(StateDirectory(Path("/dev/null/state")), environ, lambda text: None),
    )
    login = open_session(repository, limit=5)
    keeper.kill()
    login.begin()
    with login.locked(1):
        keeper.start()  # from here on, the account can be logged out without a trace

    with pytest.raises(StoreError, match="a logout during the login would not have been noticed"):
        login.write(RECORD)
    assert repository.read(again=True) is None
    login.begin()
    assert login.write(RECORD)
    assert repository.read(again=True) == RECORD


def test_a_lock_excludes_another_store_until_it_is_released(opened: Open, keeper: KeeperProcess) -> None:
    first, second = agent(opened), agent(opened)
    with first.locked(ME, 20), pytest.raises(LockTimeout), second.locked(ME, 0.1):
        raise AssertionError("two holders")
    with second.locked(ME, 20):
        pass


def test_a_killed_holder_releases_the_lock(opened: Open, keeper: KeeperProcess) -> None:
    store = agent(opened)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with store.locked(ME, 20):
                os.write(write_end, b"locked")
                signal.pause()
        finally:
            os._exit(1)
    os.close(write_end)
    assert os.read(read_end, 10) == b"locked"
    os.close(read_end)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

    with store.locked(ME, 20):
        pass


def test_failures_are_shared_and_removed_and_their_clock_is_that_of_the_keeper(
    opened: Open, keeper: KeeperProcess
) -> None:
    first, second = agent(opened).failures, agent(opened).failures
    assert first is not None
    assert second is not None
    first.write(ME, "failed", b'{"a": 1}')

    assert second.read(ME, "failed") == b'{"a": 1}'
    assert second.read(ME, "refused") is None
    second.remove(ME, ("failed", "refused"))
    assert first.read(ME, "failed") is None
    assert abs(first.now() - KeeperClient(keeper.environ, 20).time()) < 5
    first.write(ME, "failed", b"x" * (messages.MAX_FAILURE + 1))
    assert first.read(ME, "failed") is None


def test_failures_end_with_the_keeper_and_are_an_error_if_it_does_not_respond(
    opened: Open, keeper: KeeperProcess
) -> None:
    store = agent(opened)
    failures = store.failures
    assert failures is not None
    store._client._timeout = 0.5  # type: ignore[attr-defined]  # noqa: SLF001 - not before: the keeper may be slow
    keeper.signal(signal.SIGSTOP)
    failures.write(ME, "failed", b"{}")
    failures.remove(ME, ("failed",))
    for action in (lambda: failures.read(ME, "failed"), lambda: store.failures):
        with pytest.raises(StoreError, match="did not respond"):
            action()
    keeper.kill()

    assert (failures.read(ME, "failed"), store.failures) == (None, None)


# a listener other than a keeper of this version


@contextmanager
def responding(path: Path, *responses: bytes) -> Iterator[None]:
    """Respond to any requests at *path* with *responses*, one after another, then always with the last one."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.unlink(missing_ok=True)
    remaining = list(responses)

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock, suppress(OSError):
                sock.recv(messages.REQUEST_SIZE)
                sock.sendall(remaining.pop(0) if len(remaining) > 1 else remaining[0])

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    "response",
    [
        messages.pack_response(messages.Response(messages.INVALID)),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        ABSENT[:4] + b"Z" + ABSENT[5:],
        ABSENT[:-4] + struct.pack("!I", messages.MAX_BODY + 1),
    ],
)
def test_another_version_of_the_agent_is_an_error(opened: Open, tmp_path: Path, response: bytes) -> None:
    store = agent(opened)
    with responding(tmp_path / "run" / "xapi" / "keeper", response), pytest.raises(StoreError) as caught:
        store.read(ME)
    assert str(caught.value) == ("the agent runs another version of xapi; run `xapi agent stop`, then `xapi login`")


def test_a_request_whose_connection_is_dropped_is_sent_again(opened: Open, tmp_path: Path) -> None:
    with responding(tmp_path / "run" / "xapi" / "keeper", b"", ABSENT[:10], ABSENT):
        assert agent(opened).read(ME) is None
    with responding(tmp_path / "run" / "xapi" / "keeper", b""), pytest.raises(StoreError, match="did not respond"):
        agent(opened, timeout=0.1).read(ME)


_HEADERS = st.builds(
    lambda *fields: messages.pack_response(messages.Response(*fields)),
    st.sampled_from([messages.OK, messages.ABSENT, messages.FULL]),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 99),
)


@settings(max_examples=max(200, settings().max_examples), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200) | st.tuples(_HEADERS, st.binary(max_size=100)).map(b"".join))
def test_any_response_is_a_record_or_a_list_or_an_error(opened: Open, tmp_path: Path, response: bytes) -> None:
    client = KeeperClient({"XDG_RUNTIME_DIR": str(tmp_path / "run")}, timeout=0.005)
    actions: list[Callable[[], object]] = [lambda: agent(opened, timeout=0.005).read(ME), client.held, client.time]
    with responding(tmp_path / "run" / "xapi" / "keeper", response):
        for action in actions:
            try:
                assert isinstance(action(), Record | list | float | None)
            except StoreError:
                pass

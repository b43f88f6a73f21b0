import os
import socket
import stat
from pathlib import Path

import pytest

from tests.support.ownership import give_away, needs_root
from tests.support.servers import Stopwatch
from xapi_cli.agent import listener
from xapi_cli.errors import UsageError
from xapi_cli.system import agent_socket
from xapi_cli.system.private_files import Unsafe


def listen(path: Path) -> socket.socket:
    """Return a socket that listens at *path*."""
    listeners = listener.Listeners(path.parent, [path.name])
    listeners.publish()
    return listeners.sockets[path.name]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runtime" / "xapi" / "agent"


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_this_user_can_reach_the_socket(path: Path) -> None:
    previous = os.umask(0)
    try:
        with listen(path) as listening:
            assert (_mode(path.parent), _mode(path)) == (0o700, 0o600)
            assert not listening.getblocking()
            connection = agent_socket.connect(str(path))
            assert connection is not None
            connection.close()
    finally:
        os.umask(previous)


def test_a_socket_that_a_killed_agent_left_is_replaced(path: Path) -> None:
    listen(path).close()
    (path.parent / ".agent.0123456789abcdef.new").touch()
    (path.parent / ".warm-up.0123456789abcdef.new" / "xapi").mkdir(parents=True)
    assert agent_socket.connect(str(path)) is None

    with listen(path):
        connection = agent_socket.connect(str(path))
        assert connection is not None
        connection.close()
    assert [file.name for file in path.parent.iterdir()] == ["agent"]


def test_the_path_may_have_the_maximum_length(tmp_path: Path) -> None:
    directory = tmp_path / ("x" * (107 - len(str(tmp_path)) - len("//agent")))

    with listen(directory / "agent"):
        connection = agent_socket.connect(str(directory / "agent"))
        assert connection is not None
        connection.close()


def test_a_file_that_is_not_a_socket_is_kept(path: Path) -> None:
    path.parent.mkdir(parents=True, mode=0o700)
    path.write_text("precious")

    with pytest.raises(UsageError, match=f"{path} is not a socket"):
        listen(path)
    assert path.read_text() == "precious"


@needs_root
def test_a_socket_of_another_user_is_kept(path: Path) -> None:
    path.parent.mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as planted:
        planted.bind(str(path))
        give_away(path)

        with pytest.raises(UsageError, match=f"{path} belongs to another user"):
            listen(path)
    assert path.is_socket()


@needs_root
def test_a_directory_of_another_user_is_refused(path: Path) -> None:
    path.parent.mkdir(parents=True, mode=0o700)
    give_away(path.parent)

    with pytest.raises(Unsafe, match="belongs to another user"):
        listener.lock(path.parent)
    with pytest.raises(Unsafe, match="belongs to another user"):
        listen(path)
    assert list(path.parent.iterdir()) == []


def test_a_directory_that_everyone_can_write_to_is_refused(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o777)

    with pytest.raises(Unsafe, match="everyone can write"):
        listen(path)


def test_one_agent_holds_the_lock(path: Path) -> None:
    held = listener.lock(path.parent)
    with pytest.raises(listener.AlreadyRunning):
        listener.lock(path.parent)
    assert listener.holder(path.parent) == (os.getpid(), "starting")
    held.note(listener.READY)
    assert listener.holder(path.parent) == (os.getpid(), "ready")
    held.close()
    assert listener.holder(path.parent) is None

    listener.lock(path.parent).close()
    assert _mode(path.parent / "lock") == 0o600


def test_a_lock_is_awaited_until_the_other_agent_is_ready_or_has_ended(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = listener.lock(path.parent)
    monkeypatch.setattr("xapi_cli.agent.listener.time.sleep", lambda _: held.close())
    listener.lock(path.parent, timeout=60).close()

    held = listener.lock(path.parent)
    listeners = listener.Listeners(path.parent, ["agent", "control"])
    monkeypatch.setattr("xapi_cli.agent.listener.time.sleep", lambda _: listeners.publish())
    with Stopwatch() as watch, pytest.raises(listener.AlreadyRunning):
        listener.lock(path.parent, timeout=60)
    assert watch.seconds < 30
    held.close()


def test_a_removed_socket_has_no_listener(path: Path) -> None:
    listeners = listener.Listeners(path.parent, [path.name])
    assert (listeners.are_reachable(), agent_socket.connect(str(path))) == (True, None)
    listeners.publish()
    assert listeners.are_reachable()
    for _ in range(2):
        listeners.remove()

    assert (listeners.are_reachable(), list(path.parent.iterdir())) == (False, [])


def test_sockets_of_another_agent_are_not_removed(path: Path) -> None:
    first = listener.Listeners(path.parent, [path.name])
    first.publish()
    with listen(path):
        first.remove()

        assert not first.are_reachable()
        connection = agent_socket.connect(str(path))
        assert connection is not None
        connection.close()

import os
import socket
import stat
from contextlib import closing
from pathlib import Path

import pytest

from tests.ownership import give_away, needs_root
from xapi_cli.agent import listener
from xapi_cli.errors import UsageError
from xapi_cli.system import agent_socket
from xapi_cli.system.private_files import Unsafe


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runtime" / "xapi" / "agent"


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_this_user_can_reach_the_socket(path: Path) -> None:
    previous = os.umask(0)
    try:
        with listener.listen(str(path)) as listening:
            assert (_mode(path.parent), _mode(path)) == (0o700, 0o600)
            assert not listening.getblocking()
            connection = agent_socket.connect(str(path))
            assert connection is not None
            connection.close()
    finally:
        os.umask(previous)


def test_a_socket_that_a_killed_agent_left_is_replaced(path: Path) -> None:
    listener.listen(str(path)).close()
    (path.parent / ".agent.0123456789abcdef.new").touch()
    assert agent_socket.connect(str(path)) is None

    with listener.listen(str(path)):
        connection = agent_socket.connect(str(path))
        assert connection is not None
        connection.close()
    assert [file.name for file in path.parent.iterdir()] == ["agent"]


def test_the_path_may_have_the_maximum_length(tmp_path: Path) -> None:
    directory = tmp_path / ("x" * (107 - len(str(tmp_path)) - len("//agent")))

    with listener.listen(str(directory / "agent")):
        connection = agent_socket.connect(str(directory / "agent"))
        assert connection is not None
        connection.close()


def test_a_file_that_is_not_a_socket_is_kept(path: Path) -> None:
    path.parent.mkdir(parents=True, mode=0o700)
    path.write_text("precious")

    with pytest.raises(UsageError, match=f"{path} is not a socket"):
        listener.listen(str(path))
    assert path.read_text() == "precious"


@needs_root
def test_a_socket_of_another_user_is_kept(path: Path) -> None:
    path.parent.mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as planted:
        planted.bind(str(path))
        give_away(path)

        with pytest.raises(UsageError, match=f"{path} belongs to another user"):
            listener.listen(str(path))
    assert path.is_socket()


@needs_root
def test_a_directory_of_another_user_is_refused(path: Path) -> None:
    path.parent.mkdir(parents=True, mode=0o700)
    give_away(path.parent)

    with pytest.raises(Unsafe, match="belongs to another user"):
        listener.lock(path.parent)
    with pytest.raises(Unsafe, match="belongs to another user"):
        listener.listen(str(path))
    assert list(path.parent.iterdir()) == []


def test_a_directory_that_everyone_can_write_to_is_refused(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o777)

    with pytest.raises(Unsafe, match="everyone can write"):
        listener.listen(str(path))


def test_one_agent_holds_the_lock(path: Path) -> None:
    held = listener.lock(path.parent)
    with pytest.raises(listener.AlreadyRunning):
        listener.lock(path.parent)
    os.close(held)

    os.close(listener.lock(path.parent))
    assert _mode(path.parent / "lock") == 0o600


def test_a_removed_socket_has_no_listener(path: Path) -> None:
    with closing(listener.listen(str(path))):
        listener.remove(str(path))
        listener.remove(str(path))

    assert agent_socket.connect(str(path)) is None

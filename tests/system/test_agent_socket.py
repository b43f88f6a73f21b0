import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ownership import OTHER_USER, give_away, needs_root
from xapi_cli.system import agent_socket
from xapi_cli.system.private_files import state_directory


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket that listens at tmp_path / "socket"."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.listen(0)
        yield listening


def _private(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


def test_the_socket_is_in_the_private_runtime_directory(tmp_path: Path) -> None:
    runtime = _private(tmp_path / "runtime")

    found = agent_socket.path({"XDG_RUNTIME_DIR": str(runtime), "HOME": str(tmp_path)}, "agent")

    assert found == str(runtime / "xapi" / "agent")


@pytest.mark.parametrize("unusable", ["", "relative", "/nonexistent", "/etc/passwd", "/", "nul\0"])
def test_an_unusable_runtime_directory_is_ignored(tmp_path: Path, unusable: str) -> None:
    environ = {"XDG_RUNTIME_DIR": unusable, "HOME": str(tmp_path)}

    assert agent_socket.path(environ, "keeper") == str(tmp_path / ".local/state/xapi/agent/keeper")


def test_a_runtime_directory_that_others_can_list_is_ignored(tmp_path: Path) -> None:
    runtime = _private(tmp_path / "runtime")
    runtime.chmod(0o750)

    assert agent_socket.path({"XDG_RUNTIME_DIR": str(runtime)}, "agent") is None


@needs_root
def test_a_runtime_directory_of_another_user_is_ignored(tmp_path: Path) -> None:
    runtime = _private(tmp_path / "runtime")
    give_away(runtime)

    environ = {"XDG_RUNTIME_DIR": str(runtime), "HOME": str(tmp_path)}
    assert agent_socket.path(environ, "agent") == str(tmp_path / ".local/state/xapi/agent/agent")


@pytest.mark.parametrize(
    "environ",
    [
        {"XAPI_STATE_DIR": "/chosen", "XDG_STATE_HOME": "/state", "HOME": "/home/me"},
        {"XAPI_STATE_DIR": "", "XDG_STATE_HOME": "/state", "HOME": "/home/me"},
        {"XDG_STATE_HOME": "relative", "HOME": "/home/me"},
        {"HOME": "/home/me"},
    ],
)
def test_without_a_runtime_directory_the_socket_is_in_the_state_directory(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", environ["HOME"])

    assert agent_socket.path(environ, "relay") == str(state_directory(environ) / "agent" / "relay")


@pytest.mark.parametrize("environ", [{}, {"HOME": "relative"}, {"XAPI_STATE_DIR": "relative", "HOME": "/home/me"}])
def test_there_is_no_socket_without_an_absolute_directory(environ: dict[str, str]) -> None:
    assert agent_socket.path(environ, "agent") is None


def test_the_path_has_at_most_107_bytes(tmp_path: Path) -> None:
    longest = "/" + (107 - len("//xapi/agent/agent")) * "x"

    assert agent_socket.path({"XAPI_STATE_DIR": longest}, "agent") == f"{longest}/xapi/agent/agent"
    assert agent_socket.path({"XAPI_STATE_DIR": f"{longest}x"}, "agent") is None
    assert agent_socket.path({"XAPI_STATE_DIR": f"{longest[:-1]}é"}, "agent") is None


def test_a_connection_knows_its_peer(listener: socket.socket, tmp_path: Path) -> None:
    connection = agent_socket.connect(str(tmp_path / "socket"))

    assert connection is not None
    assert agent_socket.peer(connection) == (os.getpid(), os.geteuid())
    assert connection.getblocking()
    connection.close()


def test_there_is_no_connection_without_a_listener(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "bound"))
    (tmp_path / "file").touch()

    assert [agent_socket.connect(str(tmp_path / name)) for name in ("missing", "bound", "file", "a\0b")] == [None] * 4


def test_a_full_queue_is_treated_as_absent(listener: socket.socket, tmp_path: Path) -> None:
    held = []
    while (connection := agent_socket.connect(str(tmp_path / "socket"))) is not None:
        held.append(connection)
        assert len(held) < 10

    for connection in held:
        connection.close()


@needs_root
def test_a_socket_of_another_user_gets_no_byte(tmp_path: Path) -> None:
    planted = tmp_path / "socket"
    code = (
        "import os, socket, sys\n"
        f"s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); os.setuid({OTHER_USER}); s.listen()\n"
        "print('listening', flush=True)\n"
        "print(s.accept()[0].recv(10))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, planted], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"

    assert agent_socket.connect(str(planted)) is None
    assert process.communicate(timeout=30)[0] == "b''\n"


def test_a_process_of_this_user_is_accepted(listener: socket.socket, tmp_path: Path) -> None:
    connection = agent_socket.connect(str(tmp_path / "socket"))
    accepted = agent_socket.accept(listener)

    assert connection is not None
    assert accepted is not None
    accepted.sendall(b"hello")
    assert connection.recv(10) == b"hello"
    accepted.close()
    connection.close()


@needs_root
def test_the_connection_of_another_user_is_closed() -> None:
    code = (
        f"import os, socket, sys; os.setuid({OTHER_USER}); s = socket.socket(socket.AF_UNIX)\n"
        "s.connect(bytes.fromhex(sys.argv[1])); print(s.recv(10))"
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")  # an abstract address, to which every user can connect (unix(7))
        listener.listen()
        command = [sys.executable, "-c", code, listener.getsockname().hex()]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

        assert agent_socket.accept(listener) is None
        assert process.communicate(timeout=30)[0] == "b''\n"


def test_without_an_agent_nothing_is_imported() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "from xapi_cli.system import agent_socket\n"
        "assert agent_socket.connect(agent_socket.path({'HOME': '/nonexistent'}, 'agent')) is None\n"
        "print(sorted(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-Ic", code], capture_output=True, text=True, check=True, timeout=30)

    assert run.stdout.strip() == "['xapi_cli', 'xapi_cli.system', 'xapi_cli.system.agent_socket']"

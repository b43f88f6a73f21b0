"""Who can read the memory of the agent's keeper, and when it ends."""

import os
import re
import resource
import signal
import stat
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.agent.keeper_clients import KEY, connected, is_closed, is_served, number
from tests.support.keeper_process import KeeperProcess
from tests.support.ownership import OTHER_USER, needs_root
from tests.support.skips import IMPOSSIBLE
from xapi_cli.store.agent import messages
from xapi_cli.store.agent.client import KeeperClient, NotRunning
from xapi_cli.store.agent.messages import Request


@needs_root
def test_a_process_of_another_user_gets_nothing(process: KeeperProcess, client: KeeperClient) -> None:
    client.put(KEY, b"CANARY")
    assert stat.S_IMODE(process.path.stat().st_mode) == 0o600
    temporary = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir()))  # what is above is not the test's
    for path in (process.path, *process.path.parents):
        if temporary in path.parents:
            path.chmod(path.stat().st_mode | 0o077)  # as if the permissions did not protect it
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgid(OTHER_USER)
            os.setuid(OTHER_USER)
            with closing(connected(process)) as sock:
                sock.sendall(messages.pack_request(Request(messages.GET, KEY)))
                os.write(write_end, sock.recv(100))
            code = 0
        except (BrokenPipeError, ConnectionResetError):
            code = 0
        finally:
            os._exit(code)
    os.close(write_end)
    with open(read_end, "rb") as received:
        assert received.read() == b""
    assert os.waitpid(child, 0)[1] == 0


# its memory


def _memory(pid: int) -> bytes:
    """Return the writable memory of the process *pid*."""
    found = []
    try:
        with open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for start, end, _ in re.findall(
                r"^(\w+)-(\w+) rw(.*)$", Path(f"/proc/{pid}/maps").read_text(), re.MULTILINE
            ):
                memory.seek(int(start, 16))
                found.append(memory.read(int(end, 16) - int(start, 16)))
    except PermissionError:
        pytest.skip(f"{IMPOSSIBLE}only root can read the memory of the keeper")
    return b"".join(found)


def test_a_record_is_in_its_memory_once_and_no_longer_after_it_was_erased(
    process: KeeperProcess, client: KeeperClient
) -> None:
    secret = os.urandom(16).hex().encode()
    client.put(KEY, secret * 3)
    assert client.get(KEY)[0] == secret * 3
    assert _memory(process.pid).count(secret) == 3
    client.erase(KEY)
    client.get(KEY)
    assert _memory(process.pid).count(secret) == 0


def test_other_processes_of_the_user_cannot_read_its_memory_and_it_dumps_no_core(process: KeeperProcess) -> None:
    assert re.search(r"Max core file size +0 ", Path(f"/proc/{process.pid}/limits").read_text())
    if os.getuid() != 0:  # root can read it in any case
        assert Path(f"/proc/{process.pid}/mem").stat().st_uid == 0
        with pytest.raises(PermissionError):
            Path(f"/proc/{process.pid}/mem").read_bytes()


def test_records_are_locked_in_memory_as_far_as_the_limit_allows(tmp_path: Path) -> None:
    page = resource.getpagesize()
    without_capability = ("setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock") if os.getuid() == 0 else ()
    limited = ("prlimit", f"--memlock={2 * page}:{2 * page}", *without_capability)
    with KeeperProcess(tmp_path / "run", prefix=limited) as process:
        client = KeeperClient(process.environ, timeout=20)
        for key in range(4):
            client.put(number(key), b"record")
        assert [each.is_locked for each in client.held()] == [True, True, False, False]
        assert f"VmLck:\t{2 * page // 1024:8} kB" in Path(f"/proc/{process.pid}/status").read_text()
        client.erase(number(0))
        client.put(number(5), b"record")
        assert [each.is_locked for each in client.held()] == [True, False, False, True]


# its end


def test_it_ends_with_the_agent(process: KeeperProcess, client: KeeperClient) -> None:
    client.put(KEY, b"record")
    assert process.cut_lifeline() == 0
    with pytest.raises(NotRunning):
        client.get(KEY)


def test_a_stop_request_ends_it(process: KeeperProcess, client: KeeperClient) -> None:
    client.put(KEY, b"record")
    with closing(connected(process)) as silent:
        client.stop()
        assert process.wait() == 0
        assert is_closed(silent)


def test_ctrl_c_does_not_end_it(process: KeeperProcess, client: KeeperClient) -> None:
    is_served(process)  # it has started, and ignores the signal
    process.signal(signal.SIGINT)
    assert client.get(KEY)[0] is None
    assert process.exit_code is None

"""The login lock that machines share: only its owner releases it, even if machines look the same."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.support.redis_server import RedisServer
from xapi_cli.store.login_lock import LoginLock
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.store.redis.store import RedisStore
from xapi_cli.store.shared_login_lock import SharedLoginLock
from xapi_cli.system import boot_time
from xapi_cli.system.files import StateDirectory
from xapi_cli.system.lock import LockTimeout
from xapi_cli.tokens import Identity, Record, Token

if TYPE_CHECKING:
    from xapi_cli.store.login_protocol import SharedStore

ME = Identity("https://api.test", "me@example.com")

Machine = Callable[..., "tuple[SharedLoginLock, SharedStore]"]


@pytest.fixture
def machine(tmp_path: Path, shared_redis: RedisServer) -> Machine:
    """Return the lock and the store of a machine, which is a state directory: `machine("a")`."""

    def on(
        name: str, server: RedisServer = shared_redis, *, database: int = 0, prefix: str = "test:"
    ) -> "tuple[SharedLoginLock, SharedStore]":
        settings = {"redis_url": f"{server.url}?db={database}", "redis_prefix": prefix}
        options = StoreOptions(StateDirectory(tmp_path / name), dict(os.environ), warn=pytest.fail, settings=settings)
        store = cast("SharedStore", RedisStore(options))
        return SharedLoginLock(
            LoginLock(StateDirectory(_locks(tmp_path, name)).file("login.lock")), store, ME, 30.0
        ), store

    return on


@pytest.fixture
def clones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give all files the same device and inode number, as the same file has in machines resumed from one snapshot.

    The machines of a test are in one process, so they also have the same boot ID and process ID.
    """
    for name in ("stat", "lstat", "fstat"):
        monkeypatch.setattr(os, name, _with_same_inode(getattr(os, name)))


def _with_same_inode(real: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
    def stat(*arguments: Any, **options: Any) -> os.stat_result:
        kind, (values, more) = cast("Any", real(*arguments, **options).__reduce__())
        result: os.stat_result = kind((values[0], 1, 1, *values[3:]), more)
        return result

    return stat


def _locks(directory: Path, name: str) -> Path:
    return directory / name / "locks"


def _killed_in_a_login(lock: SharedLoginLock, directory: Path, name: str) -> str:
    """Leave what a process leaves that is killed while it holds the lock; return the owner."""
    killed = directory / "killed"
    with lock.acquired(0):
        shutil.copytree(_locks(directory, name), killed)
        owner = (killed / "login.owner").read_text().split()[-1]
    shutil.copytree(killed, _locks(directory, name), dirs_exist_ok=True)
    return owner


@pytest.mark.usefixtures("clones")
def test_machines_that_look_the_same_exclude_each_other(machine: Machine) -> None:
    (lock, store), (other, _) = machine("a"), machine("b")
    with lock.acquired(0):
        for _ in range(2):
            with pytest.raises(LockTimeout), other.acquired(0):
                pass
        assert store.write_locked(ME, Record(Token("a-token")), None)
    with other.acquired(0):
        pass


@pytest.mark.usefixtures("clones")
def test_a_copy_of_the_state_directory_does_not_release_the_lock_of_the_original(
    machine: Machine, tmp_path: Path, shared_redis: RedisServer
) -> None:
    (lock, store), (other, _) = machine("a"), machine("b")
    owner = _killed_in_a_login(lock, tmp_path, "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shared_redis.give_lock(f"test:{{{ME.key}}}:account", owner)  # of the killed process

    with lock.acquired(0):
        with pytest.raises(LockTimeout), other.acquired(0):
            pass
        assert store.write_locked(ME, Record(Token("a-token")), None)


def test_the_next_process_of_the_machine_releases_the_lock_of_a_killed_one(
    machine: Machine, tmp_path: Path, shared_redis: RedisServer
) -> None:
    (lock, _), (other, _) = machine("a"), machine("b")
    owner = _killed_in_a_login(lock, tmp_path, "a")
    shared_redis.give_lock(f"test:{{{ME.key}}}:account", owner)

    with pytest.raises(LockTimeout), other.acquired(0):
        pass
    with lock.acquired(0):
        pass
    assert sorted(path.name for path in _locks(tmp_path, "a").iterdir()) == ["login.lock"]
    assert shared_redis.keys() == []


@pytest.mark.parametrize(
    "elsewhere", [{"database": 1}, {"prefix": "other:"}, {"server": None}], ids=["database", "prefix", "server"]
)
def test_a_login_elsewhere_leaves_the_lock_of_a_killed_process_to_be_released(
    machine: Machine, tmp_path: Path, shared_redis: RedisServer, redis_server: RedisServer, elsewhere: dict[str, Any]
) -> None:
    lock, _ = machine("a")
    other, _ = machine("a", **({"server": redis_server} if "server" in elsewhere else elsewhere))
    owner = _killed_in_a_login(lock, tmp_path, "a")
    key = f"test:{{{ME.key}}}:account"
    shared_redis.give_lock(key, owner)

    for _ in range(2):
        with other.acquired(0):
            pass
    assert shared_redis.field(key, "owner") == owner.encode()
    with lock.acquired(0):
        pass
    assert sorted(path.name for path in _locks(tmp_path, "a").iterdir()) == ["login.lock"]
    assert shared_redis.field(key, "owner") is None


def test_owners_whose_locks_have_expired_are_removed(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        lock, _ = machine("a", prefix=f"test{number}:")
        _killed_in_a_login(lock, tmp_path, "a")
        shutil.rmtree(tmp_path / "killed")
    file = _locks(tmp_path, "a") / "login.owner"
    assert len(file.read_text().splitlines()) == 4

    later = boot_time.since_boot() + 50  # a login takes at most 30 seconds, and the lock lasts 15 seconds longer
    monkeypatch.setattr(boot_time, "since_boot", lambda: later)
    lock, _ = machine("a")
    with lock.acquired(0):
        assert len(file.read_text().splitlines()) == 2
    assert not file.exists()


def test_the_owners_of_many_servers_are_limited(machine: Machine, tmp_path: Path) -> None:
    owners = []
    for number in range(40):
        lock, _ = machine("a", prefix=f"test{number}:")
        owners.append(_killed_in_a_login(lock, tmp_path, "a"))
        shutil.rmtree(tmp_path / "killed")
    text = (_locks(tmp_path, "a") / "login.owner").read_text()
    assert len(text) < 4096
    assert text.split()[-1] == owners[-1]


@pytest.mark.parametrize("content", [b"", b"\n%b", b"another-boot\n%b", b"%b", b"\xff\n%b", b"\x00" * 5000], ids=repr)
def test_an_owner_of_another_boot_or_garbage_releases_nothing(
    machine: Machine, tmp_path: Path, shared_redis: RedisServer, content: bytes
) -> None:
    """With a network file system that locks for each machine separately, it may be that of another machine."""
    lock, store = machine("a")
    shared_redis.give_lock(f"test:{{{ME.key}}}:account", "running")
    _locks(tmp_path, "a").mkdir(parents=True)
    entry = f"{store.location} {int(boot_time.since_boot()) + 60} running"
    (_locks(tmp_path, "a") / "login.owner").write_bytes(content.replace(b"%b", entry.encode()))

    with pytest.raises(LockTimeout), lock.acquired(0):
        pass
    assert shared_redis.field(f"test:{{{ME.key}}}:account", "owner") == b"running"


def test_a_lock_that_could_not_be_released_is_released_by_the_next_process(
    machine: Machine, redis_server: RedisServer
) -> None:
    (lock, _), (other, _) = machine("a", redis_server), machine("b", redis_server)
    with lock.acquired(0):
        redis_server.oracle.replicaof("127.0.0.1", "1")  # refuses the release
    redis_server.oracle.replicaof("no", "one")

    with pytest.raises(LockTimeout), other.acquired(0):
        pass
    with lock.acquired(0):
        pass
    with other.acquired(0):
        pass


def test_without_a_state_directory_the_shared_lock_suffices(tmp_path: Path, machine: Machine) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "locks").write_text("not a directory")
    (lock, _), (other, _) = machine("a"), machine("b")
    with lock.acquired(0), pytest.raises(LockTimeout), other.acquired(0):
        pass
    with other.acquired(0):
        pass

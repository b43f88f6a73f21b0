"""The cache of the keyring in the agent: what it saves, and that no login or logout is missed."""

import json
import os
from pathlib import Path

import pytest

from tests.store.conftest import Open
from tests.support.keeper_process import KeeperProcess
from xapi_cli.errors import StoreError
from xapi_cli.store import registry
from xapi_cli.store.account_index import AccountIndex
from xapi_cli.store.agent.client import KeeperClient
from xapi_cli.store.agent.messages import key_of
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.system.private_files import StateDirectory
from xapi_cli.tokens import Identity, Record, Token

ME = Identity("https://api.test", "me@example.com")
FIRST, SECOND = Record(Token("first"), "password"), Record(Token("second"))
KIND = "Plain"  # of the fake keyrings


@pytest.fixture
def index(state: Path) -> AccountIndex:
    return AccountIndex(StateDirectory(state / "known"))


@pytest.fixture
def items(tmp_path: Path) -> Path:
    """The file in which the fake keyring stores its items."""
    return tmp_path / "items.json"


def log_in(opened: Open, index: AccountIndex, record: Record, **options: object) -> None:
    """Store *record* as `TokenRepository` does."""
    opened(KIND, **options).write(ME, record)
    index.add(ME, "keyring")


def empty(items: Path) -> None:
    items.write_text(json.dumps({}))


@pytest.mark.usefixtures("keeper")
def test_a_record_that_was_read_is_cached_with_its_password(opened: Open, index: AccountIndex, items: Path) -> None:
    log_in(opened, index, FIRST)
    assert opened(KIND, keyring_cache=True).read(ME) == FIRST
    empty(items)

    assert opened(KIND, keyring_cache=True).read(ME) == FIRST
    assert opened(KIND).read(ME) is None  # without the setting, it is not used


@pytest.mark.usefixtures("keeper")
def test_the_second_read_of_a_command_is_that_of_the_keyring(opened: Open, index: AccountIndex, items: Path) -> None:
    log_in(opened, index, FIRST)
    opened(KIND, keyring_cache=True).read(ME)
    opened(KIND).write(ME, SECOND)  # by a program that does not change the index

    store = opened(KIND, keyring_cache=True)
    assert [store.read(ME), store.read(ME)] == [FIRST, SECOND]
    assert opened(KIND, keyring_cache=True).read(ME) == SECOND  # now cached


@pytest.mark.usefixtures("keeper")
@pytest.mark.parametrize("options", [{}, {"keyring_cache": True}])
def test_a_login_elsewhere_is_seen(opened: Open, index: AccountIndex, options: dict[str, bool]) -> None:
    log_in(opened, index, FIRST)
    opened(KIND, keyring_cache=True).read(ME)
    log_in(opened, index, SECOND, **options)

    assert opened(KIND, keyring_cache=True).read(ME) == SECOND


@pytest.mark.usefixtures("keeper")
def test_a_logout_elsewhere_is_seen(opened: Open, index: AccountIndex) -> None:
    log_in(opened, index, FIRST)
    opened(KIND, keyring_cache=True).read(ME)
    index.remove(ME)
    opened(KIND).delete(ME)

    assert opened(KIND, keyring_cache=True).read(ME) is None


@pytest.mark.usefixtures("keeper")
def test_what_was_read_before_a_logout_and_cached_during_it_is_not_used(
    opened: Open, index: AccountIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(opened, index, FIRST)
    put = KeeperClient.put

    def put_late(client: KeeperClient, key: bytes, record: bytes) -> bool:
        index.remove(ME)
        opened(KIND).delete(ME)
        return put(client, key, record)

    monkeypatch.setattr(KeeperClient, "put", put_late)
    assert opened(KIND, keyring_cache=True).read(ME) == FIRST
    monkeypatch.setattr(KeeperClient, "put", put)
    assert opened(KIND, keyring_cache=True).read(ME) is None


@pytest.mark.usefixtures("keeper")
@pytest.mark.parametrize("kind, bus", [("Windows", ""), (KIND, "unix:path=/nonexistent")])
def test_another_keyring_has_another_record(
    opened: Open, index: AccountIndex, items: Path, monkeypatch: pytest.MonkeyPatch, kind: str, bus: str
) -> None:
    log_in(opened, index, FIRST)
    opened(KIND, keyring_cache=True).read(ME)
    empty(items)
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", bus)

    assert opened(kind, keyring_cache=True).read(ME) is None


def test_another_state_directory_has_another_record(
    opened: Open, index: AccountIndex, items: Path, tmp_path: Path, keeper: KeeperProcess
) -> None:
    log_in(opened, index, FIRST)
    opened(KIND, keyring_cache=True).read(ME)
    empty(items)
    AccountIndex(StateDirectory(tmp_path / "other" / "known")).add(ME, "keyring")
    environ = {**os.environ, **keeper.environ, "PYTHON_KEYRING_BACKEND": f"fake_keyrings.{KIND}"}
    options = StoreOptions(StateDirectory(tmp_path / "other"), environ, print, keyring_cache=True)

    assert registry.open_store(registry.selected("keyring"), options).read(ME) is None


def test_a_write_and_a_deletion_erase_what_is_cached(opened: Open, index: AccountIndex, keeper: KeeperProcess) -> None:
    client = KeeperClient(keeper.environ, 20)
    for change in (
        lambda: opened(KIND, keyring_cache=True).write(ME, SECOND),
        lambda: opened(KIND, keyring_cache=True).delete(ME),
    ):
        log_in(opened, index, FIRST)
        opened(KIND, keyring_cache=True).read(ME)
        assert client.get(key_of(ME, "c"))[0] is not None
        change()
        assert client.get(key_of(ME, "c"))[0] is None


@pytest.mark.parametrize("damage", [b"", b"garbage", b"\xff\n{}", b"0" * 64 + b"\n{}"])
def test_a_damaged_entry_is_not_used(opened: Open, index: AccountIndex, keeper: KeeperProcess, damage: bytes) -> None:
    log_in(opened, index, FIRST)
    KeeperClient(keeper.environ, 20).put(key_of(ME, "c"), damage or b"x")

    assert opened(KIND, keyring_cache=True).read(ME) == FIRST


def test_without_an_agent_the_keyring_is_used(opened: Open, index: AccountIndex) -> None:
    log_in(opened, index, FIRST, keyring_cache=True)
    store = opened(KIND, keyring_cache=True)
    store.probe()

    assert store.read(ME) == FIRST
    assert store.delete(ME)
    assert store.read(ME) is None


@pytest.mark.usefixtures("keeper")
def test_a_failure_of_the_keyring_is_an_error_and_caches_nothing(
    opened: Open, index: AccountIndex, keeper: KeeperProcess
) -> None:
    index.add(ME, "keyring")
    with pytest.raises(StoreError):
        opened("Missing", keyring_cache=True).read(ME)
    assert KeeperClient(keeper.environ, 20).held() == []

"""The record of one account in real stores: read once, written unless a logout came in between, deleted everywhere."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.keyrings import fake_keyrings
from xapi_cli.errors import StoreError
from xapi_cli.store.account_index import AccountIndex
from xapi_cli.store.deletion import Deletion
from xapi_cli.store.login_session import LoginSession, open_session
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.store.repository import TokenRepository
from xapi_cli.system.files import StateDirectory
from xapi_cli.tokens import Identity, Record, Token

ME = Identity("https://api.test", "me@example.com")
RECORD = Record(Token("first"))
Open = Callable[..., TokenRepository]


def _session(repository: TokenRepository) -> LoginSession:
    return open_session(repository, limit=5)


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def opened(tmp_path: Path, warnings: list[str], monkeypatch: pytest.MonkeyPatch) -> Open:
    """Open a repository as a new command does; *backend* is one of the fake keyrings."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FAKE_KEYRING", str(tmp_path / "items.json"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)

    def open_one(storage: str, backend: str = "Plain") -> TokenRepository:
        environ = dict(os.environ) | {"PYTHON_KEYRING_BACKEND": f"tests.support.keyrings.fake_keyrings.{backend}"}
        return TokenRepository(ME, storage, StoreOptions(StateDirectory(tmp_path / "state"), environ, warnings.append))

    return open_one


@pytest.mark.parametrize("storage", ["file", "keyring", "auto"])
def test_a_record_is_read_by_the_next_command(opened: Open, storage: str, warnings: list[str]) -> None:
    assert opened(storage).read() is None
    assert _session(opened(storage)).write(RECORD)

    assert opened(storage).read() == RECORD
    assert warnings == []


def test_storage_none_stores_for_the_lifetime_of_the_process(opened: Open, tmp_path: Path) -> None:
    repository = opened("none")
    _session(repository).write(RECORD)

    assert (repository.read(again=True), opened("none").read()) == (RECORD, None)
    assert not (tmp_path / "state" / "known").exists()


def test_a_keyring_is_read_once_per_command_unless_a_re_read_is_requested(opened: Open) -> None:
    _session(opened("keyring")).write(RECORD)
    repository = opened("keyring")
    calls = fake_keyrings.Plain.calls
    calls.clear()

    repository.read()
    repository.read()
    assert calls == ["get"]
    repository.read(again=True)
    assert calls == ["get", "get"]


def test_a_probe_does_not_count_as_a_read(opened: Open) -> None:
    _session(opened("keyring")).write(Record(Token("first"), "remembered"))
    repository = opened("keyring")

    repository.probe()

    assert repository.read() == Record(Token("first"), "remembered")


def test_auto_without_a_keyring_stores_nothing_and_names_the_alternative(opened: Open, warnings: list[str]) -> None:
    repository = opened("auto", "Missing")

    assert repository.read() is None
    assert repository.storage == "none"
    assert repository.read(again=True) is None
    assert warnings == [
        (
            "the keyring backend cannot be loaded (AttributeError); the token is not stored"
            " (`xapi login --storage file`, or XAPI_STORAGE=file for all commands,"
            " stores it in a file that only you can read)"
        )
    ]


@pytest.mark.parametrize("storage", ["auto", "keyring"])
def test_a_probe_requires_a_keyring_that_stores_items(opened: Open, storage: str) -> None:
    with pytest.raises(StoreError):
        opened(storage, "NotPersistent").probe()
    with pytest.raises(StoreError):
        opened(storage, "Missing").probe()


def test_an_explicitly_selected_keyring_has_no_fallback(opened: Open) -> None:
    with pytest.raises(StoreError):
        opened("keyring", "Missing").read()


@pytest.mark.parametrize("stored_before", [True, False])
@pytest.mark.parametrize("storage", ["file", "keyring"])
def test_nothing_is_written_after_a_logout_during_the_login(opened: Open, storage: str, stored_before: bool) -> None:
    if stored_before:
        _session(opened(storage)).write(RECORD)
    repository = opened(storage)
    repository.read()
    login = _session(repository)
    login.begin()

    assert Deletion(opened(storage)).run() is stored_before

    assert login.write(Record(Token("second"))) is False
    assert opened(storage).read() is None


def test_a_failed_login_of_another_process_is_not_a_logout(opened: Open) -> None:
    login, other = _session(opened("file")), _session(opened("file"))
    for session in (login, other):
        session.begin()

    other.write(RECORD)

    assert login.write(Record(Token("second")))
    assert opened("file").read() == Record(Token("second"))


def test_a_logout_deletes_from_every_store_in_which_the_account_is_known(opened: Open) -> None:
    _session(opened("file")).write(RECORD)
    _session(opened("keyring")).write(Record(Token("second"), "password"))

    assert Deletion(opened("none")).run() is True

    assert (opened("file").read(), opened("keyring").read()) == (None, None)
    assert Deletion(opened("none")).run() is False


def test_an_undeletable_record_stays_in_the_index_and_the_rest_is_deleted(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _session(opened("keyring", "Raising")).write(RECORD)
    _session(opened("file")).write(RECORD)

    monkeypatch.setenv("FAKE_KEYRING_RAISES", "OSError")
    with pytest.raises(StoreError):
        Deletion(opened("auto", "Raising")).run()
    monkeypatch.delenv("FAKE_KEYRING_RAISES")

    known = AccountIndex(StateDirectory(tmp_path / "state" / "known"))
    assert (known.all(), [store.storage for store in known.stores(ME)]) == ([ME], ["keyring"])
    assert opened("file").read() is None
    assert Deletion(opened("auto", "Raising")).run() is True


def test_a_logout_ignores_a_missing_keyring_without_known_records(opened: Open, warnings: list[str]) -> None:
    _session(opened("file")).write(RECORD)

    assert Deletion(opened("auto", "Missing")).run() is True
    assert warnings == []


def test_a_keyring_that_may_contain_data_is_named(
    opened: Open, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_KEYRING_RAISES", "KeyringLocked")
    _session(opened("file")).write(RECORD)

    assert Deletion(opened("auto", "Raising")).run() is True
    assert warnings == ["the keyring is locked; data of this account that it may contain was not deleted"]


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
def test_an_unusable_state_directory_is_an_error_with_file_and_a_warning_with_keyring(
    opened: Open, tmp_path: Path, warnings: list[str]
) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")

    repository = opened("keyring")
    repository.read()
    session = _session(repository)
    session.begin()
    assert session.write(RECORD)
    assert opened("keyring").read() == RECORD
    assert len([text for text in warnings if "cannot be written: Not a directory" in text]) == len(warnings) > 0
    with pytest.raises(StoreError):
        _session(opened("file")).write(RECORD)

"""The record of one account in real stores: read once, written unless a logout came between, deleted everywhere."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.keyrings import fake_keyrings
from xapi_cli.errors import StoreError
from xapi_cli.settings.resolve import Storage
from xapi_cli.store.account_index import AccountIndex
from xapi_cli.store.repository import TokenRepository
from xapi_cli.tokens import Identity, Record, Token

ME = Identity("https://api.test", "me@example.com")
RECORD = Record(Token("first"))
Open = Callable[..., TokenRepository]


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def opened(tmp_path: Path, warnings: list[str], monkeypatch: pytest.MonkeyPatch) -> Open:
    """Open a repository as a new command does; *backend* is one of the fake keyrings."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FAKE_KEYRING", str(tmp_path / "items.json"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)

    def open_one(storage: Storage, backend: str = "Plain") -> TokenRepository:
        environ = dict(os.environ) | {"PYTHON_KEYRING_BACKEND": f"tests.keyrings.fake_keyrings.{backend}"}
        return TokenRepository(
            ME, storage, state=tmp_path / "state", environ=environ, warn=warnings.append, interactive=False
        )

    return open_one


@pytest.mark.parametrize("storage", ["file", "keyring", "auto"])
def test_what_one_command_writes_the_next_one_reads(opened: Open, storage: Storage, warnings: list[str]) -> None:
    assert opened(storage).read() is None
    assert opened(storage).write(RECORD)

    assert opened(storage).read() == RECORD
    assert warnings == []


def test_storage_none_keeps_for_the_life_of_the_process_and_no_longer(opened: Open, tmp_path: Path) -> None:
    repository = opened("none")
    repository.write(RECORD)

    assert (repository.read(again=True), opened("none").read()) == (RECORD, None)
    assert not (tmp_path / "state" / "known").exists()


def test_a_keyring_is_read_once_a_command_unless_it_is_to_be_read_again(opened: Open) -> None:
    opened("keyring").write(RECORD)
    repository = opened("keyring")
    calls = fake_keyrings.Plain.calls
    calls.clear()

    repository.read()
    repository.read()
    assert calls == ["get"]
    repository.read(again=True)
    assert calls == ["get", "get"]


def test_a_probe_does_not_stand_for_reading(opened: Open) -> None:
    opened("keyring").write(Record(Token("first"), "remembered"))
    repository = opened("keyring")

    repository.probe()

    assert repository.read() == Record(Token("first"), "remembered")


def test_auto_without_a_keyring_keeps_for_one_command_and_says_how_to_keep_longer(
    opened: Open, warnings: list[str]
) -> None:
    repository = opened("auto", "Missing")

    assert repository.read() is None
    assert repository.storage == "none"
    assert repository.read(again=True) is None
    assert warnings == [
        (
            "the keyring backend cannot be loaded (AttributeError); the token is kept for this command only"
            " (--storage file or XAPI_STORAGE=file keeps it in a file that only you can read)"
        )
    ]


@pytest.mark.parametrize("storage", ["auto", "keyring"])
def test_a_probe_wants_a_keyring_that_keeps(opened: Open, storage: Storage) -> None:
    with pytest.raises(StoreError):
        opened(storage, "Forgetful").probe()
    with pytest.raises(StoreError):
        opened(storage, "Missing").probe()


def test_a_keyring_that_was_chosen_is_never_done_without(opened: Open) -> None:
    with pytest.raises(StoreError):
        opened("keyring", "Missing").read()


@pytest.mark.parametrize("stored_before", [True, False])
@pytest.mark.parametrize("storage", ["file", "keyring"])
def test_nothing_is_written_after_a_logout_that_came_while_logging_in(
    opened: Open, storage: Storage, stored_before: bool
) -> None:
    if stored_before:
        opened(storage).write(RECORD)
    login = opened(storage)
    login.read()
    login.begin()

    assert opened(storage).forget() is stored_before

    assert login.write(Record(Token("second"))) is False
    assert opened(storage).read() is None


def test_a_login_that_fails_elsewhere_is_no_logout(opened: Open) -> None:
    login, other = opened("file"), opened("file")
    for repository in (login, other):
        repository.read()
        repository.begin()

    other.write(RECORD)

    assert login.write(Record(Token("second")))
    assert opened("file").read() == Record(Token("second"))


def test_forgetting_clears_every_store_that_the_account_is_known_in(opened: Open) -> None:
    opened("file").write(RECORD)
    opened("keyring").write(Record(Token("second"), "password"))

    assert opened("none").forget() is True

    assert (opened("file").read(), opened("keyring").read()) == (None, None)
    assert opened("none").forget() is False


def test_what_cannot_be_deleted_stays_known_and_the_rest_is_deleted(opened: Open, tmp_path: Path) -> None:
    opened("keyring").write(RECORD)
    opened("file").write(RECORD)

    with pytest.raises(StoreError):
        opened("auto", "Missing").forget()

    known = AccountIndex(tmp_path / "state" / "known")
    assert (known.all(), known.storages(ME)) == ([ME], ["keyring"])
    assert opened("file").read() is None
    assert opened("auto").forget() is True


def test_forgetting_does_not_mind_a_keyring_in_which_nothing_is_known_to_be(opened: Open, warnings: list[str]) -> None:
    opened("file").write(RECORD)

    assert opened("auto", "Missing").forget() is True
    assert warnings == []


def test_a_keyring_that_might_hold_something_is_named(
    opened: Open, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_KEYRING_RAISES", "KeyringLocked")
    opened("file").write(RECORD)

    assert opened("auto", "Raising").forget() is True
    assert warnings == ["the keyring is locked; if it holds anything of this account, that stays"]


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
def test_a_state_folder_that_is_none_stops_file_and_warns_keyring(
    opened: Open, tmp_path: Path, warnings: list[str]
) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")

    repository = opened("keyring")
    repository.read()
    repository.begin()
    assert repository.write(RECORD)
    assert opened("keyring").read() == RECORD
    assert len([text for text in warnings if "cannot be written: Not a directory" in text]) == len(warnings) > 0
    with pytest.raises(StoreError):
        opened("file").write(RECORD)

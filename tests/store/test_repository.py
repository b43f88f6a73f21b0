"""The record of one account in real stores: read once, listed in the index, deleted everywhere."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.keyrings import fake_keyrings
from xapi_cli.errors import StoreError
from xapi_cli.hints import text
from xapi_cli.store.deletion import delete_everywhere, delete_passwords_elsewhere
from xapi_cli.store.login_session import LoginSession, open_session
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.store.repository import TokenRepository
from xapi_cli.system.files import StateDirectory
from xapi_cli.tokens import Identity, Record, Token

ME = Identity("https://api.test", "me@example.com")
RECORD = Record(Token("first"))
Open = Callable[..., TokenRepository]


def _session(repository: TokenRepository) -> LoginSession:
    return open_session(repository)


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
        state = StateDirectory(tmp_path / "state")
        without_lock = lambda error: warnings.append(f"no lock: {error}")  # noqa: E731 - it is short
        return TokenRepository(
            ME, storage, StoreOptions(state, environ, lambda hint: warnings.append(text(hint)), without_lock)
        )

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


@pytest.mark.parametrize("storage", ["auto", "keyring"])
def test_a_probe_requires_a_keyring_that_stores_items(opened: Open, storage: str) -> None:
    with pytest.raises(StoreError):
        opened(storage, "NotPersistent").probe()
    with pytest.raises(StoreError):
        opened(storage, "Missing").probe()


def test_a_logout_ignores_a_missing_keyring_without_known_records(opened: Open, warnings: list[str]) -> None:
    _session(opened("file")).write(RECORD)

    assert delete_everywhere(opened("auto", "Missing")) is True
    assert warnings == []


def test_a_logout_finds_what_a_killed_login_has_written(opened: Open, tmp_path: Path) -> None:
    repository = opened("keyring")
    with pytest.raises(KeyboardInterrupt):
        repository.put(RECORD, _interrupt, lambda: False)
    assert delete_everywhere(opened("file")) is False  # nothing was written; that is no error
    repository.opened().write(ME, RECORD)
    with pytest.raises(KeyboardInterrupt):
        repository.put(RECORD, _interrupt, lambda: False)

    assert delete_everywhere(opened("file")) is True
    assert opened("keyring").read() is None
    asked = iter([False, True])  # it was listed by now, so a logout could find it
    assert repository.put(RECORD, _interrupt, lambda: next(asked)) is False


def _interrupt() -> bool:
    raise KeyboardInterrupt


def test_a_rejected_token_is_remembered_until_another_one_is_stored(opened: Open) -> None:
    now = datetime.now(UTC)
    first, second = Record(Token("first", "bearer", now)), Record(Token("second", "bearer", now + timedelta(minutes=1)))
    _session(opened("file")).write(first)
    opened("file").record_rejection(first.token)
    assert [opened("file").is_rejected(each.token) for each in (first, second)] == [True, False]
    _session(opened("file")).write(first._replace(password="new"))
    assert opened("file").is_rejected(first.token)

    _session(opened("file")).write(second)

    assert not opened("file").is_rejected(first.token)


def test_no_remember_deletes_the_password_in_other_stores_and_keeps_the_token(opened: Open) -> None:
    _session(opened("keyring")).write(Record(Token("first"), "secret"))
    _session(opened("file")).write(RECORD)

    delete_passwords_elsewhere(opened("file"))

    assert opened("keyring").read() == RECORD

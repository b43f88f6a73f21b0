"""The index of accounts, and how a login in progress detects a logout."""

import os
import stat
from pathlib import Path

import pytest

from xapi_cli.store.account_index import AccountIndex
from xapi_cli.tokens import Identity

ME, OTHER = Identity("https://api.test", "me@example.com"), Identity("https://api.test/v2", "me@example.com")


@pytest.fixture
def known(tmp_path: Path) -> AccountIndex:
    return AccountIndex(tmp_path / "known")


def test_an_account_is_listed_with_the_stores_that_contain_its_record(known: AccountIndex) -> None:
    assert (known.all(), known.storages(ME), known.logout_marker(ME)) == ([], [], "")

    known.add(ME, "file")
    known.add(ME, "keyring")
    known.add(ME, "file")
    known.add(OTHER, "keyring")

    assert sorted(known.all(), key=lambda identity: identity.base_url) == [ME, OTHER]
    assert (known.storages(ME), known.storages(OTHER)) == (["file", "keyring"], ["keyring"])


def test_a_removed_account_is_not_listed(known: AccountIndex) -> None:
    known.add(ME, "file")
    known.remove(ME)

    assert (known.all(), known.storages(ME)) == ([], [])


def test_a_store_that_could_not_be_cleared_remains_in_the_index(known: AccountIndex) -> None:
    known.add(ME, "file")
    known.add(ME, "keyring")

    known.remove(ME, but=("keyring", "unheard of"))

    assert (known.all(), known.storages(ME)) == ([ME], ["keyring"])


@pytest.mark.parametrize("stored_before", [True, False])
def test_a_login_detects_a_logout_since_it_began(known: AccountIndex, stored_before: bool) -> None:
    if stored_before:
        known.add(ME, "file")
    began = known.logout_marker(ME)
    assert known.has_logout_marker(ME, began)

    known.remove(ME)

    assert not known.has_logout_marker(ME, began)
    assert known.has_logout_marker(ME, known.logout_marker(ME))


def test_a_login_of_another_process_is_not_mistaken_for_a_logout(known: AccountIndex) -> None:
    began = known.logout_marker(ME)
    known.add(ME, "file")
    second = known.logout_marker(ME)
    known.add(ME, "keyring")

    known.remove(OTHER)

    assert known.has_logout_marker(ME, began)
    assert known.has_logout_marker(ME, second)


def test_an_empty_entry_does_not_name_its_account_and_is_removed_after_an_hour(tmp_path: Path) -> None:
    now = [0.0]
    known = AccountIndex(tmp_path, lambda: now[0])
    known.add(ME, "file")
    known.remove(ME)
    (path,) = tmp_path.glob("*.json")
    now[0] = path.stat().st_mtime
    assert "example" not in path.read_text()

    known.remove(OTHER)
    assert len(list(tmp_path.glob("*.json"))) == 2
    now[0] += 3601
    known.remove(Identity("https://third.test", "me"))

    assert not path.exists()
    assert known.has_logout_marker(ME, "a marker from before")  # no login takes that long


def test_the_index_is_private_and_contains_no_secret(known: AccountIndex, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        known.add(ME, "file")
    finally:
        os.umask(before)

    (path,) = (tmp_path / "known").iterdir()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "known", path)] == [0o700, 0o600]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[" * 50_000,
        b"1",
        b"{}",
        b'{"mark": 1, "storages": []}',
        b'{"mark": "", "storages": "file"}',
        b'{"mark": "a", "storages": ["file"], "base_url": 1, "username": "me"}',
        b'{"mark": "a", "storages": ["file"]}',
    ],
    ids=range(9),
)
def test_an_invalid_entry_is_ignored_and_can_be_replaced(known: AccountIndex, data: bytes) -> None:
    known.add(ME, "file")
    (path,) = known._directory.iterdir()  # noqa: SLF001 - where the garbage is to go
    path.write_bytes(data)

    assert (known.all(), known.is_damaged()) == ([], True)
    known.add(ME, "keyring")
    known.add(ME, "file")
    assert not known.is_damaged()
    assert sorted(known.storages(ME)) == ["file", "keyring"]

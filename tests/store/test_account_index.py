"""The index of accounts, and how a logout is seen by a login under way."""

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


def test_accounts_are_known_by_the_stores_that_hold_something(known: AccountIndex) -> None:
    assert (known.all(), known.storages(ME), known.mark(ME)) == ([], [], "")

    known.add(ME, "file")
    known.add(ME, "keyring")
    known.add(ME, "file")
    known.add(OTHER, "keyring")

    assert sorted(known.all(), key=lambda identity: identity.base_url) == [ME, OTHER]
    assert (known.storages(ME), known.storages(OTHER)) == (["file", "keyring"], ["keyring"])


def test_what_is_forgotten_is_in_no_list(known: AccountIndex) -> None:
    known.add(ME, "file")
    known.forget(ME)

    assert (known.all(), known.storages(ME)) == ([], [])


def test_a_store_that_could_not_be_cleared_stays_known(known: AccountIndex) -> None:
    known.add(ME, "file")
    known.add(ME, "keyring")

    known.forget(ME, but=("keyring", "unheard of"))

    assert (known.all(), known.storages(ME)) == ([ME], ["keyring"])


@pytest.mark.parametrize("stored_before", [True, False])
def test_a_logout_is_seen_by_a_login_that_began_before_it(known: AccountIndex, stored_before: bool) -> None:
    if stored_before:
        known.add(ME, "file")
    began = known.mark(ME)
    assert known.holds(ME, began)

    known.forget(ME)

    assert not known.holds(ME, began)
    assert known.holds(ME, known.mark(ME))


def test_neither_a_login_elsewhere_nor_its_failure_looks_like_a_logout(known: AccountIndex) -> None:
    began = known.mark(ME)
    known.add(ME, "file")
    second = known.mark(ME)
    known.add(ME, "keyring")

    known.forget(OTHER)

    assert known.holds(ME, began)
    assert known.holds(ME, second)


def test_an_empty_entry_does_not_tell_whose_it_was_and_goes_after_an_hour(tmp_path: Path) -> None:
    now = [0.0]
    known = AccountIndex(tmp_path, lambda: now[0])
    known.add(ME, "file")
    known.forget(ME)
    (path,) = tmp_path.glob("*.json")
    now[0] = path.stat().st_mtime
    assert "example" not in path.read_text()

    known.forget(OTHER)
    assert len(list(tmp_path.glob("*.json"))) == 2
    now[0] += 3601
    known.forget(Identity("https://third.test", "me"))

    assert not path.exists()
    assert known.holds(ME, "a mark from before")  # nothing that old is still logging in


def test_the_index_is_private_and_holds_no_secret(known: AccountIndex, tmp_path: Path) -> None:
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
def test_an_entry_that_is_garbage_is_no_account_and_can_be_written_anew(known: AccountIndex, data: bytes) -> None:
    known.add(ME, "file")
    (path,) = known._folder.iterdir()  # noqa: SLF001 - where the garbage is to go
    path.write_bytes(data)

    assert known.all() == []
    known.add(ME, "keyring")
    known.add(ME, "file")
    assert sorted(known.storages(ME)) == ["file", "keyring"]

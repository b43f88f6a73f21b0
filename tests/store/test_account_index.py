"""The index of accounts, and how a login in progress detects a logout."""

import json
import os
import stat
from pathlib import Path

import pytest

from xapi_cli.store.account_index import AccountIndex, KnownStore, LogoutMarkers
from xapi_cli.system.boot_time import Moment
from xapi_cli.system.files import StateDirectory
from xapi_cli.tokens import Identity

ME, OTHER = Identity("https://api.test", "me@example.com"), Identity("https://api.test/v2", "me@example.com")


@pytest.fixture
def known(tmp_path: Path) -> AccountIndex:
    return AccountIndex(StateDirectory(tmp_path / "known"))


def test_an_account_is_listed_with_the_stores_that_contain_its_record(known: AccountIndex) -> None:
    assert (known.all(), known.stores(ME), known.logout_markers(ME)) == ([], [], LogoutMarkers("", ""))

    known.add(ME, "file")
    known.add(ME, "keyring")
    known.add(ME, "file")
    known.add(OTHER, "keyring")

    assert sorted(known.all(), key=lambda identity: identity.base_url) == [ME, OTHER]
    assert (_storages(known, ME), _storages(known, OTHER)) == (["keyring", "file"], ["keyring"])


def test_the_locations_of_one_storage_are_different_stores(known: AccountIndex) -> None:
    for server in ("redis://one:6379/0", "redis://two:6379/0", "redis://one:6379/0"):
        known.add(ME, "redis", {"redis_url": server})

    assert [store.location["redis_url"] for store in known.stores(ME)] == ["redis://two:6379/0", "redis://one:6379/0"]


def test_a_location_with_the_token_that_was_replaced_is_the_same_under_another_name(known: AccountIndex) -> None:
    known.add(ME, "keyring", {"DBUS_SESSION_BUS_ADDRESS": "yesterday"}, obtained_at="10:00")
    known.add(ME, "helper", {"credential_helper": "pass"}, obtained_at="10:00")
    known.add(ME, "keyring", {"DBUS_SESSION_BUS_ADDRESS": "today"}, obtained_at="11:00", replaced="10:00")

    assert [(store.storage, store.obtained_at) for store in known.stores(ME)] == [
        ("helper", "10:00"),
        ("keyring", "11:00"),
    ]
    assert known.stores(ME)[1].location == {"DBUS_SESSION_BUS_ADDRESS": "today"}


def test_a_store_is_recorded_before_its_record_is_written(known: AccountIndex) -> None:
    known.expect(ME, "helper", {"credential_helper": "pass"})
    (expected,) = known.stores(ME)
    assert (known.all(), expected.is_written) == ([ME], False)

    known.add(ME, "helper", {"credential_helper": "pass"}, obtained_at="10:00")
    known.expect(ME, "helper", {"credential_helper": "pass"})
    assert known.stores(ME) == [KnownStore("helper", {"credential_helper": "pass"}, "10:00")]


def test_the_oldest_stores_of_an_account_are_dropped_so_that_its_entry_can_be_read(known: AccountIndex) -> None:
    for number in range(400):
        known.add(ME, "keyring", {"DBUS_SESSION_BUS_ADDRESS": f"unix:path=/tmp/dbus-{number:064}"})

    assert 50 < len(known.stores(ME)) < 400
    assert known.stores(ME)[-1].location["DBUS_SESSION_BUS_ADDRESS"].endswith("399")


def test_an_entry_of_a_version_that_did_not_record_locations_is_read(known: AccountIndex, tmp_path: Path) -> None:
    known.add(ME, "file")
    (path,) = (tmp_path / "known").iterdir()
    account = {"base_url": ME.base_url, "username": ME.username}
    path.write_text(json.dumps({"mark": "a", "revision": "b", "storages": ["keyring"], **account}))

    assert (known.all(), known.logout_markers(ME), known.is_damaged()) == ([ME], LogoutMarkers("a", ""), False)
    assert known.stores(ME) == [KnownStore("keyring", {}, is_written=False)]


def test_a_removed_account_is_not_listed(known: AccountIndex) -> None:
    known.add(ME, "file")
    known.remove(ME)

    assert (known.all(), known.stores(ME)) == ([], [])


def test_a_store_that_could_not_be_cleared_remains_in_the_index(known: AccountIndex) -> None:
    known.add(ME, "file")
    known.add(ME, "keyring")
    _, keyring = known.stores(ME)

    known.remove(ME, but=[keyring])

    assert (known.all(), known.stores(ME)) == ([ME], [keyring])


@pytest.mark.parametrize("stored_before", [True, False])
def test_a_login_detects_a_logout_since_it_began(known: AccountIndex, stored_before: bool) -> None:
    if stored_before:
        known.add(ME, "file")
    began = known.logout_markers(ME)
    assert not known.was_logged_out(ME, since=began)

    known.remove(ME)

    assert known.was_logged_out(ME, since=began)
    assert not known.was_logged_out(ME, since=known.logout_markers(ME))


@pytest.mark.parametrize("stored_before", [True, False])
def test_a_login_detects_a_logout_of_all_accounts_since_it_began(known: AccountIndex, stored_before: bool) -> None:
    if stored_before:
        known.add(ME, "file")
    began = known.logout_markers(ME)

    known.log_out_all()

    assert known.was_logged_out(ME, since=began)
    second = known.logout_markers(ME)
    assert not known.was_logged_out(ME, since=second)
    known.log_out_all()
    assert known.was_logged_out(ME, since=second)
    assert (known.all(), known.is_damaged()) == ([ME] if stored_before else [], False)


def test_a_login_of_another_process_is_not_mistaken_for_a_logout(known: AccountIndex) -> None:
    began = known.logout_markers(ME)
    known.add(ME, "file")
    second = known.logout_markers(ME)
    known.add(ME, "keyring")

    known.remove(OTHER)

    assert not known.was_logged_out(ME, since=began)
    assert not known.was_logged_out(ME, since=second)


def test_an_empty_entry_does_not_name_its_account_and_is_removed_after_an_hour(tmp_path: Path) -> None:
    now = Moment("boot", 5000.0, 1_800_000_000.0)
    known = AccountIndex(StateDirectory(tmp_path), lambda: now)
    known.add(ME, "file")
    known.remove(ME)
    (path,) = tmp_path.glob("*.json")
    assert "example" not in path.read_text()

    for wall in (now.wall + 7200, now.wall - 7200):  # steps of the wall clock
        now = now._replace(seconds=now.seconds + 1795, wall=wall)
        known.remove(OTHER)
        assert len(list(tmp_path.glob("*.json"))) == 2
    now = now._replace(seconds=now.seconds + 11)
    known.remove(Identity("https://third.test", "me"))

    assert not path.exists()
    assert not known.was_logged_out(ME, since=LogoutMarkers("a marker from before", ""))  # no login takes that long


def test_an_empty_entry_of_an_earlier_version_is_removed_by_its_modification_time(tmp_path: Path) -> None:
    known = AccountIndex(StateDirectory(tmp_path))
    for number, path in enumerate((tmp_path / f"{ME.key}.json", tmp_path / f"{OTHER.key}.json")):
        path.write_text('{"mark": "a", "revision": "b", "storages": []}')
        path.chmod(0o600)
        os.utime(path, (path.stat().st_mtime - 3500 - 200 * number,) * 2)

    known.remove(Identity("https://third.test", "me"))

    assert ((tmp_path / f"{ME.key}.json").exists(), (tmp_path / f"{OTHER.key}.json").exists()) == (True, False)


def test_the_index_is_private_and_contains_no_secret(known: AccountIndex, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        known.add(ME, "file")
    finally:
        os.umask(before)

    (path,) = (tmp_path / "known").iterdir()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "known", path)] == [0o700, 0o600]


def _entry_with(base_url: str = "https://a", username: str = "me", location: str = "{}") -> bytes:
    """Return an entry with these parts, which are written as in JSON; it is valid without arguments."""
    store = f'{{"storage": "file", "location": {location}, "obtained_at": null, "is_written": true}}'
    account = f'"base_url": "{base_url}", "username": "{username}"'
    return f'{{"mark": "a", "revision": "b", "stores": [{store}], {account}}}'.encode()


@pytest.mark.parametrize("username", ["me", r"\udcff", r"a\u0000b"])
def test_an_entry_is_valid_with_any_username_that_the_environment_or_the_config_file_can_contain(
    known: AccountIndex, username: str
) -> None:
    identity = Identity("https://a", json.loads(f'"{username}"'))
    known.add(ME, "file")
    known.file(identity).replace(_entry_with(username=username))

    assert (identity in known.all(), known.is_damaged()) == (True, False)


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
        b'{"mark": "a", "revision": "b", "stores": [{"storage": "file"}], "base_url": "https://a", "username": "me"}',
        b'{"mark": "a", "revision": "b", "stores": [{"location": {"a": 1}}], "base_url": "https://a", "username": "m"}',
        _entry_with(username=r"\ud800"),
        _entry_with(base_url=r"https://\ud800"),
        _entry_with(base_url="https://["),
        _entry_with(base_url="https://A"),
        _entry_with(location=r'{"redis_url": "unix:///\ud800"}'),
        _entry_with(location=r'{"DBUS_SESSION_BUS_ADDRESS": "a\u0000b"}'),
    ],
    ids=range(17),
)
def test_an_invalid_entry_is_ignored_and_can_be_replaced(known: AccountIndex, data: bytes) -> None:
    known.add(ME, "file")
    (path,) = known._directory.path.iterdir()  # noqa: SLF001 - where the garbage is to go
    path.write_bytes(data)

    assert (known.all(), known.is_damaged()) == ([], True)
    known.add(ME, "keyring")
    known.add(ME, "file")
    assert not known.is_damaged()
    assert sorted(_storages(known, ME)) == ["file", "keyring"]


def _storages(known: AccountIndex, identity: Identity) -> list[str]:
    return [store.storage for store in known.stores(identity)]

"""The index of accounts, and how a login in progress detects a logout."""

import json
import stat
from pathlib import Path

import pytest

from xapi_cli.store.index import AccountIndex, KnownStore
from xapi_cli.system.files import StateDirectory
from xapi_cli.tokens import Identity

ME, OTHER = Identity("https://api.test", "me@example.com"), Identity("https://api.test/v2", "m\udcff")
FILE, KEYRING = KnownStore("file", {}), KnownStore("keyring", {"PYTHON_KEYRING_BACKEND": "a.B"})


@pytest.fixture
def index(tmp_path: Path) -> AccountIndex:
    return AccountIndex(StateDirectory(tmp_path))


def test_each_account_has_the_stores_that_were_added_until_they_are_replaced(index: AccountIndex) -> None:
    assert (index.accounts(), index.stores(ME)) == ([], [])

    for store in (FILE, KEYRING, FILE):
        index.add(ME, store)
    index.add(OTHER, FILE)

    assert sorted(index.accounts()) == sorted([ME, OTHER])
    assert (index.stores(ME), index.stores(OTHER)) == ([FILE, KEYRING], [FILE])
    index.replace(ME, [KEYRING])
    index.replace(OTHER, [])
    assert (index.accounts(), index.stores(ME)) == ([ME], [KEYRING])


def test_a_storage_at_two_places_is_two_stores(index: AccountIndex) -> None:
    one, two = (KnownStore("redis", {"redis_url": f"redis://{host}:6379/0"}) for host in ("one", "two"))

    for store in (one, two, one):
        index.add(ME, store)

    assert index.stores(ME) == [one, two]


@pytest.mark.parametrize("logged_out", [ME, None], ids=["the account", "all accounts"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_login_detects_a_logout_since_it_began(
    index: AccountIndex, logged_out: Identity | None, *, is_known: bool
) -> None:
    if is_known:
        index.add(ME, FILE)
    began = index.logout_marks(ME)
    index.add(ME, KEYRING)  # by another login
    index.mark_logout(OTHER)
    assert index.logout_marks(ME) == began

    index.mark_logout(logged_out)

    assert index.logout_marks(ME) != began
    assert index.accounts() == [ME]  # the caller removes it


def test_the_index_is_private(index: AccountIndex, tmp_path: Path) -> None:
    index.add(ME, FILE)

    (path,) = (tmp_path / "known").iterdir()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)] == [0o700, 0o600]


VALID = {**ME._asdict(), "stores": [FILE._asdict()]}


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "\xff",
        "[" * 50_000,
        "{}",
        json.dumps(VALID | {"username": "another"}),  # the name of the file is that of the account
        json.dumps(VALID | {"username": 1}),
        json.dumps(VALID | {"stores": "file"}),
        json.dumps(VALID | {"stores": [{"storage": "file"}]}),
        json.dumps(VALID | {"stores": [FILE._asdict() | {"place": 1}]}),
        json.dumps(VALID | {"username": "\ud800"}),
    ],
    ids=range(10),
)
def test_an_entry_that_is_not_valid_can_be_replaced(index: AccountIndex, tmp_path: Path, entry: str) -> None:
    index.add(ME, FILE)
    (path,) = (tmp_path / "known").iterdir()
    path.write_text(entry, encoding="latin-1")

    assert (index.accounts(), index.stores(ME)) == ([], [])
    index.add(ME, KEYRING)
    assert (index.accounts(), index.stores(ME)) == ([ME], [KEYRING])

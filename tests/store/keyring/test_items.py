"""The names of the items in a keyring, and the items of earlier versions."""

import json
from pathlib import Path

import pytest

from tests.store.conftest import Open
from tests.store.keyring.processes import ME
from xapi_cli.errors import StoreError
from xapi_cli.store.keyring.items import services_of
from xapi_cli.tokens import Identity, Record, Token

ANNA = Identity("https://api.test", "Anna@example.com")
LONG, SHORT = Record(Token("a" * 5000)), Record(Token("b"))


def test_each_account_has_one_service_name_of_safe_characters() -> None:
    assert services_of(ME) == ["xapi:me@example.com@https://api.test"]
    assert services_of(Identity("https://api.test", "a\0\udcff\n\\b")) == [
        "xapi:a\\u0000\\udcff\\u000a\\u005cb@https://api.test"
    ]


def test_accounts_that_differ_only_in_case_have_different_service_names() -> None:
    accounts = [
        Identity(f"https://api.test/{path}", name)
        for path in ("a", "A")
        for name in ("anna", "Anna", "ANNA", "stra\xdfe", "strasse")
    ]
    names = [services_of(account)[0] for account in accounts]
    assert len({name.casefold() for name in names}) == len(names)


def _rename_as_in_earlier_versions(items: Path) -> None:
    current, earlier = services_of(ANNA)
    items.write_text(items.read_text().replace(current, earlier))


@pytest.mark.parametrize("kind", ["Plain", "Windows"])
@pytest.mark.parametrize("record", [SHORT, LONG], ids=["short", "long"])
def test_a_record_of_an_earlier_version_is_read_replaced_and_deleted(
    opened: Open, tmp_path: Path, kind: str, record: Record
) -> None:
    items = tmp_path / "items.json"
    opened(kind).write(ANNA, record)
    _rename_as_in_earlier_versions(items)
    assert opened(kind).read(ANNA) == record

    opened(kind).write(ANNA, SHORT)

    assert [service for service, _, _ in json.loads(items.read_text())] == services_of(ANNA)[:1]
    assert opened(kind).read(ANNA) == SHORT
    opened(kind).write(ANNA, record)
    _rename_as_in_earlier_versions(items)
    assert opened(kind).delete(ANNA) is True
    assert (json.loads(items.read_text()), opened(kind).delete(ANNA)) == ([], False)


def test_the_record_of_another_account_under_the_name_of_an_earlier_version_is_kept(opened: Open) -> None:
    other = ANNA._replace(username="anna@example.com")
    opened("Windows").write(other, SHORT)

    assert opened("Windows").read(ANNA) is None
    opened("Windows").write(ANNA, LONG)
    assert opened("Windows").delete(ANNA) is True
    assert opened("Windows").read(other) == SHORT


def test_a_record_of_an_earlier_version_that_cannot_be_deleted_is_no_longer_read_and_a_logout_reports_it(
    opened: Open, tmp_path: Path
) -> None:
    opened("Plain").write(ANNA, LONG)
    _rename_as_in_earlier_versions(tmp_path / "items.json")

    opened("Undeletable").write(ANNA, SHORT)

    assert opened("Undeletable").read(ANNA) == SHORT
    with pytest.raises(StoreError, match="PasswordDeleteError"):
        opened("Undeletable").delete(ANNA)

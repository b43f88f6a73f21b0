"""The contract of every store, tested for each row of the registry and for fake keyrings."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.conftest import Open
from xapi_cli.errors import StoreError
from xapi_cli.feature_table import Storage
from xapi_cli.store.protocol import Store
from xapi_cli.store.registry import STORES, selected
from xapi_cli.tokens import Identity, Record, Token

ME = Identity("https://api.test", "me@example.com")
OTHER = Identity("https://api.test", "Me@example.com")
ELSEWHERE = Identity("https://api.test/v2", "me@example.com")
ODD = Identity("https://xn--bcher-kva.test:8443/a", "\udcff b\u00fc\u202ccher\0'\"\\%")
SHORT = Record(Token("short"))
KEYRINGS = ["Plain", "Windows", "MacOS", "Truncating"]  # of tests/support/keyrings
IN_OTHER_PROCESSES = {"keyring", "helper"}  # each operation takes long
KINDS = [storage.name for storage in STORES] + KEYRINGS


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def storage(kind: str) -> Storage:
    return selected("keyring" if kind in KEYRINGS else kind)


@pytest.fixture
def store(request: pytest.FixtureRequest, kind: str, opened: Open) -> Store:
    if kind == "keyring":
        request.getfixturevalue("gnome")
    return opened(kind)


def test_a_new_store_is_empty(store: Store) -> None:
    assert store.read(ME) is None
    assert store.delete(ME) is False


def test_a_written_record_is_read(store: Store) -> None:
    store.probe()
    store.write(ME, SHORT)
    assert store.read(ME) == SHORT


def test_a_record_is_replaced(store: Store) -> None:
    for token in ("first", "second"):
        store.write(ME, Record(Token(token)))
    assert store.read(ME) == Record(Token("second"))


def test_a_deleted_record_is_not_read(store: Store) -> None:
    store.write(ME, SHORT)
    assert store.delete(ME) is True
    assert store.read(ME) is None
    assert store.delete(ME) is False


def test_accounts_are_separate(store: Store) -> None:
    identities = [ME, OTHER, ELSEWHERE, ODD]
    for identity in (*identities, ME):
        store.write(identity, Record(Token(identity.key)))
    assert [store.read(identity) for identity in identities] == [Record(Token(one.key)) for one in identities]
    store.delete(OTHER)
    assert [store.read(identity) is None for identity in identities] == [False, True, False, False]


def test_a_password_is_stored_only_if_the_storage_remembers_passwords(store: Store, storage: Storage) -> None:
    store.write(ME, Record(Token("token"), "pass\u00e9 \udcff'\"\\\n"))
    expected = "pass\u00e9 \udcff'\"\\\n" if storage.remembers_passwords else None
    assert store.read(ME) == Record(Token("token"), expected)
    store.write(ME, SHORT)
    assert store.read(ME) == SHORT


@pytest.mark.parametrize(
    "kind, length",
    [
        pytest.param(kind, length, marks=pytest.mark.slow if kind in IN_OTHER_PROCESSES and length != 1281 else ())
        for kind in KINDS
        for length in (900, 1281, 65536)
    ],
)
def test_a_long_token_is_stored_intact_and_can_be_replaced_by_a_short_one(store: Store, length: int) -> None:
    long = Record(Token("x" * length))
    for record in (long, Record(Token("y" * length)), SHORT):
        store.write(ME, record)
        assert store.read(ME) == record
    store.write(ME, long)
    assert store.delete(ME) is True
    assert store.read(ME) is None


def test_a_second_store_reads_what_the_first_wrote(store: Store, storage: Storage, kind: str, opened: Open) -> None:
    for record in (SHORT, Record(Token("z" * 3000))):
        store.write(ME, record)
        assert opened(kind).read(ME) == (record if storage.is_persistent else None)


def test_an_oversized_token_is_rejected_and_the_old_one_remains(store: Store, storage: Storage) -> None:
    if not storage.is_persistent:
        return
    store.write(ME, SHORT)
    with pytest.raises(StoreError, match="too long"):
        store.write(ME, Record(Token("x" * 300_000)))
    assert store.read(ME) == SHORT


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind in IN_OTHER_PROCESSES else ()) for kind in KINDS]
)
def test_any_sequence_of_writes_and_deletes_has_the_result_of_a_dict(store: Store, kind: str) -> None:
    examples = settings(max_examples=4 if kind == "helper" else 15)  # an operation of the others starts no process
    examples(given(_STEPS)(lambda steps: _compare_with_a_dict(store, steps)))()


_STEPS = st.lists(
    st.tuples(st.sampled_from([ME, OTHER, ELSEWHERE]), st.none() | st.sampled_from([1, 700, 1100, 1250, 1300, 2600])),
    max_size=6,
)


def _compare_with_a_dict(store: Store, steps: list[tuple[Identity, int | None]]) -> None:
    model: dict[Identity, Record] = {}
    for identity in (ME, OTHER, ELSEWHERE):
        store.delete(identity)
    for number, (identity, length) in enumerate(steps):
        if length is None:
            assert store.delete(identity) is (model.pop(identity, None) is not None)
        else:
            model[identity] = Record(Token(str(number) * length))
            store.write(identity, model[identity])
    assert {one: found for one in (ME, OTHER, ELSEWHERE) if (found := store.read(one))} == model

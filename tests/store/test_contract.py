"""What every store promises, whatever it is made of."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.conftest import Open
from xapi_cli.errors import StoreError
from xapi_cli.store.registry import Store
from xapi_cli.tokens import Identity, Record, Token

ME = Identity("https://api.test", "me@example.com")
OTHER = Identity("https://api.test", "Me@example.com")
ELSEWHERE = Identity("https://api.test/v2", "me@example.com")
ODD = Identity("https://xn--bcher-kva.test:8443/a", "\udcff b\u00fc\u202ccher\0'\"\\%")
SHORT = Record(Token("short"))
KINDS = ["none", "file", "keyring", "Plain", "Windows", "MacOS", "Duplicating", "Cutting"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, opened: Open) -> Store:
    if request.param == "keyring":
        request.getfixturevalue("gnome")
    store = opened(request.param)
    for identity in (ME, OTHER, ELSEWHERE, ODD):
        store.delete(identity)
    return store


def test_nothing_is_there_at_first(store: Store) -> None:
    assert store.read(ME) is None
    assert store.delete(ME) is False


def test_what_was_written_is_read(store: Store) -> None:
    store.probe()
    store.write(ME, SHORT)
    assert store.read(ME) == SHORT


def test_a_record_is_replaced(store: Store) -> None:
    for token in ("first", "second", "third"):
        store.write(ME, Record(Token(token)))
    assert store.read(ME) == Record(Token("third"))


def test_what_was_deleted_is_gone(store: Store) -> None:
    store.write(ME, SHORT)
    assert store.delete(ME) is True
    assert store.read(ME) is None
    assert store.delete(ME) is False


def test_accounts_do_not_know_each_other(store: Store) -> None:
    identities = [ME, OTHER, ELSEWHERE, ODD]
    for identity in identities:
        store.write(identity, Record(Token(identity.key)))
    assert [store.read(identity) for identity in identities] == [Record(Token(one.key)) for one in identities]
    store.delete(OTHER)
    assert [store.read(identity) is None for identity in identities] == [False, True, False, False]


def test_a_password_is_kept_where_the_store_remembers_and_only_there(store: Store) -> None:
    store.write(ME, Record(Token("token"), "pass\u00e9 \udcff'\"\\\n"))
    expected = "pass\u00e9 \udcff'\"\\\n" if store.remembers else None
    assert store.read(ME) == Record(Token("token"), expected)
    store.write(ME, SHORT)
    assert store.read(ME) == SHORT


@pytest.mark.parametrize("length", [900, 1200, 1281, 5000, 65536])
def test_a_long_token_is_kept_whole_and_makes_room_for_a_short_one(store: Store, length: int) -> None:
    long = Record(Token("x" * length))
    for record in (SHORT, long, Record(Token("y" * length)), long, SHORT):
        store.write(ME, record)
        assert store.read(ME) == record
    store.write(ME, long)
    assert store.delete(ME) is True
    assert store.read(ME) is None


def test_a_second_visitor_finds_what_the_first_wrote(store: Store, opened: Open) -> None:
    store.write(ME, SHORT)
    if store.name == "none":
        assert opened("none").read(ME) is None
    elif store.name == "file":
        assert opened("file").read(ME) == SHORT
    else:
        store.write(ME, Record(Token("z" * 3000)))
        assert store.read(ME) == Record(Token("z" * 3000))


def test_a_token_beyond_all_limits_is_refused_and_the_old_one_stays(store: Store) -> None:
    store.write(ME, SHORT)
    if store.name == "none":
        return
    with pytest.raises(StoreError, match="too long"):
        store.write(ME, Record(Token("x" * 300_000)))
    assert store.read(ME) == SHORT


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from([ME, OTHER, ELSEWHERE]), st.none() | st.sampled_from([1, 700, 1100, 1250, 1300, 2600])
        ),
        max_size=6,
    )
)
def test_any_sequence_of_writes_and_deletes_ends_as_in_a_dict(
    store: Store, steps: list[tuple[Identity, int | None]]
) -> None:
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

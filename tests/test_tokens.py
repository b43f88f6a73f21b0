import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.errors import StoreError
from xapi_cli.tokens import MAX_RECORD, Identity, Record, Token, decode_record, encode_record

ME = Identity("https://api.test/v1", "me@example.com")
TOKEN = Token("abc", "bearer", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))

visible = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=200)
argv_text = st.binary(max_size=30).map(lambda data: data.decode("utf-8", "surrogateescape"))
times = st.none() | st.datetimes(timezones=st.just(UTC))
tokens = st.builds(Token, visible, st.just("bearer"), times, times)
identities = st.builds(Identity, argv_text, argv_text)
records = st.builds(Record, tokens, st.none() | argv_text.filter(bool))


def members(**changes: object) -> str:
    return json.dumps({**json.loads(encode_record(ME, Record(TOKEN, "secret"))), **changes})


@given(identities, records)
def test_an_encoded_record_decodes_to_itself(identity: Identity, record: Record) -> None:
    text = encode_record(identity, record)
    assert text.isascii()
    assert "\n" not in text
    assert decode_record(identity, text) == record


def test_the_text_is_readable_json() -> None:
    assert json.loads(encode_record(ME, Record(TOKEN))) == {
        "version": 1,
        "base_url": "https://api.test/v1",
        "username": "me@example.com",
        "access_token": "abc",
        "token_type": "bearer",
        "obtained_at": "2026-01-02T03:04:05Z",
        "expires_at": "2026-02-01T00:00:00Z",
    }


@given(records, st.data())
def test_a_truncated_text_is_not_a_record(record: Record, data: st.DataObject) -> None:
    text = encode_record(ME, record)
    assert decode_record(ME, text[: data.draw(st.integers(0, len(text) - 1))]) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = ["version", "base_url", "username", "access_token", "token_type", "obtained_at", "expires_at", "password"]


@given(st.sampled_from(NAMES), json_values)
def test_any_value_in_any_place_is_a_record_or_none(name: str, value: object) -> None:
    record = decode_record(ME, members(**{name: value}))
    assert record is None or isinstance(record.token.access_token, str)
    if record is not None and name == "password":
        assert record.password == value


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{}",
        "null",
        "[" * 100_000,
        '{"version": ' + "1" * 5000 + "}",
        members(version=2),
        members(base_url="https://other.test"),
        members(username="Me@example.com"),
        members(access_token=""),
        members(access_token="a b"),
        members(access_token="\u00e9"),
        members(token_type="mac"),
        members(obtained_at="2026-01-02T03:04:05"),
        members(expires_at="soon"),
        members(expires_at="9999-12-31T23:59:59-23:59"),
        members(expires_at=float("nan")),
        members(password=""),
        members(password=["x"]),
        members(password="\ud800"),
        members(filler="x" * MAX_RECORD),
        json.dumps([json.loads(members())]),
    ],
)
def test_anything_but_a_record_of_the_account_is_none(text: str | None) -> None:
    assert decode_record(ME, text) is None


def test_unknown_members_are_ignored() -> None:
    assert decode_record(ME, members(scope="all")) == Record(TOKEN, "secret")


def test_a_token_of_64_kib_fits_and_one_beyond_the_limit_is_rejected() -> None:
    long = Record(Token("x" * 65536))
    assert decode_record(ME, encode_record(ME, long)) == long
    with pytest.raises(StoreError, match="too long"):
        encode_record(ME, Record(Token("x" * MAX_RECORD)))


def test_no_repr_contains_a_secret() -> None:
    shown = repr(decode_record(ME, members(access_token="CANARY1", password="CANARY2")))
    assert "CANARY" not in shown

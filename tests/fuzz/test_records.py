"""Any content of a store is a token that can be sent, or no token."""

import json
from datetime import UTC, datetime, timedelta

from hypothesis import given

from tests.fuzz.mutations import mutated
from xapi_cli.tokens import Identity, Record, Token, decode_record, encode_record

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
ME = Identity("https://api.test/v1", "me@example.com")
TOKEN = Token("good", "bearer", NOW, NOW + timedelta(days=30))
RECORDS = [
    encode_record(ME, Record(TOKEN)).encode(),
    encode_record(ME, Record(TOKEN, "a password")).encode(),
    encode_record(ME, Record(Token("good"))).encode(),
    encode_record(Identity("https://other.test", "you"), Record(TOKEN)).encode(),
    json.dumps({"version": 2, "secret": ["another", "time"]}).encode(),
]


@given(mutated(RECORDS))
def test_any_content_of_a_store_is_a_valid_token_or_none(data: bytes) -> None:
    record = decode_record(ME, data.decode("utf-8", "surrogateescape"))
    if record is not None:
        assert record.token.access_token
        assert all("!" <= char <= "~" for char in record.token.access_token)
        assert isinstance(record.token.lasts(NOW, 60), bool)
        assert record.token.seconds_left(NOW) is None or record.token.expires_at
        assert record.password is None or isinstance(record.password, str)

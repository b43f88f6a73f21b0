"""Any content of a store is a token that can be sent, or no token."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import HealthCheck, given, settings

from tests.fuzz.mutations import mutated
from xapi_cli.store.file import FileStore
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.system.files import StateDirectory
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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # each example rewrites its file
@given(mutated(RECORDS))
def test_any_file_content_is_a_valid_token_or_none(tmp_path: Path, data: bytes) -> None:
    store = FileStore(StoreOptions(StateDirectory(tmp_path), {}, print))
    if not (tmp_path / "tokens").exists():
        store.write(ME, Record(TOKEN))
    (path,) = (tmp_path / "tokens").iterdir()
    path.write_bytes(data)

    _check(store.read(ME))


@given(mutated(RECORDS))
def test_any_keyring_content_is_a_valid_token_or_none(data: bytes) -> None:
    _check(decode_record(ME, data.decode("utf-8", "surrogateescape")))


def _check(record: Record | None) -> None:
    if record is not None:
        assert record.token.access_token
        assert all("!" <= char <= "~" for char in record.token.access_token)
        assert isinstance(record.token.lasts(NOW, 60), bool)
        assert record.token.seconds_left(NOW) is None or record.token.expires_at
        assert record.password is None or isinstance(record.password, str)

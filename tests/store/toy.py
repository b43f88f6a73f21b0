"""Run xapi with an additional storage, `toy`: one row and one class, as for every storage."""

import json
import sys
from pathlib import Path

from xapi_cli.__main__ import main
from xapi_cli.feature_table import Storage
from xapi_cli.store import registry
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.tokens import Identity, Record, decode_record, encode_record


class ToyStore:
    """Store all records, including passwords, in the JSON file that TOY_FILE names."""

    def __init__(self, options: StoreOptions) -> None:
        self._path = Path(options.environ["TOY_FILE"])

    def probe(self) -> None:
        self._records()

    def read(self, identity: Identity) -> Record | None:
        return decode_record(identity, self._records().get(identity.key))

    def write(self, identity: Identity, record: Record) -> None:
        self._path.write_text(json.dumps(self._records() | {identity.key: encode_record(identity, record)}))

    def delete(self, identity: Identity) -> bool:
        found = self._records()
        is_stored = found.pop(identity.key, None) is not None
        self._path.write_text(json.dumps(found))
        return is_stored

    def _records(self) -> dict[str, str]:
        return dict(json.loads(self._path.read_text() if self._path.exists() else "{}"))


registry.STORES = (
    *registry.STORES,
    Storage("toy", "the toy file", "__main__:ToyStore", remembers_passwords=True),
    Storage("missing", "a service", "missing:Store", extra="missing"),
)

if __name__ == "__main__":
    sys.exit(main())

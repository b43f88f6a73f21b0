"""Storage `none`: records live as long as the process."""

from typing import Literal

from xapi_cli.tokens import Identity, Record


class MemoryStore:
    """Keep tokens for the life of the process."""

    name: Literal["none"] = "none"
    remembers = False

    def __init__(self) -> None:
        self._records: dict[Identity, Record] = {}

    def probe(self) -> None:
        """Do nothing: memory is there."""

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*."""
        return self._records.get(identity)

    def write(self, identity: Identity, record: Record) -> None:
        """Keep the token of *record*."""
        self._records[identity] = Record(record.token)

    def delete(self, identity: Identity) -> bool:
        """Forget *identity*; tell whether there was something to forget."""
        return self._records.pop(identity, None) is not None

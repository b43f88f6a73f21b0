"""Storage `none`: records exist as long as the process."""

from xapi_cli.tokens import Identity, Record


class MemoryStore:
    """Store tokens in the memory of the process."""

    def __init__(self) -> None:
        self._records: dict[Identity, Record] = {}

    def probe(self) -> None:
        """Do nothing: memory is always available."""

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none."""
        return self._records.get(identity)

    def write(self, identity: Identity, record: Record) -> None:
        """Store the token of *record*, without the password."""
        self._records[identity] = Record(record.token)

    def delete(self, identity: Identity) -> bool:
        """Delete the record of *identity*; return whether there was one."""
        return self._records.pop(identity, None) is not None

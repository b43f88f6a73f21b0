"""What keeps the record of an account: the keyring, a file, or nothing but the process."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

from xapi_cli.tokens import Identity, Record

StoreName = Literal["keyring", "file", "none"]


class Store(Protocol):
    """A place for records; each method raises StoreError when the place cannot be used."""

    @property
    def name(self) -> StoreName:
        """What the setting `storage` calls it."""

    @property
    def remembers(self) -> bool:
        """Whether it keeps passwords; where not, it drops them from the records it is given."""

    def probe(self) -> None:
        """Raise StoreError unless a record could be kept."""

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None where there is none, or one that cannot be used."""

    def write(self, identity: Identity, record: Record) -> None:
        """Keep *record*; when that fails, the old one is still there."""

    def delete(self, identity: Identity) -> bool:
        """Leave nothing of *identity* behind; tell whether there was anything."""


def open_store(
    name: StoreName,
    *,
    state: Path,
    environ: Mapping[str, str],
    notify: Callable[[str], None],
    patience: float = 3.0,
    unlock_wait: float | None = None,
    quietly: bool = True,
) -> Store:
    """Return the store called *name*.

    *state* is the folder for files and locks, *notify* is told what a person should know. A keyring gets *patience*
    seconds to answer; with *unlock_wait* somebody is there to unlock it, and it gets that many, after saying so.
    While it is visited, *quietly*, nobody in this process reads from or writes to the standard streams.
    """
    if name == "none":
        from xapi_cli.store.memory import MemoryStore

        return MemoryStore()
    if name == "file":
        from xapi_cli.store.file import FileStore

        return FileStore(state, notify)
    from xapi_cli.store.keyring.store import KeyringStore

    return KeyringStore(state, environ, notify, patience=patience, unlock_wait=unlock_wait, quietly=quietly)

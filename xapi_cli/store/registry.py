"""The stores for the record of an account: the keyring, a file, or the memory of the process."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

from xapi_cli.tokens import Identity, Record

StoreName = Literal["keyring", "file", "none"]


class Store(Protocol):
    """A store for records; each method raises StoreError if the store is not usable."""

    @property
    def name(self) -> StoreName:
        """The value of the setting `storage` that selects the store."""

    @property
    def remembers(self) -> bool:
        """Whether the store can store passwords; if not, it drops them from records."""

    def probe(self) -> None:
        """Raise StoreError unless a record could be stored."""

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none or it is not usable."""

    def write(self, identity: Identity, record: Record) -> None:
        """Store *record*; after a failure, the previous one is intact."""

    def delete(self, identity: Identity) -> bool:
        """Delete everything that is stored for *identity*; return whether there was anything."""


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

    *state* is the directory for files and locks; *notify* receives messages for the user. The timeout of a keyring is
    *patience* seconds. With *unlock_wait*, the user is present to unlock it: the timeout is then at least that many
    seconds, and a message is shown. If *quietly*, the standard streams of this process are redirected to the null
    device during each visit.
    """
    if name == "none":
        from xapi_cli.store.memory import MemoryStore

        return MemoryStore()
    if name == "file":
        from xapi_cli.store.file import FileStore

        return FileStore(state, notify)
    from xapi_cli.store.keyring.store import KeyringStore

    return KeyringStore(state, environ, notify, patience=patience, unlock_wait=unlock_wait, quietly=quietly)

"""The opt-in cache of the keyring: records that were read from it, in the memory of the agent.

A cached record has a tag. It is valid while the tag is that of the account's entry in the index, which every login and
every logout changes. A keyring that another program changes is not noticed, so only the first read of a command uses
the cache: after a 401, the keyring itself is read.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from xapi_cli.errors import StoreError
from xapi_cli.store.account_index import AccountIndex
from xapi_cli.store.agent.client import KeeperClient
from xapi_cli.store.agent.messages import key_of
from xapi_cli.store.keyring import SELECTED_BY
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.tokens import Identity, Record, decode_record, encode_record, sha256

if TYPE_CHECKING:
    from xapi_cli.store.keyring.store import KeyringStore

_TIME_LIMIT = 1.0  # seconds; then the keyring is used


class CachedKeyringStore:
    """The store of the keyring with a cache in front of it; without an agent, it is the keyring alone."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        self._cache = KeeperClient(options.environ, _TIME_LIMIT)
        self._index = AccountIndex.of(options.state)
        self._loaded: KeyringStore | None = None
        self._has_read = False

    @property
    def backend(self) -> str | None:
        """The class of the backend in use, or None if the keyring has not been used."""
        return None if self._loaded is None else self._loaded.backend

    def probe(self) -> None:
        """Raise StoreError unless the keyring can store a record."""
        self._keyring.probe()

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none; only the first read uses the cache."""
        tag = self._tag(identity)  # before the keyring is read: a login after that makes what is cached invalid
        if not self._has_read and tag and (cached := self._cached(identity, tag)) is not None:
            return cached
        self._has_read = True
        record = self._keyring.read(identity)
        if tag and record is not None:
            with suppress(StoreError):
                self._cache.put(key_of(identity, "c"), f"{tag}\n{encode_record(identity, record)}".encode("ascii"))
        return record

    def write(self, identity: Identity, record: Record) -> None:
        """Store *record* in the keyring; after a failure, the previous one is intact."""
        self._keyring.write(identity, record)
        self._forget(identity)

    def delete(self, identity: Identity) -> bool:
        """Delete everything that is stored for *identity*; return whether the keyring contained anything."""
        self._forget(identity)
        return self._keyring.delete(identity)

    @property
    def _keyring(self) -> "KeyringStore":
        if self._loaded is None:
            from xapi_cli.store.keyring.store import KeyringStore

            self._loaded = KeyringStore(self._options)
        return self._loaded

    def _cached(self, identity: Identity, tag: str) -> Record | None:
        self._has_read = True
        try:
            data, _ = self._cache.get(key_of(identity, "c"))
        except StoreError:
            return None
        cached_tag, _, text = (data or b"").decode("ascii", "replace").partition("\n")
        return decode_record(identity, text) if cached_tag == tag else None

    def _tag(self, identity: Identity) -> str | None:
        """Return the tag of a record that is valid now, None if the index does not list one in the keyring."""
        try:
            revision = self._index.revision(identity, "keyring")
        except OSError:
            return None
        if revision is None:
            return None
        selection = (self._options.environ.get(name, "") for name in SELECTED_BY)
        return sha256("\0".join([str(self._options.state.path), revision, *selection]))

    def _forget(self, identity: Identity) -> None:
        with suppress(StoreError):
            self._cache.erase(key_of(identity, "c"))

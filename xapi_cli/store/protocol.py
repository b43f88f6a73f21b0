"""The interface that a storage implements, and what it is opened with."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from xapi_cli.errors import StoreError
from xapi_cli.hints import Hint
from xapi_cli.tokens import Identity, Record

if TYPE_CHECKING:
    from xapi_cli.system.files import StateDirectory
    from xapi_cli.system.lock import LockUnavailable

UNLOCK_WAIT = 60.0  # seconds that the user has to unlock the keyring


class StoreOptions(NamedTuple):
    """What a storage may need in order to open its store.

    *state* is the directory for files and locks. *warn* receives messages for the user, *on_lock_failure* the error if
    that directory cannot be used for locks, which is not an error of the store. An external service must respond within
    *timeout* seconds. With *unlock_wait*, the user is present to unlock it: it then has that many seconds, and a
    message is shown. *settings* are the values of the settings that the rows of the registry name.
    """

    state: "StateDirectory"
    environ: Mapping[str, str]
    warn: Callable[[Hint], None]
    on_lock_failure: "Callable[[OSError | LockUnavailable], None]" = lambda error: None
    timeout: float = 3.0
    unlock_wait: float | None = None
    settings: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        return f"StoreOptions({self.state.path!r}, …)"  # the environment contains secrets


class Store(Protocol):
    """A store for records; each method raises StoreError if the store is not usable."""

    def probe(self) -> None:
        """Raise StoreError unless a record could be stored."""

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none or it is not usable."""

    def write(self, identity: Identity, record: Record) -> None:
        """Store *record*; after a failure, the previous one is intact."""

    def delete(self, identity: Identity) -> bool:
        """Delete everything that is stored for *identity*; return whether there was anything."""


class LockLost(StoreError):
    """A login took longer than its lock lasted, so that another one may have begun; nothing was stored."""


class NoBackend(StoreError):
    """The machine does not have what the store needs, so the store cannot contain anything."""

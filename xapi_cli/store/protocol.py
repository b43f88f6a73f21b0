"""The interface that every store implements, and what a store is opened with."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from xapi_cli.errors import StoreError
from xapi_cli.tokens import Identity, Record

if TYPE_CHECKING:
    from xapi_cli.system.lock import LockUnavailable


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


class LockingStore(Store, Protocol):
    """A store whose row in the registry says `has_own_lock`."""

    def begin(self, identity: Identity) -> None:
        """Record that a login begins: `write` raises LoggedOut if the record is deleted in the meantime."""

    def locked(self, identity: Identity, timeout: float) -> AbstractContextManager[None]:
        """Hold the login lock of *identity*, in place of a lock file; raises LockTimeout after *timeout* seconds."""


class StoreOptions(NamedTuple):
    """What a storage may need in order to open its store.

    *state* is the directory for files and locks. *warn* receives messages for the user, *on_lock_failure* the error if
    a lock in the state directory cannot be used, which is not an error of the store. An external service must respond
    within *timeout* seconds. With *unlock_wait*, the user is present to unlock it: the timeout is then at least that
    many seconds, and a message is shown. With *silence*, the standard streams of this process are redirected to the
    null device while third-party code runs. With *keyring_cache*, what is read from the keyring is cached in the agent.
    """

    state: Path
    environ: Mapping[str, str]
    warn: Callable[[str], None]
    on_lock_failure: "Callable[[LockUnavailable], None]" = lambda error: None
    timeout: float = 3.0
    unlock_wait: float | None = None
    silence: bool = True
    keyring_cache: bool = False

    def __repr__(self) -> str:
        return f"StoreOptions({self.state!r}, …)"  # the environment contains secrets


class LoggedOut(Exception):
    """The account was logged out after the login that wants to store a record had begun."""


class NoBackend(StoreError):
    """The machine does not have what the store needs, so the store cannot contain anything."""

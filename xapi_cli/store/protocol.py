"""What a storage implements: a store of records, and the session in which a login to one account uses it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from xapi_cli.errors import StoreError
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
    warn: Callable[[str], None]
    on_lock_failure: "Callable[[OSError | LockUnavailable], None]" = lambda error: None
    timeout: float = 3.0
    unlock_wait: float | None = None
    settings: Mapping[str, Any] = MappingProxyType({})

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


class Failures(Protocol):
    """Where login failures are recorded, for a minute: one JSON object per account and kind.

    The processes that share the login lock share the failures. Recording and removing is not an error if it fails.
    """

    def now(self) -> float:
        """Return the time in seconds, by a clock that these processes share; raise StoreError if it has none."""

    def read(self, identity: Identity, kind: str) -> bytes | None:
        """Return the text, or None if there is none; raise StoreError if a shared store cannot be used."""

    def write(self, identity: Identity, kind: str, data: bytes) -> None:
        """Record *data*."""

    def remove(self, identity: Identity, kinds: Sequence[str]) -> None:
        """Remove the records of *kinds*."""


class LoginSession(Protocol):
    """Logins to one account: begin, hold the lock, check for a logout, store the record."""

    margin: float  # seconds that a process waits for another process's login, beyond the limit of a login
    failures: Failures

    def begin(self) -> None:
        """Record that a login begins, so that `write` detects a logout during it."""

    def was_logged_out(self) -> bool:
        """Return whether the account is known to have been logged out since `begin`, so that `write` would refuse."""

    def locked(
        self, timeout: float, *, stop_on_login: bool = False, required: bool = True
    ) -> AbstractContextManager[None]:
        """Hold the login lock; wait at most *timeout* seconds for it.

        Raises LockTimeout; if the lock is not *required*, continues without it, or takes it over. With *stop_on_login*,
        raises AnotherLoggedIn as soon as another process has stored a token: all waiting processes then go on at once.
        Each in turn would have to read the store, and the last one would get a token that is invalid again.
        """

    def write(self, record: Record) -> bool:
        """Store *record*; return False, without storing it, if the account was logged out since `begin`.

        Raises StoreError if it cannot be stored, and LockLost if another process has taken over the lock of this one.
        """

    def remember(self, password: str) -> bool:
        """Add *password* to the stored record, even to one that another process has stored since; see `write`.

        The caller MUST hold the login lock.
        """


class AnotherLoggedIn(Exception):
    """Another process has stored a new token while this process waited for the login lock."""


class LockLost(StoreError):
    """A login took longer than its lock lasted, so that another one may have begun; nothing was stored."""


class NoBackend(StoreError):
    """The machine does not have what the store needs, so the store cannot contain anything."""

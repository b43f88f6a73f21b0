"""The interfaces that stores implement, and what a store is opened with."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from xapi_cli.errors import StoreError
from xapi_cli.tokens import Identity, Record

if TYPE_CHECKING:
    from xapi_cli.system.lock import LockUnavailable
    from xapi_cli.system.private_files import StateDirectory
    from xapi_cli.system.programs import RunProgram


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
    """A store with its own login lock, for a row of the registry with logins `keeper`."""

    @property
    def failures(self) -> "Failures | None":
        """Where login failures are recorded; None if the service with the lock does not run: in the state directory.

        Raises StoreError if that service does not respond.
        """

    def begin(self, identity: Identity) -> None:
        """Record that a login begins: `write` raises LoggedOut if the record is deleted in the meantime.

        Raises StoreError if that is not possible.
        """

    def locked(self, identity: Identity, timeout: float) -> AbstractContextManager[None]:
        """Hold the login lock of *identity*, in place of a lock file; raises LockTimeout after *timeout* seconds."""


class Failures(Protocol):
    """Where login failures are recorded, which is where the login lock is, for a minute.

    There is one JSON object per account and kind. The processes that share the lock share the failures.
    """

    def now(self) -> float:
        """Return the time, in seconds, of the clock that all processes share which use these records.

        Only times by this clock are in the members `at` of a record. No step of the wall clock of a machine changes it.
        """

    def read(self, identity: Identity, kind: str) -> bytes | None:
        """Return the text, or None if there is none; raise StoreError if a shared store cannot be used."""

    def write(self, identity: Identity, kind: str, data: bytes) -> None:
        """Record *data*, if possible: a failure to record is not an error."""

    def remove(self, identity: Identity, kinds: Sequence[str]) -> None:
        """Remove the records of *kinds*, if possible."""


class LockAttempt(NamedTuple):
    """The result of an attempt to get a shared login lock; *version* changes with each change of the record."""

    is_acquired: bool
    version: str


class LockLost(StoreError):
    """A login took longer than its lock lasted, so that another one may have begun; nothing was stored."""


class SharedStore(Store, Protocol):
    """A store whose machines also share the login lock, the logouts and the login failures of an account.

    The login lock belongs to its owner, and expires automatically.
    """

    failures: Failures

    @property
    def location(self) -> str:
        """A text without spaces or secrets, which differs between places where records of the same account can be."""

    def logout_marker(self, identity: Identity) -> str:
        """Return the logout marker, which each logout of the account changes; empty if there was none recently."""

    def try_lock(self, identity: Identity, owner: str, *, lifetime: float, force: bool = False) -> LockAttempt:
        """Acquire the login lock for *lifetime* seconds unless it has another owner; with *force*, take it over.

        *owner* is an ID that no other acquisition of the lock has; repeated attempts have the same one.
        """

    def unlock(self, identity: Identity, owner: str) -> None:
        """Release the login lock if *owner* still has it."""

    def write_locked(self, identity: Identity, record: Record, marker: str | None) -> bool:
        """Store *record* and release the login lock, in one step.

        Returns False, and stores nothing, if the account was logged out since it had *marker*. Raises LockLost, and
        stores nothing, if this store does not hold the lock any more.
        """


UNLOCK_WAIT = 60.0  # seconds that the user has to unlock the keyring


class StoreOptions(NamedTuple):
    """What a storage may need in order to open its store.

    *state* is the directory for files and locks. *warn* receives messages for the user, *on_lock_failure* the error if
    a lock in the state directory cannot be used, which is not an error of the store. An external service must respond
    within *timeout* seconds. With *unlock_wait*, the user is present to unlock it: the timeout is then at least that
    many seconds, and a message is shown. With *silence*, the standard streams of this process are redirected to the
    null device while third-party code runs. With *keyring_cache*, what is read from the keyring is cached in the agent.
    *settings* are the values of the settings that the rows of the registry name. *run_password_command* runs the
    command in such a setting and returns the password; it raises StoreError. *run_program* replaces `programs.run` if
    another process has the terminal.
    """

    state: "StateDirectory"
    environ: Mapping[str, str]
    warn: Callable[[str], None]
    on_lock_failure: "Callable[[LockUnavailable], None]" = lambda error: None
    timeout: float = 3.0
    unlock_wait: float | None = None
    silence: bool = True
    keyring_cache: bool = False
    settings: Mapping[str, Any] = MappingProxyType({})
    run_password_command: Callable[[str, Sequence[str]], str] = lambda name, command: ""
    run_program: "RunProgram | None" = None

    def __repr__(self) -> str:
        return f"StoreOptions({self.state.path!r}, …)"  # the environment contains secrets


class LoggedOut(Exception):
    """The account was logged out after the login that wants to store a record had begun."""


class NoBackend(StoreError):
    """The machine does not have what the store needs, so the store cannot contain anything."""

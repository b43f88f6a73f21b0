"""The interfaces of stores that provide a login lock, and of records of failed logins.

They are not in `protocol`, which every command loads, because only a login needs them.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from xapi_cli.errors import StoreError
from xapi_cli.store.protocol import Store
from xapi_cli.tokens import Identity, Record


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
        stores nothing, if this store no longer holds the lock.
        """

"""The index of accounts that have a stored record, without secrets, so that a logout finds every store that has one.

There is one file per account, which lists its stores: the storage and its place, because the settings may lead to
another one later. A store is listed before the record is written there, so a process that is killed in between leaves
an entry without a record, never a record without an entry.

A logout also has to stop a login in progress in another process. It sets the modification time of a file, one for the
account or one for all accounts, before it deletes anything; a login compares the times with those when it began. The
first login to an account has no entry that a logout of all accounts could find. It therefore adds its entry, then reads
the times, while a logout sets the time, then reads the entries: whichever comes first, one of them sees the other.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from xapi_cli.system.files import StateDirectory, StateFile
from xapi_cli.tokens import Identity

_OWN = r"[0-9a-f]{32}\.json"  # a pattern
_LIMIT = 64 * 1024  # bytes that are read of an entry

Place = Mapping[str, str]
"""The settings and environment variables, without secrets, that determine where a storage has its records."""
LogoutMarks = tuple[int | None, int | None]
"""When the account, and when all accounts were logged out last."""


class KnownStore(NamedTuple):
    """A *storage* at a *place* that may have a record."""

    storage: str
    place: Place


class AccountIndex:
    """The index in the state directory *state*; methods let every OSError propagate."""

    def __init__(self, state: StateDirectory) -> None:
        self._state, self._directory = state, state.directory("known")

    def stores(self, identity: Identity) -> list[KnownStore]:
        """Return the stores that may have a record of *identity*; none if its entry is not valid."""
        found = _read(self._file(identity))
        return found[1] if found else []

    def accounts(self) -> list[Identity]:
        """Return every account that has a valid entry."""
        return [entry[0] for file in self._directory.files(_OWN) if (entry := _read(file))]

    def add(self, identity: Identity, store: KnownStore) -> None:
        """List *store*, unless it is listed already."""
        known = self.stores(identity)
        if store not in known:
            self.replace(identity, [*known, store])

    def replace(self, identity: Identity, stores: Sequence[KnownStore]) -> None:
        """List *stores* only; without any, remove the entry."""
        file = self._file(identity)
        if not stores:
            file.remove()
            return
        entry = {**identity._asdict(), "stores": [store._asdict() for store in stores]}
        file.replace(json.dumps(entry).encode())

    def logout_marks(self, identity: Identity) -> LogoutMarks:
        """Return what the next logout of the account will change."""
        return self._mark(identity).modified_at(), self._mark(None).modified_at()

    def mark_logout(self, identity: Identity | None) -> None:
        """Let the logins in progress to *identity*, None for all accounts, detect a logout."""
        self._mark(identity).mark()

    def _mark(self, identity: Identity | None) -> StateFile:
        return self._state.lock_file(f"{identity.key if identity else 'all'}.logout")

    def _file(self, identity: Identity) -> StateFile:
        return self._directory.file(f"{identity.key}.json")


def _read(file: StateFile) -> tuple[Identity, list[KnownStore]] | None:
    """Return the entry in *file*, or None if there is none or it is not valid."""
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        entry: Any = json.loads(file.read(limit=_LIMIT) or b"")
        identity = Identity(entry["base_url"], entry["username"])
        stores = [KnownStore(str(each["storage"]), dict(each["place"])) for each in entry["stores"]]
        if file.path.name == f"{identity.key}.json":
            return identity, stores
    return None

"""The index of accounts that have a stored record, without secrets, so that a logout finds every store that has one.

Each store is recorded with its location, because the settings may lead to another one later. A store is recorded
before the record is written there: a process that is killed in between leaves an entry without a record, not a record
without an entry.

A logout also uses the entry to stop a login in progress in another process: it leaves an empty entry with another
marker. A login that finds a marker other than the one it began with stores nothing.

The first login to an account has no entry that a logout of all accounts could find, so there is also a marker of all
accounts. Such a logout changes it, then reads the index. A login adds its account to the index, then reads the marker.
Whichever comes first, the login finds the new marker, or the logout finds the account.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, NamedTuple, Self

from xapi_cli.errors import UsageError
from xapi_cli.http import urls
from xapi_cli.system import boot_time
from xapi_cli.system.files import StateDirectory, StateFile
from xapi_cli.tokens import Identity

_OWN = r"[0-9a-f]{32}\.json"  # a pattern
_EMPTY_FOR = 3600.0  # seconds that an empty entry is kept: no login that began before the logout takes longer
_ALL = "all"  # the file with the marker of all accounts
_LIMIT = 64 * 1024  # bytes that are read of an entry
_MAX_SIZE = _LIMIT // 2  # characters of the stores of one account; the oldest ones are dropped

Location = Mapping[str, str]
"""The settings and environment variables, without secrets, that determine where a storage has its records."""
IN_STATE_DIRECTORY: Location = {}


class KnownStore(NamedTuple):
    """A store that has, or may have, a record of an account: its *storage*, and the *location* of that.

    *obtained_at* is the time of the token that was written there last, None if it is unknown. With *is_written* False,
    the record may never have been written.
    """

    storage: str
    location: Location
    obtained_at: str | None = None
    is_written: bool = True

    def is_at(self, storage: str, location: Location) -> bool:
        """Return whether this is the store of *storage* at *location*."""
        return (self.storage, self.location) == (storage, location)


class LogoutMarkers(NamedTuple):
    """The markers that a logout changes: that of the account and that of all accounts; empty if there is none."""

    account: str
    all: str


class _Entry(NamedTuple):
    """The entry of an account; *revision* changes with each change, *marker* with each logout.

    *emptied* is when the last store was removed, as `boot_time.parsed` reads it.
    """

    marker: str
    revision: str
    stores: list[KnownStore]
    identity: Identity | None  # None if the entry is empty, or damaged
    emptied: Any = None


class AccountIndex:
    """The index in the directory *directory*; methods let every OSError propagate.

    `file` returns the file with the entry of an account.
    """

    def __init__(self, directory: StateDirectory, clock: Callable[[], boot_time.Moment] = boot_time.now) -> None:
        self._directory, self._clock = directory, clock
        self.file = cache(lambda identity: directory.file(f"{identity.key}.json"))

    @classmethod
    def of(cls, state: StateDirectory) -> Self:
        """Return the index in the state directory *state*."""
        return cls(state.directory("known"))

    def logout_markers(self, identity: Identity) -> LogoutMarkers:
        """Return the logout markers that apply to the account."""
        of_all = self._directory.file(_ALL).read(limit=_LIMIT) or b""
        return LogoutMarkers(self._entry_of(identity).marker, of_all.decode("ascii", "replace"))

    def was_logged_out(self, identity: Identity, since: LogoutMarkers) -> bool:
        """Return whether the account was logged out since these were its markers."""
        now = self.logout_markers(identity)
        return now.account not in ("", since.account) or now.all not in ("", since.all)

    def stores(self, identity: Identity) -> list[KnownStore]:
        """Return the stores that have, or may have, a record of *identity*."""
        return self._entry_of(identity).stores

    def revision(self, identity: Identity, storage: str) -> str | None:
        """Return what every change of the account's entry changes; None if it has no record in *storage*."""
        entry = self._read(self.file(identity))
        if entry is None or all(store.storage != storage for store in entry.stores):
            return None
        return f"{entry.marker} {entry.revision}"

    def expect(self, identity: Identity, storage: str, location: Location) -> None:
        """Record, unless it is recorded already, that the store will have a record of *identity*."""
        entry = self._entry_of(identity)
        if not any(store.is_at(storage, location) for store in entry.stores):
            expected = KnownStore(storage, location, is_written=False)
            self._write(identity, entry.marker, [*entry.stores, expected])

    def add(
        self,
        identity: Identity,
        storage: str,
        location: Location = IN_STATE_DIRECTORY,
        *,
        obtained_at: str | None = None,
        replaced: str | None = None,
    ) -> None:
        """Record that the store has a new record of *identity*, whose token was obtained at *obtained_at*.

        It has replaced a token that was obtained at *replaced*: another location of *storage* that has that one is this
        location under another name.
        """

        def is_same(store: KnownStore) -> bool:
            is_renamed = store.storage == storage and replaced is not None and store.obtained_at == replaced
            return is_renamed or store.is_at(storage, location)

        entry = self._entry_of(identity)
        others = [store for store in entry.stores if not is_same(store)]
        self._write(identity, entry.marker, [*others, KnownStore(storage, location, obtained_at)])

    def remove(self, identity: Identity, *, but: Sequence[KnownStore] = ()) -> None:
        """Remove the account from the index, except for the stores *but*; logins in progress will detect it."""
        self._sweep()
        self._write(identity, os.urandom(8).hex(), but)

    def log_out_all(self) -> None:
        """Let every login in progress, to any account, detect a logout; the caller reads `all` after that."""
        self._directory.file(_ALL).replace(os.urandom(8).hex().encode())

    def forget(self, identity: Identity) -> None:
        """Remove the account's entry, which needs no space on a full disk; logins in progress will not detect it."""
        self.file(identity).remove()

    def has_damaged_entry(self, identity: Identity) -> bool:
        """Return whether the account has an entry that is not valid, so that its stores are not known."""
        return self._is_damaged(self.file(identity))

    def all(self) -> list[Identity]:
        """Return every account that has a stored record."""
        entries = map(self._read, self._directory.files(_OWN))
        return [entry.identity for entry in entries if entry and entry.identity]

    def is_damaged(self) -> bool:
        """Return whether an entry is not valid or does not name its account, so that `all` may lack that account."""
        return any(map(self._is_damaged, self._directory.files(_OWN)))

    def _entry_of(self, identity: Identity) -> _Entry:
        """Return the entry of *identity*, an empty one if there is none or it is not valid."""
        return self._read(self.file(identity)) or _Entry("", "", [], None)

    def _read(self, file: StateFile) -> _Entry | None:
        """Return the entry, or None if there is none or it is not valid."""
        return _entry_in(file.read(limit=_LIMIT) or b"")

    def _write(self, identity: Identity, marker: str, stores: Sequence[KnownStore]) -> None:
        known = [store._asdict() for store in stores]
        while len(json.dumps(known)) > _MAX_SIZE:
            known.pop(0)
        entry: dict[str, Any] = {"mark": marker, "revision": os.urandom(8).hex(), "stores": known}
        if stores:  # an empty entry does not identify its account
            entry |= {"base_url": identity.base_url, "username": identity.username}
        else:
            entry["emptied"] = str(self._clock())
        self.file(identity).replace(json.dumps(entry).encode())

    def _is_damaged(self, file: StateFile) -> bool:
        entry = self._read(file)
        if entry is None:
            return file.read(limit=0) is not None  # otherwise, another process has removed it
        return bool(entry.stores) and entry.identity is None

    def _sweep(self) -> None:
        """Remove the empty entries that logouts left more than an hour ago."""
        with suppress(OSError):
            self._directory.remove_old(_OWN, self._is_obsolete)

    def _is_obsolete(self, file: StateFile, mtime: float) -> bool:
        entry = self._read(file)
        if entry is None or entry.stores:
            return False
        emptied = boot_time.parsed(entry.emptied, mtime=mtime)
        return emptied is not None and emptied.age(self._clock()) > _EMPTY_FOR


@lru_cache(maxsize=1)  # a login reads the same entry several times
def _entry_in(data: bytes) -> _Entry | None:
    """Return the entry that the JSON *data* contains, None if it is not valid."""
    try:
        return _entry(json.loads(data))
    except (ValueError, RecursionError):
        return None


def _entry(value: Any) -> _Entry:
    """Return the entry that the JSON *value* is; raise ValueError if it is not valid."""
    json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogateescape")  # ValueError: a lone surrogate
    match value:
        case {"mark": str(marker), "revision": str(revision), "stores": [*stores], **rest}:
            known = [_known_store(store) for store in stores]
        case {"mark": str(marker), "storages": [*names], **rest}:  # of a version that did not record locations
            revision, known = str(rest.get("revision")), [KnownStore(str(name), {}, is_written=False) for name in names]
        case _:
            raise ValueError
    match rest:
        case {"base_url": str(base_url), "username": str(username)} if known and _is_normalized(base_url):
            return _Entry(marker, revision, known, Identity(base_url, username))
        case {"base_url": _} | {"username": _}:
            raise ValueError
    return _Entry(marker, revision, known, None, rest.get("emptied"))


def _is_normalized(base_url: str) -> bool:
    try:
        return urls.base_url(base_url) == base_url
    except UsageError:
        return False


def _known_store(value: Any) -> KnownStore:
    match value:
        case {
            "storage": str(storage),
            "location": dict(location),
            "obtained_at": str() | None as obtained_at,
            "is_written": bool(is_written),
        } if all(isinstance(each, str) and "\0" not in each for each in location.values()):
            return KnownStore(storage, location, obtained_at, is_written)
    raise ValueError

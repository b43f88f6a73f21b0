"""The record of one account: select its store, read it once, write it unless a logout came in between."""

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from xapi_cli.errors import StoreError, TimeoutExpired, UsageError
from xapi_cli.store import registry
from xapi_cli.store.protocol import LoggedOut, NoBackend, StoreOptions
from xapi_cli.store.registry import Storage, open_store
from xapi_cli.system.render import printable
from xapi_cli.tokens import Identity, Record

if TYPE_CHECKING:
    from xapi_cli.store.account_index import AccountIndex, KnownStore, Location
    from xapi_cli.store.protocol import Failures, LockingStore, SharedStore, Store
    from xapi_cli.system.lock import LockUnavailable
    from xapi_cli.system.private_files import StateDirectory
    from xapi_cli.system.programs import RunProgram

UNLOCK_WAIT = 60.0  # seconds that the user has to unlock the keyring
_WRITE_WAIT = 20.0  # seconds; the writes of one account wait in a queue, and each is short
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE})


class StoreReports(NamedTuple):
    """The problems that a repository has encountered, for a caller that reports them itself."""

    warnings: list[str]
    lock_failures: "list[OSError | LockUnavailable]"


class TokenRepository:
    """The stored record of *identity*; *setting* is the value of the setting `storage`.

    *warn* receives problems that do not stop a command, *on_lock_failure* those of the state directory, by default as
    a warning. If *interactive*, the user is present to unlock the store. *settings*, *run_password_command* and
    *run_program* are those of `StoreOptions`; *other_settings* returns those of other profiles, which may have the
    password of a store that this account has a record in.
    """

    def __init__(
        self,
        identity: Identity,
        setting: str,
        *,
        state: "StateDirectory",
        environ: Mapping[str, str],
        warn: Callable[[str], None],
        interactive: bool,
        silence: bool = True,
        keyring_cache: bool = False,
        on_lock_failure: "Callable[[OSError | LockUnavailable], None] | None" = None,
        settings: Mapping[str, Any] | None = None,
        other_settings: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
        run_password_command: Callable[[str, Sequence[str]], str] = lambda name, command: "",
        run_program: "RunProgram | None" = None,
    ) -> None:
        self.identity = identity
        self._setting, self._storage = setting, registry.selected(setting)
        self._state, self._warn = state, warn
        self._on_lock_failure = on_lock_failure or self._warn_once_without_locks
        self._options = StoreOptions(
            state,
            environ,
            warn,
            self._on_lock_failure,
            unlock_wait=UNLOCK_WAIT if interactive else None,
            silence=silence,
            keyring_cache=keyring_cache,
            settings=settings or {},
            run_password_command=run_password_command,
            run_program=run_program,
        )
        self._other_settings = other_settings
        self._store: Store | None = None
        self._record: Record | None = None
        self._read = False
        self._marker: str | None = None
        self._store_notices_logout = True  # since `begin`, if the store has its own lock
        self._state_is_usable = True
        self._warned = False
        self._opened: list[tuple[KnownStore, Store]] = []  # to delete records
        self.cleared: list[str] = []  # the places from which the last `delete` deleted a record

    @cached_property
    def _index(self) -> "AccountIndex":
        """The index of accounts; reading a record does not need it."""
        from xapi_cli.store.account_index import AccountIndex

        return AccountIndex(self._state.directory("known"))

    @property
    def storage(self) -> str:
        """The name of the storage in use; `auto` until something has been read."""
        return self._storage.name if self._store else self._setting

    @property
    def place(self) -> str | None:
        """Where the store in use stores records, as a noun phrase; None if they do not outlive the process."""
        return self._storage.place if self._storage.is_persistent else None

    @property
    def backend(self) -> str | None:
        """The name of the backend that the store in use has loaded, None if it has none."""
        return getattr(self._store, "backend", None)

    @property
    def can_remember(self) -> bool:
        """Whether the store in use can store a password and has none, so that the user can be asked for consent."""
        return self._store is not None and self._storage.remembers_passwords and not self.remembers

    @property
    def remembers(self) -> bool:
        """Whether a password is known to be stored with the token."""
        return bool(self._storage.remembers_passwords and self._record and self._record.password)

    @property
    def shared(self) -> "SharedStore | None":
        """The store, if machines share logins through it; None otherwise."""
        if not self._storage.shares_logins:
            return None
        self._store = self._store or self._open(self._storage)
        return cast("SharedStore", self._store)  # as its row in the registry states

    @property
    def failures(self) -> "Failures | None":
        """Where login failures are recorded: where the store has its login lock; None if in the state directory.

        Raises StoreError if the store is not usable.
        """
        if self._storage.has_own_lock:
            return self._locking_store().failures
        return shared.failures if (shared := self.shared) else None

    def read(self, *, again: bool = False) -> Record | None:
        """Return the stored record, read once per command; with *again*, re-read it.

        Raises StoreError if the store is not usable; with `auto`, warns instead and continues without a store.
        """
        if self._store is None:
            self._record = self._read_first()
        elif again or not self._read:
            self._record = self._read_from(self._store)
        self._read = True
        return self._record

    def start(self) -> str | None:
        """Start the service that the storage needs and that xapi can start; return a message if it was not running."""
        start: Callable[[], str | None] | None = getattr(self._open(self._storage), "start", None)
        return start() if start else None

    def probe(self) -> None:
        """Raise StoreError unless a login can store its token; with `auto`, this requires a keyring."""
        self._store = self._open(self._storage)
        self._store.probe()

    def of(self, identity: Identity) -> "TokenRepository":
        """Return a repository for *identity* with the stores that this one, which has read nothing, has opened."""
        other = copy(self)
        other.identity = identity
        return other

    def begin(self) -> None:
        """Record that a login begins, so that `write` detects a logout during it."""
        if (shared := self.shared) is not None:
            self._marker = shared.logout_marker(self.identity)
            return
        try:
            self._marker = self._index.logout_marker(self.identity) if self._storage.is_persistent else None
        except OSError:
            self._marker = None  # taking the lock, which is next, reports the error
        if self._storage.has_own_lock:
            try:
                self._locking_store().begin(self.identity)
                self._store_notices_logout = True
            except StoreError:
                self._store_notices_logout = False

    def was_logged_out(self) -> bool:
        """Return whether the account is known to have been logged out since `begin`, so that `write` would refuse."""
        if self._marker is None:
            return False
        if (shared := self.shared) is not None:
            return shared.logout_marker(self.identity) not in ("", self._marker)
        return not self._has_marker(self._marker)

    def write(self, record: Record) -> bool:
        """Store *record*; return False, without storing it, if the account was logged out since `begin`.

        Raises StoreError if it cannot be stored. If the store is shared, the caller MUST hold its login lock, and
        LockLost is raised if that has expired.
        """
        if not self._store_notices_logout and (self._marker is None or not self._state_is_usable):
            raise StoreError(
                "a logout during the login would not have been noticed: no agent and no state directory was usable",
                hint="log in again",
            )
        self._store = store = self._store or self._open(self._storage)
        with self._writing_record():
            if not self._storage.shares_logins and self._marker is not None and not self._has_marker(self._marker):
                return False
            return self._write_to(store, record)

    def remember(self, password: str) -> bool:
        """Add *password* to the stored record, also to one that another process has stored since.

        Returns False, and stores nothing, if the account was logged out since `begin`. Raises StoreError if the
        password cannot be stored. The caller MUST hold the login lock.
        """
        self._store = store = self._store or self._open(self._storage)
        with self._writing_record():
            if self.was_logged_out() or (record := store.read(self.identity)) is None:
                return False
            return self._write_to(store, Record(record.token, password))

    def delete(self) -> bool:
        """Delete the record from every store that may contain it, and set `cleared`; return whether there was one.

        Raises StoreError or UsageError if a record that is known was not deleted, which remains known.
        """
        with self._writing():
            known = self._known_stores()
            # from here on, no login in progress stores anything; if this process is killed, the next logout does not
            # miss a record that this one has deleted
            self._remove_from_index(but=[store._replace(is_written=False) for store in known])
            self.cleared, failed = [], list["tuple[KnownStore, StoreError | UsageError]"]()
            deleted = set[tuple[str, str | None]]()
            for store in [*known, *self._possible_stores(known)]:
                try:
                    is_found, obtained_at = self._delete_from(store, known)
                except (StoreError, UsageError) as error:
                    failed.append((store, error))
                    continue
                if is_found:
                    self.cleared.append(self._described(store))
                    deleted.add((store.storage, obtained_at))
            # the same record was deleted at another location: that was the same store under another name
            failed = [
                (store, error)
                for store, error in failed
                if store.obtained_at is None or (store.storage, store.obtained_at) not in deleted
            ]
            unrecorded = self._remove_from_index(but=[store for store, _ in failed if store in known])
            if unrecorded and not failed:
                with suppress(OSError):  # the next logout does not look for what this one has deleted
                    self._index.forget(self.identity)
        if failed:
            raise _combined([error for _, error in failed])
        if unrecorded:
            raise StoreError(
                f"the logout could not be recorded ({unrecorded.strerror}), so a login in progress may undo it",
                hint="free space, then log out again",
            )
        return bool(self.cleared or known)

    def continue_without_lock(self, error: "OSError | LockUnavailable") -> None:
        """Report that the state directory is not usable; raise StoreError if the storage in use needs it."""
        if self._storage.needs_state_directory:
            from xapi_cli.system.lock import describe_state_error

            problem, remedy = describe_state_error(self._state.path, error)
            raise StoreError(problem, hint=remedy) from error
        self._on_lock_failure(error)

    @contextmanager
    def locked_in_store(self, timeout: float, failure: "LockUnavailable | None") -> Iterator[None]:
        """Hold the login lock that the store has itself, if it has one; raises LockTimeout after *timeout* seconds.

        *failure* is the error of the lock in the state directory, None if it is held. It is reported, and an error of
        the lock of the store is not: using the store reports it.
        """
        self._state_is_usable = failure is None
        if failure is not None:
            self.continue_without_lock(failure)
        with ExitStack() as lock:
            if self._storage.has_own_lock:
                with suppress(StoreError):
                    lock.enter_context(self._locking_store().locked(self.identity, timeout))
            yield

    def _locking_store(self) -> "LockingStore":
        self._store = self._store or self._open(self._storage)
        return cast("LockingStore", self._store)

    def _write_to(self, store: "Store", record: Record) -> bool:
        """Write *record* to *store*, recorded in the index; return False if the account was logged out."""
        location = self._storage.location(self._options) if self._storage.is_persistent else {}
        self._expect_in_index(location)
        try:
            if (shared := self.shared) is not None:
                if not shared.write_locked(self.identity, record, self._marker):
                    return False
            else:
                store.write(self.identity, record)
        except LoggedOut:
            return False
        replaced, self._record, self._read = self._record, record, True
        if self._storage.is_persistent:
            with suppress(OSError):  # the store is in the index already, see above
                self._index.add(
                    self.identity,
                    self._storage.name,
                    location,
                    obtained_at=_obtained_at(record),
                    replaced=_obtained_at(replaced),
                )
        return True

    def _read_first(self) -> Record | None:
        """Open the store and read it; with `auto`, fall back to a store in memory if that fails."""
        try:
            store = self._open(self._storage)
            record = store.read(self.identity)
        except StoreError as error:
            if self._setting != registry.AUTO:
                raise
            self._storage = registry.fallback()
            self._warn(
                f"{error.message}; the token is not stored"
                " (--storage file or XAPI_STORAGE=file stores it in a file that only you can read)"
            )
            store, record = self._open(self._storage), None
        self._store = store
        return record

    def _read_from(self, store: "Store") -> Record | None:
        try:
            return store.read(self.identity)
        except StoreError:
            if self._setting != registry.AUTO:
                raise
            return None

    def _open(self, storage: Storage) -> "Store":
        return open_store(storage, self._options)

    def _has_marker(self, marker: str) -> bool:
        try:
            return self._index.has_logout_marker(self.identity, marker)
        except OSError:
            return True

    def _expect_in_index(self, location: "Location") -> None:
        """Record that the store in use will have a record, so that a logout finds it if this process is killed.

        Raises StoreError if the disk is full: no logout would find the record. A state directory that cannot be used at
        all is reported as for locks.
        """
        if not self._storage.is_persistent:
            return
        try:
            self._index.expect(self.identity, self._storage.name, location)
        except OSError as error:
            if error.errno in _FULL:
                raise StoreError(
                    f"the account cannot be added to the index of accounts in {printable(str(self._state.path))}:"
                    f" {error.strerror}",
                    hint="free space there: `xapi logout` would not find the token otherwise",
                ) from error
            if not self._storage.shares_logins:  # `logout` of this account finds its record without an entry
                self.continue_without_lock(error)

    def _known_stores(self) -> "list[KnownStore]":
        try:
            if self._index.has_damaged_entry(self.identity):
                self._warn(
                    "the entry of the account in the index of accounts is damaged, so the token may remain in a store"
                    " that the settings do not select"
                )
            return self._index.stores(self.identity)
        except OSError:
            return []  # the stores are still searched

    def _remove_from_index(self, *, but: "Sequence[KnownStore]") -> OSError | None:
        """Record the logout; return the error if that failed because the disk is full."""
        try:
            self._index.remove(self.identity, but=but)
        except OSError as error:
            if error.errno in _FULL:
                return error
            self._on_lock_failure(error)
        return None

    def _possible_stores(self, known: "Sequence[KnownStore]") -> "Iterator[KnownStore]":
        """Yield the selected store and those in the state directory that are not *known*: an entry may be missing."""
        from xapi_cli.store.account_index import KnownStore

        for storage in registry.STORAGES:
            if storage.is_persistent and (storage.needs_state_directory or storage == registry.selected(self._setting)):
                location = storage.location(self._options)
                if not any(store.is_at(storage.name, location) for store in known):
                    yield KnownStore(storage.name, location, is_written=False)

    def _delete_from(self, store: "KnownStore", known: "Sequence[KnownStore]") -> tuple[bool, str | None]:
        """Delete the record in *store*; return whether there was one and, if it matters, when its token was obtained.

        Raises StoreError if the store cannot be used, which is an error only if the user selected it or it is *known*,
        and if the record that is known to have been written was not found.
        """
        storage, obtained_at = _storage(store), None
        try:
            opened = self._store_to_delete_from(storage, store)
            if any(each.storage == store.storage and each != store for each in known):
                with suppress(StoreError):  # deleting it raises the same error, or succeeds
                    obtained_at = _obtained_at(opened.read(self.identity))
            is_found = opened.delete(self.identity)
        except (StoreError, UsageError) as error:
            if store in known:
                raise self._with_location(error, storage, store) from error
            if storage.name == self._setting:
                raise
            if not isinstance(error, NoBackend):
                self._warn(f"{error.message}; data of this account that it may contain was not deleted")
            return False, None
        if not is_found and store.is_written and store in known and not storage.is_location_exact:
            raise StoreError(
                f"its token was not found in {registry.described(storage, store.location)}, where it was stored",
                hint="log out in the environment in which you logged in; if it was deleted there by another program,"
                f" remove {printable(str(self._index.file(self.identity).path))}",
            )
        return is_found, obtained_at

    def _store_to_delete_from(self, storage: Storage, known: "KnownStore") -> "Store":
        """Return the store of *storage* at the location of *known*.

        It is the same for all accounts, so that one that does not respond delays once.
        """
        if self._is_current(storage, known) and storage == self._storage and (shared := self.shared) is not None:
            return shared
        for each, opened in self._opened:
            if each.is_at(known.storage, known.location):
                return opened
        # whatever the setting is now, a record that was cached is erased
        opened = open_store(storage, self._options_at(storage, known.location)._replace(keyring_cache=True))
        self._opened.append((known, opened))
        return opened

    def _options_at(self, storage: Storage, location: "Location") -> StoreOptions:
        """Return the options of the first profile that leads to *location*, else those in use with that location."""
        if not storage.settings:
            return registry.options_at(location, self._options)
        options = [self._options, *(self._options._replace(settings=each) for each in self._other_settings())]
        for each in options:
            with suppress(UsageError):
                if storage.location(each) == location:
                    return each
        return registry.options_at(location, self._options)

    def _is_current(self, storage: Storage, known: "KnownStore") -> bool:
        """Return whether the settings lead to the location of *known*."""
        try:
            return storage.location(self._options) == known.location
        except UsageError:  # a setting is missing
            return False

    def _described(self, known: "KnownStore") -> str:
        storage = _storage(known)
        return storage.place if self._is_current(storage, known) else registry.described(storage, known.location)

    def _with_location(
        self, error: StoreError | UsageError, storage: Storage, known: "KnownStore"
    ) -> StoreError | UsageError:
        """Return *error* with the location of *known*, unless the settings lead there."""
        if self._is_current(storage, known):
            return error
        kind = UsageError if isinstance(error, UsageError) else StoreError
        return kind(f"{registry.described(storage, known.location)}: {error.message}", hint=error.hint)

    @contextmanager
    def _writing_record(self) -> Iterator[None]:
        """Exclude other writers of this account, unless the store does so itself."""
        with nullcontext() if self._storage.has_own_lock else self._writing():
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Exclude other writers of this account, so that a logout and a login cannot interleave."""
        from xapi_cli.system.lock import LockTimeout, LockUnavailable, locked

        with ExitStack() as stack:
            try:
                lock = self._state.directory("locks").file(f"{self.identity.key}.store.lock")
                stack.enter_context(locked(lock, timeout=_WRITE_WAIT))
            except LockTimeout as error:
                raise TimeoutExpired(
                    f"another xapi process has been writing to the token store for more than {_WRITE_WAIT:.0f} s",
                    hint="try again; if that process hangs, end it",
                ) from error
            except LockUnavailable as error:
                if not self._storage.shares_logins:  # it has its own lock
                    self.continue_without_lock(error)
            yield

    def _warn_once_without_locks(self, error: "OSError | LockUnavailable") -> None:
        from xapi_cli.system.lock import describe_state_error

        if not self._warned:
            self._warned = True
            locks = f"with the locks of {self._storage.place}" if self._storage.has_own_lock else "without locks"
            self._warn(f"{describe_state_error(self._state.path, error)[0]}; continuing {locks}")


def _obtained_at(record: Record | None) -> str | None:
    """Return the time at which the token of *record* was obtained as text, or None if it is unknown."""
    return record.token.obtained_at.isoformat() if record and record.token.obtained_at else None


def _storage(known: "KnownStore") -> Storage:
    """Return the storage of *known*; raise StoreError if this version of xapi does not have it."""
    for storage in registry.STORAGES:
        if storage.name == known.storage:
            return storage
    raise StoreError(
        f"this version of xapi does not have the storage {printable(known.storage)}, in which a token was stored",
        hint="log out with the version that stored it",
    )


def _combined(errors: Sequence[StoreError | UsageError]) -> StoreError | UsageError:
    """Return one error with the messages and hints of *errors*."""
    if len(errors) == 1:
        return errors[0]
    hints = "; ".join(dict.fromkeys(error.hint for error in errors if error.hint))
    return StoreError("; ".join(dict.fromkeys(error.message for error in errors)), hint=hints or None)

"""The record of one account: select its store, read it once, write it unless a logout came in between."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from xapi_cli.errors import StoreError, TimeoutExpired, UsageError
from xapi_cli.store import registry
from xapi_cli.store.account_index import AccountIndex
from xapi_cli.store.protocol import LoggedOut, NoBackend, StoreOptions
from xapi_cli.store.registry import Storage, open_store
from xapi_cli.system.lock import LockTimeout, LockUnavailable, describe_state_error, locked
from xapi_cli.tokens import Identity, Record

if TYPE_CHECKING:
    from xapi_cli.store.protocol import LockingStore, SharedStore, Store
    from xapi_cli.system.programs import RunProgram

UNLOCK_WAIT = 60.0  # seconds that the user has to unlock the keyring
_WRITE_WAIT = 20.0  # seconds; the writes of one account wait in a queue, and each is short


class StoreReports(NamedTuple):
    """The problems that a repository has encountered, for a caller that reports them itself."""

    warnings: list[str]
    lock_failures: list[OSError | LockUnavailable]


class TokenRepository:
    """The stored record of *identity*; *setting* is the value of the setting `storage`.

    *warn* receives problems that do not stop a command, *on_lock_failure* those of the state directory, by default as
    a warning. If *interactive*, the user is present to unlock the store. *settings*, *run_password_command* and
    *run_program* are those of `StoreOptions`.
    """

    def __init__(
        self,
        identity: Identity,
        setting: str,
        *,
        state: Path,
        environ: Mapping[str, str],
        warn: Callable[[str], None],
        interactive: bool,
        silence: bool = True,
        keyring_cache: bool = False,
        on_lock_failure: Callable[[OSError | LockUnavailable], None] | None = None,
        settings: Mapping[str, Any] | None = None,
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
        self._store: Store | None = None
        self._record: Record | None = None
        self._read = False
        self._marker: str | None = None
        self._store_notices_logout = True  # since `begin`, if the store has its own lock
        self._state_is_usable = True
        self._warned = False
        self._index = AccountIndex(state / "known")
        self._opened: dict[str, Store] = {}  # to delete records
        self.cleared: list[str] = []  # the places from which the last `delete` deleted a record

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
        if (shared := self.shared) is not None:
            return self._write_shared(shared, record)
        if not self._store_notices_logout and (self._marker is None or not self._state_is_usable):
            raise StoreError(
                "a logout during the login would not have been noticed: no agent and no state directory was usable",
                hint="log in again",
            )
        store = self._store or self._open(self._storage)
        self._store, self._record, self._read = store, record, True
        with ExitStack() as lock:
            if not self._storage.has_own_lock:
                lock.enter_context(self._writing())
            if self._marker is not None and not self._has_marker(self._marker):
                return False
            try:
                store.write(self.identity, record)
            except LoggedOut:
                return False
            self._add_to_index()
        return True

    def delete(self) -> bool:
        """Delete the record from every store that may contain it, and set `cleared`; return whether there was one."""
        with self._writing():
            known = self._known_storages()
            self._remove_from_index(but=known)  # from here on, no login in progress stores anything
            self.cleared, failed = [], dict[str, StoreError | UsageError]()
            for storage in self._storages_to_clear(known):
                try:
                    if self._delete_from(storage, is_known=storage.name in known):
                        self.cleared.append(storage.place)
                except (StoreError, UsageError) as error:
                    failed[storage.name] = error
            self._remove_from_index(but=tuple(failed))  # what could not be deleted must stay in the index
        for failure in failed.values():
            raise failure
        return bool(self.cleared or known)

    def continue_without_lock(self, error: OSError | LockUnavailable) -> None:
        """Report that the state directory is not usable; raise StoreError if the storage in use needs it."""
        if self._storage.needs_state_directory:
            problem, remedy = describe_state_error(self._state, error)
            raise StoreError(problem, hint=remedy) from error
        self._on_lock_failure(error)

    @contextmanager
    def locked_in_store(self, timeout: float, failure: LockUnavailable | None) -> Iterator[None]:
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

    def _write_shared(self, shared: "SharedStore", record: Record) -> bool:
        if not shared.write_locked(self.identity, record, self._marker):
            return False
        self._record, self._read = record, True
        with suppress(OSError):  # without an entry, `logout` of this account still finds the record
            self._index.add(self.identity, self._storage.name)
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

    def _add_to_index(self) -> None:
        if not self._storage.is_persistent:
            return
        try:
            self._index.add(self.identity, self._storage.name)
        except OSError as error:
            self.continue_without_lock(error)

    def _known_storages(self) -> tuple[str, ...]:
        try:
            return tuple(self._index.storages(self.identity))
        except OSError:
            return ()  # the stores are still searched

    def _remove_from_index(self, *, but: tuple[str, ...]) -> None:
        try:
            self._index.remove(self.identity, but=but)
        except OSError as error:
            self._on_lock_failure(error)

    def _storages_to_clear(self, known: tuple[str, ...]) -> list[Storage]:
        """Return the selected storage, those in the index, and all in the state directory, even without an entry."""
        return [
            storage
            for storage in registry.STORAGES
            if storage.is_persistent
            and (storage.needs_state_directory or storage.name in known or storage == registry.selected(self._setting))
        ]

    def _delete_from(self, storage: Storage, *, is_known: bool) -> bool:
        """Delete the record in *storage*; failure is an error only if the user selected it or it *is_known*."""
        try:
            return self._store_to_delete_from(storage).delete(self.identity)
        except StoreError as error:
            if is_known or storage.name == self._setting:
                raise
            if not isinstance(error, NoBackend):
                self._warn(f"{error.message}; data of this account that it may contain was not deleted")
            return False

    def _store_to_delete_from(self, storage: Storage) -> "Store":
        """Return the store of *storage*, the same for all accounts, so that one that does not respond delays once."""
        if storage == self._storage and (shared := self.shared) is not None:
            return shared
        if storage.name not in self._opened:
            # whatever the setting is now, a record that was cached is erased
            self._opened[storage.name] = open_store(storage, self._options._replace(keyring_cache=True))
        return self._opened[storage.name]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Exclude other writers of this account, so that a logout and a login cannot interleave."""
        with ExitStack() as stack:
            try:
                lock = self._state / "locks" / f"{self.identity.key}.store.lock"
                stack.enter_context(locked(lock, timeout=_WRITE_WAIT))
            except LockTimeout as error:
                raise TimeoutExpired(
                    f"another xapi process has been writing to the token store for more than {_WRITE_WAIT:.0f} s",
                    hint="try again; if that process hangs, end it",
                ) from error
            except LockUnavailable as error:
                self.continue_without_lock(error)
            yield

    def _warn_once_without_locks(self, error: OSError | LockUnavailable) -> None:
        if not self._warned:
            self._warned = True
            locks = f"with the locks of {self._storage.place}" if self._storage.has_own_lock else "without locks"
            self._warn(f"{describe_state_error(self._state, error)[0]}; continuing {locks}")

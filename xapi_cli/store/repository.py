"""The record of one account: select its store, read it once, write it unless a logout came in between."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

from xapi_cli.errors import StoreError, TimeoutExpired
from xapi_cli.store.account_index import AccountIndex
from xapi_cli.store.registry import open_store
from xapi_cli.system.lock import LockTimeout, LockUnavailable, about_state, locked
from xapi_cli.tokens import Identity, Record

if TYPE_CHECKING:
    from xapi_cli.settings.resolve import Storage
    from xapi_cli.store.registry import Store, StoreName

UNLOCK_WAIT = 60.0  # seconds that the user has to unlock the keyring
_WRITE_WAIT = 20.0  # seconds; the writes of one account wait in a queue, and each is short


class TokenRepository:
    """The stored record of *identity*; *warn* receives problems that do not stop a command."""

    def __init__(
        self,
        identity: Identity,
        storage: "Storage",
        *,
        state: Path,
        environ: Mapping[str, str],
        warn: Callable[[str], None],
        interactive: bool,
        quietly: bool = True,
    ) -> None:
        self.identity = identity
        self._storage: Storage = storage
        self._state, self._environ, self._warn = state, environ, warn
        self._interactive, self._quietly = interactive, quietly
        self._store: Store | None = None
        self._record: Record | None = None
        self._read = False
        self._mark: str | None = None
        self._warned = False
        self._known = AccountIndex(state / "known")

    @property
    def storage(self) -> str:
        """The name of the store in use; `auto` until something has been read."""
        return self._store.name if self._store else self._storage

    @property
    def may_ask_to_remember(self) -> bool:
        """Whether the store in use can store a password and has none: the user has to consent once."""
        return self._store is not None and self._store.remembers and not (self._record and self._record.password)

    @property
    def remembers(self) -> bool:
        """Whether a password is stored with the token, as far as is known."""
        return bool(self._store and self._store.remembers and self._record and self._record.password)

    def read(self, *, again: bool = False) -> Record | None:
        """Return the stored record, read once per command; with *again*, re-read it.

        Raises StoreError if the store is not usable; with `auto`, warns instead and continues without a store.
        """
        if self._store is None:
            self._store, self._record = self._opened()
        elif again or not self._read:
            self._record = self._read_from(self._store)
        self._read = True
        return self._record

    def probe(self) -> None:
        """Raise StoreError unless a login can store its token; with `auto`, this requires a keyring."""
        self._store = self._open(self._chosen)
        self._store.probe()

    def of(self, identity: Identity) -> "TokenRepository":
        """Return a repository for *identity* that uses the store that this one has probed."""
        other = copy(self)
        other.identity = identity
        return other

    def begin(self) -> None:
        """Record that a login begins, so that `write` detects a logout during it."""
        try:
            self._mark = self._known.mark(self.identity) if self.storage != "none" else None
        except OSError:
            self._mark = None  # taking the lock, which is next, reports the error

    def write(self, record: Record) -> bool:
        """Store *record*; return False, without storing it, if the account was logged out since `begin`.

        Raises StoreError if it cannot be stored.
        """
        store = self._store or self._open(self._chosen)
        self._store, self._record, self._read = store, record, True
        with self._writing():
            if self._mark is not None and not self._holds(self._mark):
                return False
            store.write(self.identity, record)
            self._note_stored(store.name)
        return True

    def forget(self) -> bool:
        """Delete the record from every store that may hold it; return whether there was one."""
        with self._writing():
            known = self._known_storages()
            self._forget_known(but=known)  # from here on, no login in progress stores anything
            found, failed = False, dict[str, StoreError]()
            for name in self._stores_to_clear(known):
                try:
                    found = self._delete(name, surely=name in known) or found
                except StoreError as error:
                    failed[name] = error
            self._forget_known(but=tuple(failed))  # what could not be deleted must stay in the index
        for failure in failed.values():
            raise failure
        return found or bool(known)

    def _opened(self) -> "tuple[Store, Record | None]":
        if self._storage != "auto":
            store = self._open(self._storage)
            return store, store.read(self.identity)
        try:
            store = self._open("keyring")
            return store, store.read(self.identity)
        except StoreError as error:
            self._warn(
                f"{error.message}; the token is kept for this command only"
                " (--storage file or XAPI_STORAGE=file keeps it in a file that only you can read)"
            )
            return self._open("none"), None

    def _read_from(self, store: "Store") -> Record | None:
        try:
            return store.read(self.identity)
        except StoreError:
            if self._storage != "auto":
                raise
            return None

    @property
    def _chosen(self) -> "StoreName":
        return "keyring" if self._storage == "auto" else self._storage

    def _open(self, name: "StoreName") -> "Store":
        return open_store(
            name,
            state=self._state,
            environ=self._environ,
            notify=self._warn,
            unlock_wait=UNLOCK_WAIT if self._interactive else None,
            quietly=self._quietly,
        )

    def _stores_to_clear(self, known: tuple[str, ...]) -> "list[StoreName]":
        chosen = ["keyring", "file"] if self._storage == "auto" else [self._storage, "file"]
        names: tuple[StoreName, ...] = ("keyring", "file")
        return [name for name in names if name in {*known, *chosen}]

    def _delete(self, name: "StoreName", *, surely: bool) -> bool:
        """Delete from the store *name*; failure is an error only if the store was selected or *surely* has a record."""
        from xapi_cli.store.keyring.store import NoKeyring

        try:
            return self._open(name).delete(self.identity)
        except StoreError as error:
            if surely or name == self._storage:
                raise
            if not isinstance(error, NoKeyring):
                self._warn(f"{error.message}; if it holds anything of this account, that stays")
            return False

    def _known_storages(self) -> tuple[str, ...]:
        try:
            return tuple(self._known.storages(self.identity))
        except OSError:
            return ()  # the stores are still searched

    def _forget_known(self, *, but: tuple[str, ...]) -> None:
        try:
            self._known.forget(self.identity, but=but)
        except OSError as error:
            self._complain(error)

    def _holds(self, mark: str) -> bool:
        try:
            return self._known.holds(self.identity, mark)
        except OSError:
            return True

    def _note_stored(self, name: str) -> None:
        if name == "none":
            return
        try:
            self._known.add(self.identity, name)
        except OSError as error:
            self.cannot_write_state(error)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Exclude other writers of this account, so that a logout and a login cannot interleave."""
        with ExitStack() as stack:
            try:
                lock = self._state / "locks" / f"{self.identity.key}.store.lock"
                stack.enter_context(locked(lock, limit=_WRITE_WAIT))
            except LockTimeout as error:
                raise TimeoutExpired(
                    "another xapi has been writing to the token store for too long",
                    hint="try again; end it if it hangs",
                ) from error
            except LockUnavailable as error:
                self.cannot_write_state(error)
            yield

    def cannot_write_state(self, error: OSError | LockUnavailable) -> None:
        """Report that the state directory is not writable: an error for `file`, else a warning, at most once."""
        if self.storage == "file":
            problem, remedy = about_state(self._state, error)
            raise StoreError(problem, hint=remedy) from error
        self._complain(error)

    def _complain(self, error: OSError | LockUnavailable) -> None:
        if not self._warned:
            self._warned = True
            self._warn(f"{about_state(self._state, error)[0]}; going on without locks")

"""A logout: delete the record of an account from every store that may contain it, and record that."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from xapi_cli.errors import StoreError, UsageError, XapiError
from xapi_cli.store import registry
from xapi_cli.store.protocol import NoBackend, StoreOptions
from xapi_cli.store.registry import Storage, open_store
from xapi_cli.store.repository import DISK_IS_FULL, obtained_at
from xapi_cli.system.render import printable
from xapi_cli.tokens import Record

if TYPE_CHECKING:
    from xapi_cli.store.account_index import KnownStore, Location
    from xapi_cli.store.protocol import Store
    from xapi_cli.store.repository import TokenRepository

_ErrorT = TypeVar("_ErrorT", bound=XapiError)


class Deletion:
    """The deletion of what is stored for the account of *repository*; `cleared` are the places that had a record."""

    def __init__(self, repository: "TokenRepository") -> None:
        self._repository, self._identity, self._index = repository, repository.identity, repository.index
        self.cleared: list[str] = []

    def run(self) -> bool:
        """Delete the record from every store that may contain it; return whether there was one.

        Raises StoreError or UsageError if a record that is known was not deleted, which remains known.
        """
        with self._repository.writing():
            known = self._known_stores()
            # from here on, no login in progress stores anything; if this process is killed, the next logout does not
            # miss a record that this one has deleted
            self._remove_from_index(but=[store._replace(is_written=False) for store in known])
            failed = list["tuple[KnownStore, StoreError | UsageError]"]()
            deleted = set[tuple[str, str | None]]()
            for store in [*known, *self._possible_stores(known)]:
                try:
                    is_found, obtained = self._delete_from(store, known)
                except (StoreError, UsageError) as error:
                    failed.append((store, without_other_storage(error)))
                    continue
                if is_found:
                    self.cleared.append(self._described(store))
                    deleted.add((store.storage, obtained))
            # the same record was deleted at another location: that was the same store under another name
            failed = [
                (store, error)
                for store, error in failed
                if store.obtained_at is None or (store.storage, store.obtained_at) not in deleted
            ]
            self._repository.forget_rejection()
            unrecorded = self._remove_from_index(but=[store for store, _ in failed if store in known])
            if unrecorded and not failed:
                with suppress(OSError):  # the next logout does not look for what this one has deleted
                    self._index.forget(self._identity)
        if failed:
            raise _combined([error for _, error in failed])
        if unrecorded:
            raise not_recorded(unrecorded)
        return bool(self.cleared or known)

    def delete_passwords_elsewhere(self) -> None:
        """Delete the password, and keep the token, in each known store that is not in use; a failure is a warning."""
        in_use = self._repository.row
        with self._repository.writing():
            for known in self._known_stores():
                try:
                    storage = _storage(known)
                    if storage.remembers_passwords and (storage != in_use or not self._is_current(storage, known)):
                        self._delete_password(storage, known)
                except (StoreError, UsageError) as error:
                    remedy = error.remedy if isinstance(error, StoreError) else error.hint
                    self._repository.warn(
                        f"a password of this account in {known.storage} storage may not have been deleted:"
                        f" {error.message}; {f'{remedy}, then ' if remedy else ''}log in again with --no-remember"
                    )

    def _delete_password(self, storage: Storage, known: "KnownStore") -> None:
        options = self._options_at(storage, known.location)
        record = open_store(storage, options).read(self._identity)
        if record and record.password:
            store = open_store(storage, options)
            store.write(self._identity, Record(record.token))

    def _known_stores(self) -> "list[KnownStore]":
        try:
            if self._index.has_damaged_entry(self._identity):
                self._repository.warn(
                    "the entry of the account in the index of accounts is damaged, so the token may remain in a store"
                    " that the settings do not select"
                )
            return self._index.stores(self._identity)
        except OSError:
            return []  # the stores are still searched

    def _remove_from_index(self, *, but: "Sequence[KnownStore]") -> OSError | None:
        """Record the logout; return the error if that failed because the disk is full."""
        try:
            self._index.remove(self._identity, but=but)
        except OSError as error:
            if error.errno in DISK_IS_FULL:
                return error
            self._repository.report_lock_failure(error)
        return None

    def _possible_stores(self, known: "Sequence[KnownStore]") -> "Iterator[KnownStore]":
        """Yield the selected store and those in the state directory that are not *known*: an entry may be missing."""
        from xapi_cli.store.account_index import KnownStore

        for storage in registry.STORES:
            is_selected = storage == registry.selected(self._repository.setting)
            if storage.is_persistent and (storage.needs_state_directory or is_selected):
                location = storage.location(self._repository.options)
                if not any(store.is_at(storage.name, location) for store in known):
                    yield KnownStore(storage.name, location, is_written=False)

    def _delete_from(self, store: "KnownStore", known: "Sequence[KnownStore]") -> tuple[bool, str | None]:
        """Delete the record in *store*; return whether there was one and, if it matters, when its token was obtained.

        Raises StoreError if the store cannot be used, which is an error only if the user selected it or it is *known*,
        and if the record that is known to have been written was not found.
        """
        storage, obtained = _storage(store), None
        try:
            opened = self._store_to_delete_from(storage, store)
            if any(each.storage == store.storage and each != store for each in known):
                with suppress(StoreError):  # deleting it raises the same error, or succeeds
                    obtained = obtained_at(opened.read(self._identity))
            is_found = opened.delete(self._identity)
        except (StoreError, UsageError) as error:
            if store in known:
                raise self._with_location(error, storage, store) from error
            if storage.name == self._repository.setting:
                raise
            if not isinstance(error, NoBackend):
                self._repository.warn(f"{error.message}; data of this account that it may contain was not deleted")
            return False, None
        if not is_found and store.is_written and store in known and not storage.is_location_exact:
            raise StoreError(
                f"its token was not found in {registry.described(storage, store.location)}, where it was stored",
                hint="log out in the environment in which you logged in, or, if another program deleted it,"
                f" remove {printable(str(self._index.file(self._identity).path))}",
            )
        return is_found, obtained

    def _store_to_delete_from(self, storage: Storage, known: "KnownStore") -> "Store":
        """Return the store of *storage* at the location of *known*.

        It is the same for all accounts, so that one that does not respond delays once.
        """
        repository = self._repository
        if storage.logins == "shared" and storage == repository.row and self._is_current(storage, known):
            store_in_use: Store = repository.opened()
            return store_in_use  # with its connection
        for each, opened in self._repository.opened_elsewhere:
            if each.is_at(known.storage, known.location):
                return opened
        # whatever the setting is now, a record that was cached is erased
        opened = open_store(storage, self._options_at(storage, known.location))
        self._repository.opened_elsewhere.append((known, opened))
        return opened

    def _options_at(self, storage: Storage, location: "Location") -> StoreOptions:
        """Return the options of the first profile that leads to *location*, else those in use with that location."""
        if not storage.settings:
            return registry.options_at(location, self._repository.options)
        options = [
            self._repository.options,
            *(self._repository.options._replace(settings=each) for each in self._repository.other_settings()),
        ]
        for each in options:
            with suppress(UsageError):
                if storage.location(each) == location:
                    return each
        return registry.options_at(location, self._repository.options)

    def _is_current(self, storage: Storage, known: "KnownStore") -> bool:
        """Return whether the settings lead to the location of *known*."""
        try:
            return storage.location(self._repository.options) == known.location
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
        message = f"{registry.described(storage, known.location)}: {error.message}"
        if isinstance(error, UsageError):
            return UsageError(message, hint=error.hint)
        return StoreError(message, hint=error.remedy, alternative=error.alternative)


def not_recorded(error: OSError) -> StoreError:
    """Return the error for a logout that could not be recorded, because of *error*."""
    return StoreError(
        f"the logout could not be recorded ({error.strerror}), so a login in progress may undo it",
        hint="free space, then log out again",
    )


def without_other_storage(error: _ErrorT) -> "_ErrorT | StoreError":
    """Return *error* with a hint that lets the logout succeed, if it suggests another storage."""
    if not isinstance(error, StoreError) or error.alternative is None:
        return error
    elsewhere = "log out in the environment in which you logged in"
    return StoreError(error.message, hint=f"{error.remedy}, then log out again" if error.remedy else elsewhere)


def _combined(errors: Sequence[StoreError | UsageError]) -> StoreError | UsageError:
    if len(errors) == 1:
        return errors[0]
    hints = "; ".join(dict.fromkeys(error.hint for error in errors if error.hint))
    return StoreError("; ".join(dict.fromkeys(error.message for error in errors)), hint=hints or None)


def _storage(known: "KnownStore") -> Storage:
    """Return the storage of *known*; raise StoreError if this version of xapi does not have it."""
    for storage in registry.STORES:
        if storage.name == known.storage:
            return storage
    raise StoreError(
        f"this version of xapi does not have the storage {printable(known.storage)}, in which a token was stored",
        hint="log out with the version that stored it",
    )

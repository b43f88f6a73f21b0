"""A logout: delete the record of an account from every store that may contain it, and record that."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from xapi_cli.errors import StoreError, UsageError
from xapi_cli.hints import joined, together
from xapi_cli.store import registry
from xapi_cli.store.index import AccountIndex, KnownStore
from xapi_cli.store.protocol import NoBackend
from xapi_cli.store.registry import open_store
from xapi_cli.system.render import printable
from xapi_cli.tokens import Identity

if TYPE_CHECKING:
    from xapi_cli.feature_table import Storage
    from xapi_cli.store.protocol import Store
    from xapi_cli.store.repository import TokenRepository
    from xapi_cli.system.files import StateDirectory


def delete_everywhere(repository: "TokenRepository", *, only_known: bool = False) -> bool:
    """Delete the record from every store that is known to have it, and the selected one; return whether there was any.

    Raises StoreError, which names the places, if anything could not be deleted there; these remain known. With
    *only_known*, the store that the settings select is not searched.
    """
    index, identity = repository.index, repository.identity
    with repository.writing():
        with _without_state(repository):
            index.mark_logout(identity)  # from here on, logins in progress store nothing
        known = _known(repository)
        found, failed = False, list[tuple[KnownStore, StoreError]]()
        selected = None if only_known else repository.selected  # the index may lack it
        for store in [*known, selected] if selected and selected not in known else known:
            try:
                found = _delete_from(repository, store) or found
            except StoreError as error:
                if store in known or repository.setting != registry.AUTO or not isinstance(error, NoBackend):
                    failed.append((store, error))
        repository.forget_rejection()
        with _without_state(repository):
            index.replace(identity, [store for store, _ in failed if store in known])
    if failed:
        hints = dict.fromkeys(error.hint for _, error in failed if error.hint)
        raise StoreError("; ".join(error.message for _, error in failed), hint=joined("; ", hints) if hints else None)
    return found


def known_accounts(state: "StateDirectory") -> list[Identity]:
    """Stop all logins in progress; return the accounts that may have a record; raise StoreError if that fails."""
    index = AccountIndex(state)
    with suppress(OSError):  # a login in progress cannot list its account either, and the next step reports it
        index.mark_logout(None)
    try:
        return index.accounts()
    except OSError as error:
        raise StoreError(
            f"the index of accounts cannot be read: {error.strerror}", hint="check XAPI_STATE_DIR"
        ) from error


def delete_passwords_elsewhere(repository: "TokenRepository") -> None:
    """Delete the password, and keep the token, in each known store that is not in use; a failure is a warning."""
    with repository.writing():
        for store in _known(repository):
            if store == repository.selected:
                continue
            try:
                storage = _storage(store)
                if storage.remembers_passwords:
                    opened = _opened(repository, storage, store)
                    if (record := opened.read(repository.identity)) and record.password:
                        opened.write(repository.identity, record._replace(password=None))
            except (StoreError, UsageError) as error:
                repository.options.warn(
                    f"a password of this account in {store.storage} storage may not have been deleted: {error.message}"
                )


@contextmanager
def _without_state(repository: "TokenRepository") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        repository.continue_without_state(error)


def _known(repository: "TokenRepository") -> list[KnownStore]:
    try:
        return repository.index.stores(repository.identity)
    except OSError:
        return []  # the selected store is still searched


def _delete_from(repository: "TokenRepository", store: KnownStore) -> bool:
    """Delete the record in *store*; return whether there was one. Raises StoreError, which names the store."""
    storage = _storage(store)
    where = f"{registry.described(storage, store.place)}: " if store.place else ""  # otherwise, the message names it
    try:
        return _opened(repository, storage, store).delete(repository.identity)
    except (StoreError, UsageError) as error:
        kind = NoBackend if isinstance(error, NoBackend) else StoreError
        remedy = error.remedy if isinstance(error, StoreError) else error.hint
        hint = together(remedy, ", then log out again") if remedy else "log out where you logged in"
        raise kind(f"{where}{error.message}", hint=hint) from error


def _opened(repository: "TokenRepository", storage: "Storage", store: KnownStore) -> "Store":
    """Return *store*, opened once for all accounts: one that does not respond delays once.

    The options of the command, which may have its password, are used if they lead to it.
    """
    where = registry.described(storage, store.place)
    if where not in repository.opened_elsewhere:
        options = registry.options_at(store.place, repository.options)
        with suppress(UsageError):  # a setting is missing
            if registry.place_of(storage, repository.options) == store.place:
                options = repository.options
        repository.opened_elsewhere[where] = open_store(storage, options)
    return repository.opened_elsewhere[where]


def _storage(store: KnownStore) -> "Storage":
    """Return the storage of *store*; raise StoreError if this version of xapi does not have it."""
    for storage in registry.STORES:
        if storage.name == store.storage:
            return storage
    raise StoreError(
        f"{printable(store.storage)}: this version of xapi does not have that storage",
        hint="log out with the version that logged in",
    )

"""Log out of one account or of all known ones; a failure for one account does not prevent the others."""

from typing import TYPE_CHECKING

from xapi_cli.auth.account import name_of
from xapi_cli.errors import StoreError, TimeoutExpired, UsageError
from xapi_cli.usecases.access_token import warn_of_supplied_token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xapi_cli.errors import XapiError
    from xapi_cli.runtime import Runtime
    from xapi_cli.tokens import Identity


def log_out(runtime: "Runtime", *, everything: bool) -> None:
    """Delete what is stored for the account of the settings or, with *everything*, for every known account.

    Raises StoreError or TimeoutExpired if anything could not be deleted, and UsageError if that needs another setting.
    """
    unrecorded = _record_for_all(runtime) if everything else None  # before the accounts are read, see `account_index`
    identities = _known_accounts(runtime) if everything else [runtime.identity]
    warn_of_supplied_token(runtime, "commands use that token until you unset the variable")
    storage = _storage_for_all(runtime.settings.storage) if everything else runtime.settings.storage
    failures = list(_failures(runtime, identities, storage))
    if unrecorded and not failures:
        failures.append(unrecorded)
    if not identities:
        runtime.terminal.note("no known account, nothing to delete")
    for failure in failures[:-1]:
        runtime.terminal.fail(failure)
    for failure in failures[-1:]:
        raise failure


def remaining(runtime: "Runtime", identity: "Identity") -> str | None:
    """Return a note on what is known to be stored for *identity*, which no longer has a profile; None for nothing."""
    from xapi_cli.store import registry
    from xapi_cli.store.account_index import AccountIndex
    from xapi_cli.system.render import pasteable

    index = AccountIndex.of(runtime.state_directory)
    try:
        stores = {store.storage for store in index.stores(identity) if store.is_written}
    except OSError:
        return None
    places = " and ".join(storage.place for storage in registry.STORES if storage.name in stores)
    if not places:
        return None
    account = f"--base-url {pasteable(identity.base_url)} --username {pasteable(identity.username)}"
    return f"the token of {name_of(identity)} remains in {places}; to delete it, run `xapi logout {account}`"


def _record_for_all(runtime: "Runtime") -> StoreError | None:
    """Record a logout of all accounts, so that no login in progress undoes it; return an error if the disk is full.

    A directory that cannot be written is reported for each account; logins in progress cannot write there either.
    """
    from xapi_cli.store.account_index import AccountIndex
    from xapi_cli.store.deletion import not_recorded
    from xapi_cli.store.repository import DISK_IS_FULL

    try:
        AccountIndex.of(runtime.state_directory).log_out_all()
    except OSError as error:
        return not_recorded(error) if error.errno in DISK_IS_FULL else None
    return None


def _known_accounts(runtime: "Runtime") -> "list[Identity]":
    from xapi_cli.store.account_index import AccountIndex

    index = AccountIndex.of(runtime.state_directory)
    try:
        if index.is_damaged():
            runtime.terminal.warn(
                "the index of accounts is damaged, so some accounts may still be logged in;"
                " run `xapi logout -p NAME` for each profile"
            )
        return index.all()
    except OSError as error:
        raise StoreError(
            f"the index of accounts cannot be read: {error.strerror}", hint="check XAPI_STATE_DIR"
        ) from error


def _storage_for_all(setting: str) -> str:
    """Return the storage to delete from in addition to those in which an account is known.

    A storage that machines share is not searched for accounts that are unknown there: an account that this machine has
    only in other stores can then be logged out of while the server of the shared one cannot be reached.
    """
    from xapi_cli.store import registry

    return registry.fallback().name if registry.selected(setting).logins == "shared" else setting


def _failures(runtime: "Runtime", identities: "list[Identity]", storage: str) -> "Iterator[XapiError]":
    """Log out of *identities* and print a note for each; yield the error of each that failed."""
    from xapi_cli.auth.failures import LoginFailures
    from xapi_cli.store.deletion import Deletion
    from xapi_cli.store.login_session import open_session

    repository = None
    for identity in identities:
        repository = repository.of(identity) if repository else runtime.repository(identity, storage=storage)
        deletion = Deletion(repository)
        name = name_of(identity)
        try:
            found = deletion.run()
            LoginFailures(open_session(repository, limit=0).failures[0]).delete(identity)
        except (StoreError, TimeoutExpired, UsageError) as error:
            yield _named(error, name, deletion.cleared)
        else:
            runtime.terminal.note(f"logged out of {name}" if found else f"nothing was stored for {name}")


def _named(error: "XapiError", name: str, cleared: "list[str]") -> "XapiError":
    """Return *error* with the account *name*, and with the stores *cleared*, which no longer contain anything of it."""
    from xapi_cli.store.deletion import without_other_storage

    error = without_other_storage(error)
    problem = f"logged out of {name} in {' and '.join(cleared)} only" if cleared else f"cannot log out of {name}"
    return type(error)(f"{problem}: {error.message}", hint=error.hint)

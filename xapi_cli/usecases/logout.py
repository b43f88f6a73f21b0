"""Log out of one account or of all known ones; a failure for one account does not prevent the others."""

from typing import TYPE_CHECKING

from xapi_cli.errors import StoreError, TimeoutExpired
from xapi_cli.usecases.access_token import warn_of_supplied_token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xapi_cli.errors import XapiError
    from xapi_cli.runtime import Runtime
    from xapi_cli.tokens import Identity


def log_out(runtime: "Runtime", *, everything: bool) -> None:
    """Delete what is stored for the account of the settings or, with *everything*, for every known account.

    Raises StoreError or TimeoutExpired if anything could not be deleted.
    """
    identities = _known_accounts(runtime) if everything else [runtime.identity]
    warn_of_supplied_token(runtime, "commands use that token until you unset the variable")
    failures = list(_failures(runtime, identities))
    if not identities:
        runtime.terminal.note("no known account, nothing to delete")
    for failure in failures[:-1]:
        runtime.terminal.fail(failure)
    for failure in failures[-1:]:
        raise failure


def _known_accounts(runtime: "Runtime") -> "list[Identity]":
    from xapi_cli.store.account_index import AccountIndex

    try:
        return AccountIndex(runtime.state_directory / "known").all()
    except OSError as error:
        raise StoreError(
            f"the index of accounts cannot be read: {error.strerror}", hint="check XAPI_STATE_DIR"
        ) from error


def _failures(runtime: "Runtime", identities: "list[Identity]") -> "Iterator[XapiError]":
    """Log out of *identities* and print a note for each; yield the error of each that failed."""
    repository = None
    for identity in identities:
        repository = repository.of(identity) if repository else runtime.repository(identity)
        name = f"{identity.username} at {identity.base_url}"
        try:
            found = runtime.account(identity, repository=repository).log_out()
        except (StoreError, TimeoutExpired) as error:
            yield type(error)(f"cannot log out of {name}: {error.message}", hint=error.hint)
        else:
            runtime.terminal.note(f"logged out of {name}" if found else f"nothing was stored for {name}")

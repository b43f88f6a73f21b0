"""Log out of one account or of all known ones; a failure for one account does not prevent the others."""

from typing import TYPE_CHECKING

from xapi_cli.errors import StoreError, TimeoutExpired
from xapi_cli.usecases.access_token import warn_of_supplied_token

if TYPE_CHECKING:
    from xapi_cli.errors import XapiError
    from xapi_cli.runtime import Runtime
    from xapi_cli.tokens import Identity


def log_out(runtime: "Runtime", *, everything: bool) -> None:
    """Delete what is stored for the account of the settings or, with *everything*, for every known account.

    Raises StoreError or TimeoutExpired if anything could not be deleted.
    """
    identities = _known_accounts(runtime) if everything else [runtime.identity]
    warn_of_supplied_token(runtime, "commands use that token until you unset the variable")
    failures = [failure for identity in identities if (failure := _log_out_of(runtime, identity))]
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


def _log_out_of(runtime: "Runtime", identity: "Identity") -> "XapiError | None":
    """Log out of *identity* and print a note; return the error if that failed."""
    name = f"{identity.username} at {identity.base_url}"
    try:
        found = runtime.account(identity).log_out()
    except (StoreError, TimeoutExpired) as error:
        return type(error)(f"cannot log out of {name}: {error.message}", hint=error.hint)
    runtime.terminal.note(f"logged out of {name}" if found else f"nothing was stored for {name}")
    return None

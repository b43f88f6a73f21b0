"""Forget what is stored."""

from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import LOCAL, settings_flags
from xapi_cli.errors import StoreError, TimeoutExpired

if TYPE_CHECKING:
    from xapi_cli.errors import XapiError
    from xapi_cli.runtime import Runtime
    from xapi_cli.tokens import Identity


@settings_flags(*LOCAL, "no_input")
def logout(
    ctx: typer.Context,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Forget every known account.")] = False,
) -> None:
    """Forget the token and the password.

    Both are deleted from every store that they are in. The server is not told:
    the API has no way to revoke a token.

    Examples:

    \b
      xapi logout
      xapi logout --profile staging
      xapi logout --all
    """
    runtime: Runtime = ctx.obj
    identities = _all(runtime) if everything else [runtime.identity]
    runtime.warn_of_token_in_environment("it stays in use until you unset it")
    failures = [failure for identity in identities if (failure := _forget(runtime, identity))]
    if not identities:
        runtime.terminal.note("no account is known, so there is nothing to forget")
    for failure in failures[:-1]:
        runtime.terminal.fail(failure)
    for failure in failures[-1:]:
        raise failure


def _all(runtime: "Runtime") -> "list[Identity]":
    from xapi_cli.store.account_index import AccountIndex

    try:
        return AccountIndex(runtime.state / "known").all()
    except OSError as error:
        raise StoreError(
            f"the index of accounts cannot be read: {error.strerror}", hint="check XAPI_STATE_DIR"
        ) from error


def _forget(runtime: "Runtime", identity: "Identity") -> "XapiError | None":
    """Log *identity* out; return what was in the way, so that the others are logged out all the same."""
    who = f"{identity.username} at {identity.base_url}"
    try:
        found = runtime.account(identity).log_out()
    except (StoreError, TimeoutExpired) as error:
        return type(error)(f"{who} is not logged out: {error.message}", hint=error.hint)
    runtime.terminal.note(f"logged out: {who}" if found else f"nothing was stored for {who}")
    return None

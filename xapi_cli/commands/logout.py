"""Forget what is stored."""

from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.commands.options import LOCAL, settings_flags

if TYPE_CHECKING:
    from xapi_cli.runtime import Runtime
    from xapi_cli.tokens import Identity


@settings_flags(*LOCAL)
def logout(
    ctx: typer.Context,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Forget every known account.")] = False,
) -> None:
    """Delete the token and the remembered password from every store they are in.

    The server is not told: the API has no way to revoke a token.

    Examples:

    \b
      xapi logout
      xapi logout --profile staging
      xapi logout --all
    """
    runtime: Runtime = ctx.obj
    identities = _all(runtime) if everything else [runtime.identity]
    runtime.warn_of_token_in_environment("it stays in use until you unset it")
    for identity in identities:
        _forget(runtime, identity)
    if not identities:
        runtime.terminal.note("no account is known, so there is nothing to forget")


def _all(runtime: "Runtime") -> "list[Identity]":
    from xapi_cli.auth.known import KnownAccounts
    from xapi_cli.errors import StoreError

    try:
        return KnownAccounts(runtime.state / "known").all()
    except OSError as error:
        raise StoreError(
            f"the index of accounts cannot be read: {error.strerror}", hint="check XAPI_STATE_DIR"
        ) from error


def _forget(runtime: "Runtime", identity: "Identity") -> None:
    who = f"{identity.username} at {identity.base_url}"
    if runtime.account(identity).log_out():
        runtime.terminal.note(f"logged out: {who}")
    else:
        runtime.terminal.note(f"nothing was stored for {who}")

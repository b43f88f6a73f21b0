"""`xapi logout`: deletes what is stored."""

from typing import TYPE_CHECKING, Annotated

import typer

from xapi_cli.cli.options import ACCOUNT, settings_flags

if TYPE_CHECKING:
    from xapi_cli.context import Context
    from xapi_cli.errors import XapiError

All = Annotated[bool, typer.Option("--all", help="Log out of every known account.")]


@settings_flags(*ACCOUNT)
def logout(ctx: typer.Context, *, everything: All = False) -> None:
    """Delete the stored token and password.

    Deletes both from every store that may hold them. Sends nothing to the
    server, because the API has no way to revoke a token.

    Examples:

    \b
      xapi logout
      xapi logout --profile staging
      xapi logout --all
    """
    from xapi_cli.auth.account import name_of
    from xapi_cli.errors import StoreError, TimeoutExpired, UsageError
    from xapi_cli.store.deletion import delete_everywhere, known_accounts

    context: Context = ctx.obj
    terminal = context.terminal
    if everything:
        identities = known_accounts(context.state_directory)
        if not identities:
            terminal.note("no known account, nothing to delete")
    else:
        identities = [context.identity]
    context.warn_of_supplied_token("commands use that token until you unset the variable")

    failures: list[XapiError] = []
    repository = None
    for identity in identities:
        name = name_of(identity)
        repository = repository.of(identity) if repository else context.repository(identity)
        try:
            is_found = delete_everywhere(repository, only_known=everything)
        except (StoreError, TimeoutExpired, UsageError) as error:
            failures.append(type(error)(f"cannot log out of {name}: {error.message}", hint=error.hint))
        else:
            terminal.note(f"logged out of {name}" if is_found else f"nothing was stored for {name}")
    for failure in failures[:-1]:
        terminal.fail(failure)
    for failure in failures[-1:]:
        raise failure

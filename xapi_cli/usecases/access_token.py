"""The access token of the settings and its subject, for the commands that show a token or pass it on."""

from dataclasses import replace
from typing import TYPE_CHECKING

from xapi_cli.auth.token_formats import Subject
from xapi_cli.tokens import Token

if TYPE_CHECKING:
    from xapi_cli.auth.stored_token import StoredToken
    from xapi_cli.runtime import Runtime


def usable_token(
    runtime: "Runtime", *, min_ttl: float = 0, fresh: bool = False, automatic: bool = True
) -> tuple[Token, Subject]:
    """Return a token that is valid for at least *min_ttl* seconds, and its subject; log in if necessary.

    With *fresh*, a login is always necessary. Raises LoginNeeded if a login is necessary and not *automatic*, and the
    exceptions of a login.
    """
    if supplied := _supplied_token(runtime):
        return supplied
    account = runtime.stored_token(automatic=automatic)
    token = account.token(min_ttl=min_ttl, fresh=fresh)
    if min_ttl and not token.lasts(runtime.now(), min_ttl):
        runtime.terminal.warn("the new token also has less time left than --min-ttl requires")
    return token, _subject(runtime, account)


def present_token(runtime: "Runtime") -> tuple[Token | None, Subject]:
    """Return the supplied token or the stored one, None if there is none, and its subject, without a login."""
    if supplied := _supplied_token(runtime):
        return supplied
    account = runtime.stored_token(automatic=False)
    token = account.stored()
    return token, replace(_subject(runtime, account), source="store" if token else None)


def warn_of_supplied_token(runtime: "Runtime", consequence: str) -> None:
    """If the user supplies a token, print a warning that states the *consequence*."""
    if variable := runtime.settings.token_variable:
        runtime.terminal.warn(f"{variable} is set and overrides the stored token: {consequence}")


def _supplied_token(runtime: "Runtime") -> tuple[Token, Subject] | None:
    settings, token = runtime.settings, runtime.supplied_token()
    if not token:
        return None
    account = (settings.base_url, settings.username, settings.profile)
    return Token(token), Subject(*account, "none", "env", settings.token_variable)


def _subject(runtime: "Runtime", account: "StoredToken") -> Subject:
    base_url, username = account.repository.identity
    return Subject(base_url, username, runtime.settings.profile, account.repository.storage, account.source)

"""The access token of the settings: print it, or return it for another program."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from xapi_cli.errors import UsageError
from xapi_cli.settings.table import other_tokens
from xapi_cli.system import message_format
from xapi_cli.system.render import exports, instant, json_line
from xapi_cli.tokens import Token

if TYPE_CHECKING:
    from xapi_cli.auth.account import Account, Source
    from xapi_cli.runtime import Runtime
    from xapi_cli.store.repository import TokenRepository


class Subject(NamedTuple):
    """The account and profile of a token, and where the token comes from; *variable* is that of a supplied token."""

    base_url: str | None
    username: str | None
    profile: str
    storage: str
    source: "Source | None"
    variable: str | None = None


def show_token(runtime: "Runtime", *, format: str, min_ttl: str | None, fresh: bool, automatic: bool) -> None:  # noqa: A002 - the flag's name
    """Print a token that is valid for the duration *min_ttl*; with *fresh*, always a new one.

    Raises UsageError for arguments that exclude each other, LoginNeeded if a login is necessary and not *automatic*,
    and the errors of a login.
    """
    seconds = min_ttl_of(min_ttl)
    if fresh and (not automatic or runtime.settings.token_variable):
        other = runtime.settings.token_variable if automatic else "--no-login"
        raise UsageError(f"--fresh and {other} cannot be combined", hint="use only one of them")
    token, subject = usable_token(runtime, min_ttl=seconds, fresh=fresh, automatic=automatic)
    if message_format.is_github_runner(runtime.environ):
        runtime.terminal.print_stderr(message_format.workflow_command("add-mask", token.access_token))
    runtime.terminal.print(_formatted(token, subject, format, runtime.now(), runtime.environ))


def min_ttl_of(text: str | None) -> float:
    """Return the seconds in *text*, the value of --min-ttl; raises UsageError if it is not valid."""
    if text is None:
        return 0.0
    from xapi_cli.settings import values

    return values.seconds(text, name="--min-ttl")


def usable_token(
    runtime: "Runtime", *, min_ttl: float = 0, fresh: bool = False, automatic: bool = True
) -> tuple[Token, Subject]:
    """Return a token that is valid for at least *min_ttl* seconds, and its subject; log in if necessary.

    With *fresh*, a login is always necessary. Raises LoginNeeded if a login is necessary and not *automatic*, and the
    exceptions of a login.
    """
    if supplied := _supplied_token(runtime):
        return supplied
    account = runtime.account(automatic=automatic)
    token = account.token(min_ttl=min_ttl, fresh=fresh)
    if min_ttl and not token.lasts(runtime.now(), min_ttl):
        runtime.terminal.warn("the new token also has less time left than --min-ttl requires")
    return token, _subject(runtime, account)


def present_token(runtime: "Runtime") -> "tuple[Token | None, Subject, TokenRepository | None]":
    """Return the supplied token or the stored one, None if there is none, and its subject, without a login.

    The last value is the repository of the stored one.
    """
    if supplied := _supplied_token(runtime):
        return *supplied, None
    account = runtime.account(automatic=False)
    token = account.stored()
    return token, _subject(runtime, account)._replace(source="store" if token else None), account.repository


def warn_of_supplied_token(runtime: "Runtime", consequence: str) -> None:
    """If the user supplies a token, print a warning that states the *consequence*."""
    if variable := runtime.settings.token_variable:
        runtime.terminal.warn(f"{variable} is set and overrides the stored token: {consequence}")


def metadata(token: Token | None, subject: Subject, now: datetime) -> dict[str, Any]:
    """Return the metadata of *token*, without the secret."""
    expires_at = token.expires_at if token else None
    return {
        "token_type": token.token_type if token else None,
        "expires_at": instant(expires_at) if expires_at else None,
        "expires_at_epoch": int(expires_at.timestamp()) if expires_at else None,
        "expires_in": max(0, token.seconds_left(now) or 0) if token and expires_at else None,
        "base_url": subject.base_url,
        "username": subject.username,
        "profile": subject.profile,
        "storage": subject.storage,
        "source": subject.source,
    }


def _formatted(
    token: Token,
    subject: Subject,
    format: str,  # noqa: A002 - the name of the flag
    now: datetime,
    environ: Mapping[str, str],
) -> str:
    """Return *token* in one of the formats of `token show`."""
    match format:
        case "header":
            from xapi_cli.http import authorization

            return f"{authorization.NAME}: {authorization.value(token)}"
        case "json":
            return json_line({"access_token": token.access_token} | metadata(token, subject, now))
        case "env":
            values = {"XAPI_TOKEN": token.access_token}
            if subject.base_url:  # as `exec` sets it
                values["XAPI_BASE_URL"] = subject.base_url
            return exports(values, unset=other_tokens(environ))
        case _:
            return token.access_token


def _supplied_token(runtime: "Runtime") -> tuple[Token, Subject] | None:
    settings, token = runtime.settings, runtime.supplied_token()
    if not token:
        return None
    account = (settings.base_url, settings.username, settings.profile)
    return Token(token), Subject(*account, "none", "env", settings.token_variable)


def _subject(runtime: "Runtime", account: "Account") -> Subject:
    base_url, username = account.repository.identity
    return Subject(base_url, username, runtime.settings.profile, account.repository.storage, account.source)

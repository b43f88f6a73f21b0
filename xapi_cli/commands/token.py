"""Show the token or its status.

Examples:

\b
  xapi token show --header |
    curl -H @- https://api.example.com/x-api/me
  xapi token status --min-ttl 1h
"""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from xapi_cli.auth.account import Source, State, state_of
from xapi_cli.cli.options import ACCOUNT, NETWORK, MinTtl, settings_flags
from xapi_cli.errors import (
    UNAUTHORIZED,
    AuthenticationError,
    LoginNeeded,
    ServerStatusError,
    TokenRejected,
    UsageError,
)
from xapi_cli.hints import Hint
from xapi_cli.settings import values
from xapi_cli.settings.table import other_tokens
from xapi_cli.store import registry
from xapi_cli.system import message_format
from xapi_cli.system.render import exports, instant, json_line, until
from xapi_cli.tokens import Token

if TYPE_CHECKING:
    from xapi_cli.auth.account import Account
    from xapi_cli.context import Context
    from xapi_cli.store.repository import TokenRepository

Format = Literal["token", "header", "json", "env"]


@settings_flags(*ACCOUNT, *NETWORK)
def show(
    ctx: typer.Context,
    *,
    format: Annotated[Format | None, typer.Option("--format", help="Output format.  [default: token]")] = None,  # noqa: A002 - the flag's name
    header: Annotated[bool, typer.Option("--header", help="Short for --format header.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
    min_ttl: MinTtl = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Log in even if the token is valid.")] = False,
    no_login: Annotated[bool, typer.Option("--no-login", help="Exit with code 10 instead of logging in.")] = False,
) -> None:
    """Print a usable access token.

    Logs in first if necessary. With --min-ttl, renews a token that has less
    than DURATION left. Only this command prints a token.

    Examples:

    \b
      xapi token show
      xapi token show --header |
        curl -H @- https://api.example.com/x-api/me
      eval "$(xapi token show --format env)"
      xapi token show --json --min-ttl 1h | jq -r .expires_at
    """
    context: Context = ctx.obj
    formats: set[Format] = {option for option in (format, header and "header", json and "json") if option}
    if len(formats) > 1:
        raise UsageError("--format, --header and --json select different formats", hint="use only one of them")
    seconds = 0.0 if min_ttl is None else values.seconds(min_ttl, name="--min-ttl")
    supplied = context.supplied_token()
    if supplied:
        if fresh:
            variable = context.settings.token_variable
            raise UsageError(f"--fresh and {variable} cannot be combined", hint="use only one of them")
        token, subject = Token(supplied), _supplied_subject(context)
    else:
        account = context.account(automatic=not no_login)
        token = account.token(min_ttl=seconds, fresh=fresh)
        subject = _subject(context, account)
        if seconds and not token.lasts(context.now(), seconds):
            context.terminal.warn("the new token also has less time left than --min-ttl requires")
    if message_format.is_github_runner(context.environ):
        context.terminal.print_stderr(message_format.workflow_command("add-mask", token.access_token))
    if "header" in formats:
        from xapi_cli.http import authorization

        text = f"{authorization.NAME}: {authorization.value(token)}"
    elif "json" in formats:
        text = json_line({"access_token": token.access_token} | _metadata(token, subject, context.now()))
    elif "env" in formats:
        base_url = {"XAPI_BASE_URL": subject.base_url} if subject.base_url else {}  # as `exec` sets it
        text = exports({"XAPI_TOKEN": token.access_token, **base_url}, unset=other_tokens(context.environ))
    else:
        text = token.access_token
    context.terminal.print(text)


@settings_flags(*ACCOUNT, *NETWORK)
def status(
    ctx: typer.Context,
    *,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, which is the default if stdout is not a terminal.")
    ] = False,
    min_ttl: Annotated[
        str | None,
        typer.Option(
            "--min-ttl", metavar="DURATION", help="Exit with code 10 if the token has less than DURATION left."
        ),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            metavar="PATH",
            help="Also send GET PATH with the token to the API. PATH must require the token.",
        ),
    ] = None,
) -> None:
    """Show the status of the stored token.

    Does not show the token itself. The exit code is 0 if the token is valid,
    otherwise 10. Sends no request, except with --check. The state is rejected
    after a 401, until a later response is neither a 401 nor a 5xx.

    Examples:

    \b
      xapi token status
      xapi token status --min-ttl 7d || echo "log in soon"
      xapi token status --check /x-api/me
    """
    from xapi_cli.http import urls

    context: Context = ctx.obj
    seconds = 0.0 if min_ttl is None else values.seconds(min_ttl, name="--min-ttl")
    url = None if check is None else urls.resolve(context.base_url, check)
    context.warn_of_supplied_token(f"this is the status of the token in {context.settings.token_variable}")
    token: Token | None
    repository: TokenRepository | None = None
    if supplied := context.supplied_token():
        token, subject = Token(supplied), _supplied_subject(context)
        hint: Hint = f"replace the token, or unset {context.settings.token_variable}"
    else:
        account = context.account(automatic=False)
        token, repository = account.stored(), account.repository
        subject = _subject(context, account)._replace(source="store" if token else None)
        hint = registry.login_hint(repository.row)
    response = None if token is None or url is None else _check(context, token, url, repository)
    now = context.now()
    state = "rejected" if response == UNAUTHORIZED else state_of(token, now, seconds, repository=repository)
    if json or not context.terminal.stdout_is_terminal:
        context.terminal.print(json_line(_metadata(token, subject, now) | {"state": state}))
    else:
        context.terminal.print(_table(context, state, token, subject))
    if state != "valid":
        error = _error(state, hint)
        if url is not None and response == UNAUTHORIZED:
            error.concerning(status=response, method="GET", url=urls.displayed_without_query(url))
        raise error


class _Subject(NamedTuple):
    """The account and profile of a token, and where the token comes from."""

    base_url: str | None
    username: str | None
    profile: str
    storage: str
    source: Source | None


def _supplied_subject(context: "Context") -> _Subject:
    found = context.settings
    return _Subject(found.base_url, found.username, found.profile, "none", "env")


def _subject(context: "Context", account: "Account") -> _Subject:
    return _Subject(*account.identity, context.settings.profile, account.repository.storage, account.source)


def _metadata(token: Token | None, subject: _Subject, now: datetime) -> dict[str, Any]:
    """Return the metadata of *token*, without the secret."""
    expires_at = token.expires_at if token else None
    return {
        "token_type": token.token_type if token else None,
        "expires_at": instant(expires_at) if expires_at else None,
        "expires_at_epoch": int(expires_at.timestamp()) if expires_at else None,
        "expires_in": max(0, token.seconds_left(now) or 0) if token and expires_at else None,
        **subject._asdict(),
    }


def _check(context: "Context", token: Token, url: str, repository: "TokenRepository | None") -> int:
    """Return the status of a GET request with *token* to *url*; record in *repository* whether it was accepted.

    Raises RedirectError, ServerStatusError, NetworkError or TimeoutExpired if there is no usable response.
    """
    from xapi_cli.auth.token_source import SuppliedToken, TokenSource
    from xapi_cli.http.send import Call, Sender
    from xapi_cli.request.status_errors import concern

    tokens = TokenSource(SuppliedToken("", lambda: token.access_token))
    sender = Sender(context.transport, context.base_url, tokens, deadline=context.deadline)
    outcome = sender.send(Call("GET", url, context.default_headers))
    response = outcome.response
    response.close()
    if outcome.refused_redirect is not None:  # perhaps to sign in
        concern(outcome.refused_redirect, response)
        raise outcome.refused_redirect
    if response.status >= 500:
        error = ServerStatusError(f"the API responded with {response.status}", hint="try again later")
        concern(error, response)
        raise error
    if repository is not None and response.status == UNAUTHORIZED:
        repository.record_rejection(token)
    elif repository is not None:
        repository.forget_rejection()
    return response.status


def _table(context: "Context", state: State, token: Token | None, subject: _Subject) -> str:
    """Return the token status as a small table."""
    from xapi_cli.system.style import Cell, color_of_state, table

    rows: list[tuple[str, str | Cell]] = [
        ("state", Cell(state, color_of_state(state))),
        ("username", subject.username or "-"),
        ("base URL", subject.base_url or "-"),
        ("profile", subject.profile),
        ("expires", until(token.expires_at, context.now()) if token else "-"),
        ("storage", "environment" if subject.source == "env" else subject.storage),
    ]
    return table(rows, context.terminal.style)


def _error(state: State, hint: Hint) -> AuthenticationError:
    match state:
        case "short":
            return AuthenticationError("the token has less time left than --min-ttl requires", hint=hint)
        case "expired":
            return LoginNeeded("the token has expired", hint=hint)
        case "rejected":
            return TokenRejected("the API rejected the token (401)", hint=hint)
        case _:
            return LoginNeeded("no stored token", hint=hint)

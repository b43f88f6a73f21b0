"""The status of the stored token, from its expiry time and, if requested, from a call to the API."""

import json
from typing import TYPE_CHECKING, Literal

from xapi_cli.errors import UNAUTHORIZED, AuthenticationError, LoginNeeded, ServerStatusError, TokenRejected
from xapi_cli.http import urls
from xapi_cli.store import registry
from xapi_cli.system.render import until
from xapi_cli.usecases import access_token

if TYPE_CHECKING:
    from datetime import datetime

    from xapi_cli.runtime import Runtime
    from xapi_cli.store.repository import TokenRepository
    from xapi_cli.system.style import Style
    from xapi_cli.tokens import Token

State = Literal["valid", "short", "expired", "none", "rejected"]


def state_of(
    token: "Token | None", now: "datetime", min_ttl: float = 0, *, repository: "TokenRepository | None"
) -> State:
    """Return the state of *token* from its expiry time, and from the last 401 that *repository* knows of.

    `short` means less than *min_ttl* seconds left. The repository is None for a token that the user supplies.
    """
    if token is None:
        return "none"
    if not token.lasts(now):
        return "expired"
    if repository is not None and repository.is_rejected(token):
        return "rejected"
    return "valid" if token.lasts(now, min_ttl) else "short"


def show_status(runtime: "Runtime", *, as_json: bool, min_ttl: str | None, check: str | None) -> None:
    """Print the status of the token for the current settings, as a table or as JSON.

    *min_ttl* is a duration, *check* the PATH of a request that checks the token. Raises AuthenticationError unless the
    state is `valid`, UsageError for an invalid argument, and the failure of the check.
    """
    seconds = access_token.min_ttl_of(min_ttl)
    url = None if check is None else urls.resolve(runtime.base_url, check)
    access_token.warn_of_supplied_token(
        runtime, f"this is the status of the token in {runtime.settings.token_variable}"
    )
    token, subject, repository = access_token.present_token(runtime)
    status = None if token is None or url is None else _check(runtime, token, url, repository)
    state = "rejected" if status == UNAUTHORIZED else state_of(token, runtime.now(), seconds, repository=repository)
    if as_json or not runtime.terminal.stdout_is_terminal:
        runtime.terminal.print(json.dumps(access_token.metadata(token, subject, runtime.now()) | {"state": state}))
    else:
        style = runtime.terminal.style
        checked = None
        if url is not None and status is not None:
            checked = f"yes, GET {urls.path_of(url)} responded with {status}"
        elif state == "valid":
            checked = "no; --check PATH sends a request with the token"
        runtime.terminal.print(_table(state, token, subject, runtime.now(), style, checked=checked))
    if state != "valid":
        if repository is None:
            hint = f"replace the token, or unset {subject.variable}"
        else:
            hint = registry.login_hint(repository.row)
        error = _error(state, hint)
        if url is not None and status == UNAUTHORIZED:
            from xapi_cli.http.urls import displayed_without_query

            error.concerning(status=status, method="GET", url=displayed_without_query(url))
        raise error


def _check(runtime: "Runtime", token: "Token", url: str, repository: "TokenRepository | None") -> int:
    """Return the status of a GET request with *token* to *url*; record in *repository* whether it was accepted.

    Raises RedirectError, ServerStatusError, NetworkError or TimeoutExpired if there is no usable response.
    """
    from xapi_cli.auth.token_source import SuppliedToken, TokenSource
    from xapi_cli.http.send import Call, Sender
    from xapi_cli.request.status_errors import concern

    tokens = TokenSource(SuppliedToken("", lambda: token.access_token))
    outcome = Sender(runtime.transport, runtime.base_url, tokens, deadline=runtime.deadline).send(
        Call("GET", url, runtime.default_headers)
    )
    response = outcome.response
    response.close()
    if outcome.refused_redirect is not None:  # perhaps to sign in
        raise outcome.refused_redirect
    if response.status >= 500:
        error = ServerStatusError(f"the API responded with {response.status}", hint="try again later")
        concern(error, response)
        raise error
    if repository is not None:
        if response.status == UNAUTHORIZED:
            repository.record_rejection(token)
        else:
            repository.forget_rejection()
    return response.status


def _table(
    state: str,
    token: "Token | None",
    subject: access_token.Subject,
    now: "datetime",
    style: "Style",
    *,
    checked: str | None,
) -> str:
    """Return the token status as a small human-readable table, in the colors of *style*.

    *checked* describes the check of the token; without it, the table has no such row.
    """
    from xapi_cli.system.layout import Cell, table
    from xapi_cli.system.style import color_of_state

    rows: list[tuple[str, str | Cell]] = [
        ("state", Cell(state, color_of_state(state))),
        *([("checked", checked)] if checked else []),
        ("username", subject.username or "-"),
        ("base URL", subject.base_url or "-"),
        ("profile", subject.profile),
        ("expires", until(token.expires_at, now) if token else "-"),
        ("storage", f"environment ({subject.variable})" if subject.variable else subject.storage),
    ]
    return table(rows, style)


def _error(state: State, hint: str) -> AuthenticationError:
    match state:
        case "short":
            return AuthenticationError("the token has less time left than --min-ttl requires", hint=hint)
        case "expired":
            return LoginNeeded("the token has expired", hint=hint)
        case "rejected":
            return TokenRejected("the API rejected the token (401)", hint=hint)
        case _:
            return LoginNeeded("no stored token", hint=hint)

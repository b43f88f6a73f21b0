"""The status of the stored token, from its expiry time and, if requested, from a call to the API."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from xapi_cli.auth import token_formats
from xapi_cli.errors import AuthenticationError, LoginNeeded, RedirectError, ServerStatusError, TokenRejected
from xapi_cli.http import urls

if TYPE_CHECKING:
    from datetime import datetime

    from xapi_cli.runtime import Runtime
    from xapi_cli.tokens import Token

State = Literal["valid", "short", "expired", "none", "rejected"]


def state_of(token: "Token | None", now: "datetime", min_ttl: float) -> State:
    """Return the state of *token* from its expiry time; `short` means less than *min_ttl* seconds left."""
    if token is None:
        return "none"
    if not token.lasts(now):
        return "expired"
    return "valid" if token.lasts(now, min_ttl) else "short"


@dataclass
class Status:
    """Report the status of the token for the current settings; *check* is the PATH to request from the API."""

    runtime: "Runtime"
    min_ttl: float
    check: str | None

    def tell(self, *, as_json: bool) -> None:
        """Print the status as a table, or as JSON; raises AuthenticationError unless the state is `valid`."""
        runtime = self.runtime
        url = None if self.check is None else urls.resolve(runtime.base_url, self.check)
        runtime.warn_of_token_in_environment("this is about the variable")
        token, subject = runtime.present_token()
        state = state_of(token, runtime.now(), self.min_ttl)
        if token is not None and url is not None and not self._accepted(token, url):
            state = "rejected"
        if as_json or not runtime.terminal.stdout_is_terminal:
            runtime.terminal.out(json.dumps(token_formats.described(token, subject, runtime.now()) | {"state": state}))
        else:
            runtime.terminal.out(token_formats.status_table(state, token, subject, runtime.now()))
        if state != "valid":
            raise _failure(state, is_supplied=subject.source == "env")

    def _accepted(self, token: "Token", url: str) -> bool:
        """Return whether the API accepts *token* for a GET request to *url*.

        Raises ServerStatusError, NetworkError or TimeoutExpired if there is no usable response.
        """
        from xapi_cli.auth.account import SuppliedToken
        from xapi_cli.request.calls import Call
        from xapi_cli.request.send import Exchange

        credentials = SuppliedToken(token.access_token)
        exchange = Exchange(
            self.runtime.wire, self.runtime.base_url, credentials, follow=False, deadline=self.runtime.deadline
        )
        try:
            response = exchange.send(Call("GET", url)).response
        except RedirectError:
            return True  # the redirect cannot be followed, but the status is not 401
        response.close()
        if response.status_code >= 500:
            raise ServerStatusError(
                f"the API answered {response.status_code}", hint="the service is in trouble; try again later"
            )
        return response.status_code != 401


def _failure(state: State, *, is_supplied: bool) -> AuthenticationError:
    hint = "set XAPI_TOKEN anew, or unset it" if is_supplied else "run `xapi login`"
    match state:
        case "short":
            return AuthenticationError("the token has less time left than --min-ttl wants", hint=hint)
        case "expired":
            return LoginNeeded("the token has expired", hint=hint)
        case "rejected":
            return TokenRejected("the API rejected the token (401)", hint=hint)
        case _:
            return LoginNeeded("no token is stored", hint=hint)

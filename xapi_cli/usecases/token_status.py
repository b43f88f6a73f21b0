"""How the stored token stands: by its expiry, and, if wanted, by the API's own word."""

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
    """Return how *token* stands by its expiry; `short` has less than *min_ttl* seconds left."""
    if token is None:
        return "none"
    if not token.lasts(now):
        return "expired"
    return "valid" if token.lasts(now, min_ttl) else "short"


@dataclass
class Status:
    """Tell how the token stands that the settings point at; *check* is the PATH to ask the API for."""

    runtime: "Runtime"
    min_ttl: float
    check: str | None

    def tell(self, *, as_json: bool) -> None:
        """Print it, as a table for people; raises AuthenticationError unless the state is `valid`."""
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
        """Ask the API; raises ServerStatusError, NetworkError or TimeoutExpired where it gives no usable answer."""
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
            return True  # to nowhere, but it is no 401
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

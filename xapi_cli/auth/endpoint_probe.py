"""Probe the token endpoint before the user types a password for it: it must exist and be a token endpoint."""

import time
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.auth.password_grant import redirected, token_url
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    import httpx

LOOK = 10.0  # seconds; timeout of a probe, for which the user waits


class Doubt(NamedTuple):
    """Why the URL may be wrong, and a hint for the user."""

    message: str
    hint: str


def look(
    client: "httpx.Client", base_url: str, *, limit: float, deadline: float | None = None
) -> "tuple[httpx.Response, Doubt | None]":
    """Send a GET request to the token endpoint; return the status line and headers, and a doubt or None.

    The API does not document a response to GET, so only a response that no token endpoint sends causes a doubt. No
    secrets are sent. The timeout is *limit* seconds, at most LOOK, and never later than the monotonic time *deadline*.
    Raises NetworkError or TimeoutExpired if there is no response.
    """
    import httpx

    url = token_url(base_url)
    request = httpx.Request("GET", url, headers={"Accept": "application/json", "Accept-Encoding": "identity"})
    own = time.monotonic() + min(limit, LOOK)
    if deadline is None or own < deadline:
        name = "--timeout" if limit <= LOOK else f"the {LOOK:.0f} s for a look"
        request.extensions |= {"deadline": own, "deadline_name": name}
    else:
        request.extensions |= {"deadline": deadline}
    response = client.send(request, stream=True, follow_redirects=False)
    response.close()
    return response, _doubt(response, printable(url))


def _doubt(response: "httpx.Response", url: str) -> Doubt | None:
    if "/x-api/" in url.removesuffix("/x-api/token") + "/":
        return Doubt("the base URL has /x-api in it already", "is it right? It is what comes before /x-api/token")
    status, kind = response.status_code, response.headers.get("Content-Type", "")
    if 300 <= status < 400:
        refusal = redirected(response, url)
        return Doubt(refusal.message, refusal.hint or "")
    if status == 404:
        return Doubt(f"{url} answers 404: not found", "is the base URL right? It is what comes before /x-api/token")
    if status == 407:
        return Doubt("the proxy wants a password (407)", "give it as in http://user:password@host:port")
    if status >= 500:
        return Doubt(f"{url} answers {status}", "the service is in trouble; try again later")
    if status < 300 and kind.lower().startswith("text/html"):
        return Doubt(f"{url} answers with a web page", "is the base URL right? A sign-in page may be answering")
    return None

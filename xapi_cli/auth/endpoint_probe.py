"""Probe the token endpoint before the user types a password for it: it must exist and be a token endpoint."""

from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.auth.password_grant import BASE_URL_HINT, redirect_error, token_url
from xapi_cli.http.timeouts import time_limit
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from xapi_cli.http.messages import Response
    from xapi_cli.http.transport import Transport

_MAX_TIMEOUT = 10.0  # seconds; the user waits for the probe


class Problem(NamedTuple):
    """Why the URL may be wrong, and a hint for the user."""

    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}"


def probe(
    transport: "Transport", base_url: str, *, timeout: float, deadline: float | None = None
) -> "tuple[Response, Problem | None]":
    """Send a GET request to the token endpoint; return the status line and headers, and a problem or None.

    The API does not document a response to GET, so only a response that no token endpoint sends is a problem. No
    secrets are sent. The time limit is *timeout* seconds, at most 10, and not later than the monotonic time
    *deadline*. Raises NetworkError or TimeoutExpired if there is no response.
    """
    from xapi_cli.http.messages import build_request

    url = token_url(base_url)
    headers = [(b"Accept", b"application/json"), (b"Accept-Encoding", b"identity")]
    name = "--timeout" if timeout <= _MAX_TIMEOUT else f"the probe's limit of {_MAX_TIMEOUT:.0f} s"
    limit = time_limit(min(timeout, _MAX_TIMEOUT), deadline, name=name)
    response = transport.send(build_request("GET", url, headers, **limit))
    response.close()
    return response, _problem(response, printable(url))


def _problem(response: "Response", url: str) -> Problem | None:
    if "/x-api/" in url.removesuffix("/x-api/token") + "/":
        return Problem("the base URL already contains /x-api", f"check it: the base URL is {BASE_URL_HINT}")
    status, kind = response.status, response.headers.get("Content-Type")
    if 300 <= status < 400:
        error = redirect_error(response, url)
        return Problem(error.message, error.hint or "")
    if status == 404:
        return Problem(f"{url} responds with 404 Not Found", f"check the base URL, which is {BASE_URL_HINT}")
    if status == 407:
        return Problem("the proxy requires a password (407)", "set it in the proxy URL: http://user:password@host:port")
    if status >= 500:
        return Problem(f"{url} responds with {status}", "try again later")
    if status < 300 and kind.lower().startswith("text/html"):
        return Problem(f"{url} responds with a web page", "check the base URL, or whether a sign-in page responded")
    return None

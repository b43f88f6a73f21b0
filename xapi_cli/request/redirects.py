"""Which redirects are followed, and how many in a row."""

from typing import TYPE_CHECKING

from xapi_cli.errors import RedirectError
from xapi_cli.http import urls

if TYPE_CHECKING:
    from xapi_cli.http.flow import Response
    from xapi_cli.request.calls import Call

MAX_REDIRECTS = 10  # that are followed in a row
TOO_MANY_REDIRECTS = "more than ten redirects"  # and in the docstring of `errors.RedirectError`
_STATUSES = frozenset({301, 302, 303, 307, 308})


def redirected_call(
    call: "Call", response: "Response", redirects: int, *, base_url: str, follow: bool = True
) -> "Call | None":
    """Return the call that follows the redirect in *response*, or None if it is not a redirect.

    *redirects* is the number of consecutive redirects, including this one. Raises
    RedirectError if the redirect is not followed.
    """
    location = _target(response)
    if location is None:
        return None
    url = urls.join(call.url, location)
    next_call = _redirected(call, url, response.status)
    message = f"{call.display_url} redirects ({response.status}) to {next_call.display_url}"
    if not follow:
        raise RedirectError(message, hint="omit --no-follow to follow it")
    if redirects > MAX_REDIRECTS:
        raise RedirectError(f"{TOO_MANY_REDIRECTS}: {message}", hint="check the path")
    if call.url.startswith("https:") and url.startswith("http:"):
        hint = "if you trust it, use the http URL"
        raise RedirectError(f"{message}, from https to plain http: not followed", hint=hint)
    if next_call.body is not None and not urls.same_origin(url, base_url):
        hint = f"if you trust it, use --base-url {_root(url)}"
        raise RedirectError(f"{message}: a body is not sent to another origin", hint=hint)
    return next_call


def _target(response: "Response") -> str | None:
    """Return the Location of a redirect, or None if *response* is not a redirect.

    Bytes that are not valid UTF-8 become surrogates, so that the URL preserves the bytes that the server sent.
    Raises RedirectError if the response has two different Location headers.
    """
    if response.status not in _STATUSES:
        return None
    targets = {value for name, value in response.raw_headers if name.lower() == b"location"}
    if len(targets) > 1:
        raise RedirectError("the response has two different Location headers", hint=urls.REPORT_TO_OPERATORS)
    return targets.pop().decode("utf-8", "surrogateescape") if targets else None


def _redirected(call: "Call", url: str, status: int) -> "Call":
    """Return *call* redirected to *url*; some values of *status* change the method to GET (RFC 9110, section 15.4)."""
    if (status == 303 and call.method != "HEAD") or (status in (301, 302) and call.method == "POST"):
        headers = [header for header in call.headers if not header[0].lower().startswith("content-")]
        return call._replace(method="GET", url=url, headers=headers, body=None)
    return call._replace(url=url)


def _root(url: str) -> str:
    scheme, host, port = urls.origin(url)
    return f"{scheme}://{urls.with_port(host, port)}"

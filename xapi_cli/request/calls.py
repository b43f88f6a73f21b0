"""API calls: the headers that are sent, and the call that results from a redirect."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.errors import MAX_REDIRECTS, TOO_MANY_REDIRECTS, RedirectError
from xapi_cli.http import optional_codings, urls
from xapi_cli.http.client import USER_AGENT
from xapi_cli.system.redact import redact_url
from xapi_cli.system.render import printable

if TYPE_CHECKING:
    from xapi_cli.http.flow import Response
    from xapi_cli.request.body.spool import Body

_REDIRECTS = frozenset({301, 302, 303, 307, 308})

Header = tuple[str, str | None]


class Call(NamedTuple):
    """A request as the user specified it; a header with the value None removes a default header."""

    method: str
    url: str
    headers: Sequence[Header] = ()
    body: "Body | None" = None
    own_headers: Sequence[Header] = ()  # of xapi; unlike those of the user, they are also sent to other origins

    def __repr__(self) -> str:
        return f"Call({self.method!r}, {self.display_url!r}, …)"  # the headers may contain secrets

    @property
    def display_url(self) -> str:
        """Return the URL for use in messages, with possible secrets redacted."""
        return displayed(self.url)


def headers_of(call: Call, *, to_api: bool) -> list[tuple[bytes, bytes]]:
    """Return the headers of *call*, except those that the HTTP layer sets.

    Without *to_api*, the request goes to an origin other than the API's, and no header of the user is included.
    """
    user = list(call.headers) if to_api else []
    if to_api and call.body is not None and call.body.content_type:
        user = _with_default(user, "Content-Type", call.body.content_type)
    user += call.own_headers
    for name, value in (
        ("Accept", "*/*"),
        ("Accept-Encoding", optional_codings.accepted()),
        ("User-Agent", USER_AGENT),
    ):
        user = _with_default(user, name, value)
    return [
        (name.encode("ascii"), value.encode("utf-8", "surrogateescape")) for name, value in user if value is not None
    ]


def redirected_call(
    call: Call, response: "Response", redirects: int, *, base_url: str, follow: bool = True
) -> Call | None:
    """Return the call that follows the redirect in *response*, or None if it is not a redirect.

    *redirects* is the number of consecutive redirects, including this one. Raises
    RedirectError if the redirect is not followed.
    """
    location = _redirect_target(response)
    if location is None:
        return None
    url = urls.join(call.url, location)
    next_call = _redirected(call, url, response.status)
    message = f"{call.display_url} responded with {response.status}, a redirect to {displayed(url)}"
    if not follow:
        raise RedirectError(f"{message}, not followed", hint="omit --no-follow to follow it")
    if redirects > MAX_REDIRECTS:
        raise RedirectError(f"{message}, {TOO_MANY_REDIRECTS}", hint="check the path: the server redirects in a loop")
    if call.url.startswith("https:") and url.startswith("http:"):
        hint = "if you trust it, use the http URL"
        raise RedirectError(f"{message}, from https to plain http: not followed", hint=hint)
    if next_call.body is not None and not urls.same_origin(url, base_url):
        hint = f"if you trust it, use --base-url {_root(url)}"
        raise RedirectError(f"{message}: a body is not sent to another origin", hint=hint)
    return next_call


def displayed(url: str) -> str:
    """Return *url* for use in messages, with possible secrets redacted."""
    return printable(redact_url(url))


def _redirect_target(response: "Response") -> str | None:
    """Return the Location of a redirect, or None if *response* is not a redirect.

    Bytes that are not valid UTF-8 become surrogates, so that the URL preserves the bytes that the server sent.
    Raises RedirectError if the response has two different Location headers.
    """
    if response.status not in _REDIRECTS:
        return None
    targets = {value for name, value in response.raw_headers if name.lower() == b"location"}
    if len(targets) > 1:
        hint = "report this to the operators of the server"
        raise RedirectError("the response has two different Location headers", hint=hint)
    return targets.pop().decode("utf-8", "surrogateescape") if targets else None


def _redirected(call: Call, url: str, status: int) -> Call:
    """Return *call* redirected to *url*; some values of *status* change the method to GET (RFC 9110, section 15.4)."""
    if (status == 303 and call.method != "HEAD") or (status in (301, 302) and call.method == "POST"):
        headers = [header for header in call.headers if not header[0].lower().startswith("content-")]
        return call._replace(method="GET", url=url, headers=headers, body=None)
    return call._replace(url=url)


def _with_default(headers: list[Header], name: str, value: str) -> list[Header]:
    is_given = name.lower() in [own.lower() for own, _ in headers]
    return headers if is_given else [*headers, (name, value)]


def _root(url: str) -> str:
    scheme, host, port = urls.origin(url)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

"""One call of the API: the request, its replay after a 401, its retries, its redirects, until the final answer."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from xapi_cli import urls
from xapi_cli.auth.account import Credentials
from xapi_cli.auth.bearer import BearerAuth
from xapi_cli.body.build import Body
from xapi_cli.call import retries
from xapi_cli.call.heads import redacted_url
from xapi_cli.wire.client import USER_AGENT
from xapi_cli.errors import (
    ClientStatusError,
    NetworkError,
    RedirectError,
    ServerStatusError,
    TokenRejected,
    XapiError,
)
from xapi_cli.render import printable

MOST_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_DEFAULT_HEADERS = (("Accept", "*/*"), ("Accept-Encoding", "gzip, deflate"), ("User-Agent", USER_AGENT))

Header = tuple[str, str | None]


@dataclass(frozen=True)
class Call:
    """A request as the user means it; a header whose value is None removes a default one."""

    method: str
    url: str
    headers: Sequence[Header] = ()
    body: Body | None = None


@dataclass
class Answer:
    """The final response, whether it came from the API's own origin, and why a redirect was not followed."""

    response: httpx.Response
    from_api: bool = True
    refusal: RedirectError | None = None

    @property
    def status(self) -> int:
        """The status code."""
        return self.response.status_code


@dataclass
class Exchange:
    """Send calls over *client* for the API at *base_url*; *note* hears, a line each, of retries.

    Without *credentials* no token is sent. *retries* is how often a request
    may be sent again after a passing failure.
    """

    client: httpx.Client
    base_url: str
    credentials: Credentials | None
    follow: bool = True
    retries: int = 0
    deadline: float | None = None
    note: Callable[[str], None] = lambda text: None
    tries: int = field(default=0, init=False)  # beyond the first
    replays: int = field(default=0, init=False)
    _login_failure: XapiError | None = field(default=None, init=False)

    @property
    def attempts(self) -> int:
        """How often the call was tried: once, plus retries, plus the replay after a 401."""
        return 1 + self.tries + self.replays

    def send(self, call: Call) -> Answer:
        """Return the final answer to *call*, its body still to be read.

        Raises what the login raises, NetworkError and TimeoutExpired.
        """
        inside, hops = True, 0
        while True:
            response = self._tried(call, inside=inside)
            if response.status_code not in _REDIRECTS or "Location" not in response.headers:
                return Answer(response, inside)
            hops += 1
            try:
                onward = self._onward(call, response, hops)
            except RedirectError as refusal:
                return Answer(response, inside, refusal)
            inside = inside and urls.same_origin(onward.url, self.base_url)
            _drop(response)
            call = onward

    def _tried(self, call: Call, *, inside: bool) -> httpx.Response:
        """Return an answer to *call*, tried again where that is safe and promising."""
        while True:
            try:
                response = self._sent(call, inside=inside)
            except NetworkError as error:
                wait = self._wait(call, None)
                if error.answered or error is self._login_failure or wait is None:
                    raise
                what = str(error.message)
            else:
                wait = self._wait(call, response.headers.get("Retry-After"))
                if response.status_code not in retries.STATUSES or wait is None:
                    return response
                what = f"{_shown(call.url)} answered {response.status_code}"
                _drop(response)
            self.tries += 1
            self.note(f"{what}; trying again in {wait:.1f} s ({self.tries} of {self.retries})")
            time.sleep(wait)

    def _wait(self, call: Call, retry_after: str | None) -> float | None:
        """Return the seconds until *call* may be tried again; None where it may not, or not in time."""
        if self.tries >= self.retries or call.method not in retries.METHODS:
            return None
        wait = retries.delay(self.tries, retry_after)
        late = wait is not None and self.deadline is not None and time.monotonic() + wait >= self.deadline
        return None if late else wait

    def _sent(self, call: Call, *, inside: bool) -> httpx.Response:
        auth = self._auth(self.credentials) if self.credentials and inside else None
        request = _request(call, inside=inside)
        if self.deadline is not None:
            request.extensions |= {"deadline": self.deadline}
        try:
            return self.client.send(request, auth=auth, stream=True)
        except httpx.InvalidURL as error:
            raise NetworkError(f"{_shown(call.url)} cannot be sent: {printable(str(error))}") from error
        except httpx.HTTPError as error:  # a transport other than ours
            raise NetworkError(f"no answer from {_shown(call.url)}: {type(error).__name__}") from error
        finally:
            self.replays += auth.replays if auth else 0

    def _auth(self, credentials: Credentials) -> BearerAuth:
        """Return the 401 flow; a login that fails in it is no reason to try the call again."""

        def noted(get: Callable[..., Any]) -> Callable[..., Any]:
            def got(*arguments: Any) -> Any:
                try:
                    return get(*arguments)
                except XapiError as error:
                    self._login_failure = error
                    raise

            return got

        return BearerAuth(noted(credentials.current), noted(credentials.renew))

    def _onward(self, call: Call, response: httpx.Response, hops: int) -> Call:
        """Return the call that the redirect asks for; raises RedirectError where it is not followed."""
        url = urls.join(call.url, response.headers["Location"])
        onward = _redirected(call, url, response.status_code)
        said = f"{_shown(call.url)} answered {response.status_code}, a redirect to {_shown(url)}"
        if not self.follow:
            raise RedirectError(f"{said}, not followed", hint="leave --no-follow out to follow it")
        if hops > MOST_REDIRECTS:
            raise RedirectError(f"{said}, the eleventh in a row", hint="the server redirects in a loop")
        if call.url.startswith("https:") and url.startswith("http:"):
            hint = "use the address it gives, if you trust it"
            raise RedirectError(f"{said}, from https to plain http: not followed", hint=hint)
        if onward.body is not None and not urls.same_origin(url, self.base_url):
            hint = f"if you trust it, use --base-url {_root(url)}"
            raise RedirectError(f"{said}: a body is not sent to another origin", hint=hint)
        return onward


def failure(answer: Answer, credentials: Credentials | None, *, check_status: bool = True) -> XapiError | None:
    """Return the error that the status of *answer* means, None for success; 401 counts even without *check_status*."""
    status, url = answer.status, printable(str(answer.response.url).partition("?")[0])
    said = f"{answer.response.request.method} {url} answered {status}{_reason(answer.response)}"
    if status == 401 and answer.from_api:
        if credentials is None:
            return TokenRejected(
                said, hint="the Authorization header was given or removed by hand, so xapi did not log in"
            )
        credentials.refused()
        return TokenRejected(said, hint=credentials.advice())
    if not check_status and status != 401:
        return None
    if answer.refusal is not None:
        return answer.refusal
    if 300 <= status < 400 and status != 304:
        return RedirectError(said, hint="a redirect without a target that can be followed")
    if 400 <= status < 500:
        return ClientStatusError(said, hint=_hint(status, from_api=answer.from_api))
    return ServerStatusError(said, hint="the service is in trouble; try again later") if status >= 500 else None


def _redirected(call: Call, url: str, status: int) -> Call:
    """Return *call* as it goes to *url* after *status* (RFC 9110, section 15.4): some of them ask for a GET."""
    if (status == 303 and call.method != "HEAD") or (status in (301, 302) and call.method == "POST"):
        headers = [header for header in call.headers if not header[0].lower().startswith("content-")]
        return replace(call, method="GET", url=url, headers=headers, body=None)
    return replace(call, url=url)


def _request(call: Call, *, inside: bool) -> httpx.Request:
    """Return the request; outside the API's origin it bears none of the user's headers and no body."""
    body = call.body if inside else None
    user = list(call.headers) if inside else []
    if body is not None and body.content_type:
        user = _with_default(user, "Content-Type", body.content_type)
    for name, value in _DEFAULT_HEADERS:
        user = _with_default(user, name, value)
    headers = [
        (name.encode("ascii"), value.encode("utf-8", "surrogateescape")) for name, value in user if value is not None
    ]
    if body is None:
        return httpx.Request(call.method, call.url, headers=headers)
    if not any(name.lower() == b"host" for name, _ in headers):
        headers.insert(0, (b"Host", httpx.URL(call.url).netloc))  # httpx adds it only to bodies it makes itself
    headers.append((b"Content-Length", b"%d" % body.length))
    return httpx.Request(call.method, call.url, headers=headers, stream=_BodyStream(body))


def _with_default(headers: list[Header], name: str, value: str) -> list[Header]:
    given = any(own.lower() == name.lower() for own, _ in headers)
    return headers if given else [*headers, (name, value)]


class _BodyStream(httpx.SyncByteStream):
    """A Body for httpx: it gives the same bytes each time it is read, so that a request can be sent again."""

    def __init__(self, body: Body) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)


def _drop(response: httpx.Response) -> None:
    discard: Any = response.extensions.get("discard")
    if discard is not None:
        discard()
    response.close()


def _shown(url: str) -> str:
    return printable(redacted_url(url))


def _root(url: str) -> str:
    scheme, host, port = urls.origin(url)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _reason(response: httpx.Response) -> str:
    phrase = response.extensions.get("reason_phrase", b"").decode("latin-1")
    return f" {printable(phrase)[:60]}" if phrase else ""


def _hint(status: int, *, from_api: bool) -> str | None:
    if not from_api:
        return "a redirect led away from the API, where the token is not sent: is the base URL right?"
    if status == 403:
        return "the API serves only users with master rights"
    if status == 404:
        return "check the path and the base URL"
    return "too many requests: wait, or use --retry" if status == 429 else None

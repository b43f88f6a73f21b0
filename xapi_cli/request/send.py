"""A single API call: the request, its replay after a 401, its retries and its redirects, up to the final response."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from xapi_cli.auth.account import Credentials
from xapi_cli.auth.bearer import BearerAuth
from xapi_cli.errors import ClientStatusError, NetworkError, RedirectError, ServerStatusError, TokenRejected, XapiError
from xapi_cli.http import retry, urls
from xapi_cli.request import calls
from xapi_cli.request.body.build import Body
from xapi_cli.request.calls import Call, shown
from xapi_cli.system.render import printable

_CLIENT_HINTS = {
    403: "the API serves only users with master rights",
    404: "check the path and the base URL",
    429: "too many requests: wait, or use --retry",
}
_IN_TROUBLE = "the service is in trouble; try again later"
_SERVER_HINTS = {501: "the service does not know such requests; check METHOD", 505: "the service wants another HTTP"}


@dataclass
class Answer:
    """The final response, whether the API's origin sent it, and the reason if a redirect was not followed."""

    response: httpx.Response
    from_api: bool = True
    refusal: RedirectError | None = None

    @property
    def status(self) -> int:
        """The status code."""
        return self.response.status_code


@dataclass
class Exchange:
    """Send calls through *client* to the API at *base_url*; report each retry to *note*, as one line.

    Without *credentials*, no token is sent. *retries* is the maximum number of
    retries after transient failures. *deadline* is a time of `time.monotonic`.
    """

    client: httpx.Client
    base_url: str
    credentials: Credentials | None
    follow: bool = True
    retries: int = 0
    deadline: float | None = None
    note: Callable[[str], None] = lambda text: None
    sleep: Callable[[float], None] = time.sleep
    tries: int = field(default=0, init=False)  # in addition to the first
    replays: int = field(default=0, init=False)
    _login_failure: XapiError | None = field(default=None, init=False)

    @property
    def attempts(self) -> int:
        """The number of attempts: the first one, the retries and the replays after a 401."""
        return 1 + self.tries + self.replays

    def send(self, call: Call) -> Answer:
        """Return the final response to *call*; its body has not been read yet.

        Raises the errors of the login, NetworkError and TimeoutExpired.
        """
        inside, hops = True, 0
        while True:
            response = self._tried(call, inside=inside)
            status, headers = response.status_code, response.headers.raw
            hops += 1
            try:
                onward = calls.onward(call, status, headers, hops, base_url=self.base_url, follow=self.follow)
            except RedirectError as refusal:
                return Answer(response, inside, refusal)
            if onward is None:
                return Answer(response, inside)
            inside = inside and urls.same_origin(onward.url, self.base_url)
            _drop(response)
            call = onward

    def _tried(self, call: Call, *, inside: bool) -> httpx.Response:
        """Return a response to *call*; retry an idempotent method after a transient failure."""
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
                if response.status_code not in retry.STATUSES or wait is None:
                    return response
                what = f"{shown(call.url)} answered {response.status_code}"
                _drop(response)
            self.tries += 1
            self.note(f"{what}; trying again in {wait:.1f} s ({self.tries} of {self.retries})")
            self.sleep(wait)

    def _wait(self, call: Call, retry_after: str | None) -> float | None:
        """Return the seconds until the next retry of *call*; None if it is not allowed or would miss the deadline."""
        if self.tries >= self.retries or call.method not in retry.METHODS:
            return None
        wait = retry.delay(self.tries, retry_after)
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
            raise NetworkError(f"{shown(call.url)} cannot be sent: {printable(str(error))}") from error
        except httpx.HTTPError as error:  # raised by other transports only
            raise NetworkError(f"no answer from {shown(call.url)}: {type(error).__name__}") from error
        finally:
            self.replays += auth.replays if auth else 0

    def _auth(self, credentials: Credentials) -> BearerAuth:
        """Return the 401 flow; it records a failed login, after which the call is not retried."""

        def noted(get: Callable[..., Any]) -> Callable[..., Any]:
            def got(*arguments: Any) -> Any:
                try:
                    return get(*arguments)
                except XapiError as error:
                    self._login_failure = error
                    raise

            return got

        return BearerAuth(noted(credentials.current), noted(credentials.renew))


def failure(answer: Answer, credentials: Credentials | None, *, check_status: bool = True) -> XapiError | None:
    """Return the error for the status of *answer*, or None for success.

    Without *check_status*, only a 401 is an error.
    """
    status, url = answer.status, shown(str(answer.response.url).partition("?")[0])
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
        return ClientStatusError(said, hint=_hint(answer))
    return ServerStatusError(said, hint=_SERVER_HINTS.get(status, _IN_TROUBLE)) if status >= 500 else None


def _request(call: Call, *, inside: bool) -> httpx.Request:
    """Return the request for *call*; outside the API's origin, it has no body and no header of the user."""
    body = call.body if inside else None
    headers = calls.headers_of(call, inside=inside)
    if body is None:
        return httpx.Request(call.method, call.url, headers=headers)
    if not any(name.lower() == b"host" for name, _ in headers):
        headers.insert(0, (b"Host", httpx.URL(call.url).netloc))  # httpx omits it for a custom stream
    headers.append((b"Content-Length", b"%d" % body.length))
    return httpx.Request(call.method, call.url, headers=headers, stream=_BodyStream(body))


class _BodyStream(httpx.SyncByteStream):
    """A Body as an httpx stream; each iteration yields the same bytes, so that the request can be resent."""

    def __init__(self, body: Body) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)


def _drop(response: httpx.Response) -> None:
    discard: Any = response.extensions.get("discard")
    if discard is not None:
        discard()
    response.close()


def _reason(response: httpx.Response) -> str:
    phrase = printable(response.extensions.get("reason_phrase", b"").decode("utf-8", "backslashreplace"))
    if len(phrase) > 60:
        phrase = phrase[:61].rpartition(" ")[0]  # at a blank: part of a token would not be redacted
    return f" {phrase}" if phrase else ""


def _hint(answer: Answer) -> str | None:
    if not answer.from_api:
        return "a redirect led away from the API, where the token is not sent: is the base URL right?"
    if answer.status == 405:
        allowed = printable(answer.response.headers.get("Allow", "").strip())[:60]
        return f"there it takes {allowed}" if allowed else "there it takes other methods"
    return _CLIENT_HINTS.get(answer.status)

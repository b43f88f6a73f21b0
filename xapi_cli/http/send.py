"""Send one API call until its response is final: the token, the replay after a 401, retries and redirects."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.errors import UNAUTHORIZED, NetworkError, RedirectError
from xapi_cli.hints import Hint, Option, replaced
from xapi_cli.http import authorization, decoding, retry, urls
from xapi_cli.http.header_syntax import Header, with_defaults
from xapi_cli.http.messages import USER_AGENT, Body, Request, Response, build_request

if TYPE_CHECKING:
    from socket import socket
    from typing import Protocol

    from xapi_cli.http.timeouts import Timeouts
    from xapi_cli.http.transport import Transport
    from xapi_cli.tokens import Token

    class Tokens(Protocol):
        """The source of the token, such as `auth.token_source.TokenSource`; a login may block and fail."""

        def current(self) -> Token:
            """Return the token to send."""

        def accepted(self, token: Token, status: int, sent_at: float, repeat: Callable[[Token], int] | None, /) -> None:
            """Record that the response to a request with *token* has *status*; *repeat* sends the request again."""

        def renew(self, rejected: Token, sent_at: float, /) -> Token | None:
            """Return a token to replace *rejected*, None if the 401 is final."""

        def record_rejection(self) -> None:
            """Record a final 401."""

        def advice(self) -> Hint:
            """Return a hint for the user about a final 401."""


ENCODING = ("utf-8", "surrogateescape")  # of the values of headers
MAX_REDIRECTS = 10  # that are followed in a row; a message and `errors.RedirectError` have the number as a word
_DEFAULTS = (("Accept", "*/*"), ("Accept-Encoding", decoding.ACCEPTED), ("User-Agent", USER_AGENT))
_REPORT = "report this to the operators of the server"
_FIRST_REDIRECT = 300  # a response with a lower status is neither a redirect nor a failure
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SAFE = frozenset({"GET", "HEAD"})


class Call(NamedTuple):
    """A request as the user specified it; a header with the value None removes a default header.

    While the response is awaited, the socket *beside* is watched: see `Request`.
    """

    method: str
    url: str
    headers: Sequence[Header] = ()
    body: Body | None = None
    own_headers: Sequence[Header] = ()  # of xapi; unlike those of the user, they are also sent to other origins
    beside: "tuple[socket, Callable[[], None]] | None" = None

    def __repr__(self) -> str:
        return f"Call({self.method!r}, {self.display_url!r}, …)"  # the headers may contain secrets

    @property
    def display_url(self) -> str:
        """Return the URL for use in messages, with possible secrets redacted."""
        return urls.displayed(self.url)


class Outcome(NamedTuple):
    """The final response to a call; its body has not been read.

    *from_api* is False if the redirects left the API's origin before it. *refused_redirect* is the reason why the
    response is a redirect that was not followed, *refused_retry* why a transient failure was not retried.
    """

    response: Response
    from_api: bool = True
    refused_redirect: RedirectError | None = None
    refused_retry: str | None = None

    @property
    def is_rejection(self) -> bool:
        """Whether the API rejected the token; a 401 from another origin does not count."""
        return self.from_api and self.response.status == UNAUTHORIZED


class Sender:
    """Send calls, one after another, over *transport* to the API at *base_url*.

    Without *tokens*, no token is sent, and a 401 is final. *replays* is the maximum number of replays of a request
    after a 401, each with a newer token; *retries* that of the retries of a call after transient failures, none of
    which starts after *deadline*, a time of `time.monotonic`. *timeouts* replaces those of the transport. *note*
    receives a line about each retry. *wait* waits for some seconds; it may raise an exception, which ends the call.
    """

    def __init__(
        self,
        transport: "Transport",
        base_url: str,
        tokens: "Tokens | None",
        *,
        follow: bool = True,
        replays: int = 1,
        retries: int = 0,
        deadline: float | None = None,
        note: Callable[[str], None] = lambda text: None,
        timeouts: "Timeouts | None" = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport, self._base_url, self._tokens, self._follow = transport, base_url, tokens, follow
        self._replays, self._retries, self._deadline = replays, retries, deadline
        self._timeouts, self._note, self._wait = timeouts, note, wait
        self._retried = 0  # retries of the last call
        self.attempts = 0  # of all calls: the first ones, the retries and the replays after a 401

    def send(self, call: Call) -> Outcome:
        """Return the final response to *call*.

        A final 401 is recorded in the tokens. Raises the errors of the login, NetworkError, TimeoutExpired, and
        RedirectError for a web page of another origin in place of a response of the API.
        """
        self.attempts += 1
        self._retried = 0
        return self._send(call)

    def resume(self, call: Call, error: NetworkError | None = None) -> Outcome | None:
        """Return the final response to *call*, which requests the body of the last response, or its rest, again.

        If the body was truncated with *error*, that is a retry; return None if none is left.
        """
        if error is not None and not self._wait_to_retry(call, error):
            return None
        return self._send(call)

    def _send(self, call: Call) -> Outcome:
        to_api, redirects, redirected_by = True, 0, ""
        while True:
            response = self._authenticated(call, to_api=to_api)
            if isinstance(response, NetworkError):
                if _is_transient(response) and self._wait_to_retry(call, response):
                    continue
                if not to_api:
                    response.hint = replaced(response.hint, urls.BASE_URL, f"the redirect of {redirected_by}")
                response.hint = retry.explained(response.hint, self._refused_retry(call, response))
                raise response
            try:
                if response.status < _FIRST_REDIRECT:
                    if not to_api:
                        self._check_origin(call, response, redirected_by)
                    return Outcome(response, to_api)
                if _is_transient(response) and self._wait_to_retry(call, response):
                    continue
                redirects += 1
                target, refused = self._redirected(call, response, redirects)
                if target is None:
                    return Outcome(response, to_api, refused, self._refused_retry(call, response))
            except BaseException:
                response.close()
                raise
            response.discard()
            redirected_by, call = call.display_url, target
            to_api = to_api and urls.same_origin(call.url, self._base_url)

    def _authenticated(self, call: Call, *, to_api: bool) -> Response | NetworkError:
        """Return the response to *call* after any replays, or the error if there is none; raise errors of a login.

        A token goes only to the origin of the API.
        """
        tokens = self._tokens if to_api else None
        token = tokens.current() if tokens is not None else None
        replays = self._replays
        while True:
            sent_at = time.monotonic()
            try:
                response = self._transport.send(self._request(call, token, to_api=to_api))
            except NetworkError as error:
                return error
            if tokens is None or token is None:
                return response
            try:
                if response.status != UNAUTHORIZED:
                    tokens.accepted(token, response.status, sent_at, self._repeating(call))
                    return response
                response.hold()  # the server may serve one connection at a time, and a login needs one
                token = tokens.renew(token, sent_at) if replays else None
                if token is None:
                    tokens.record_rejection()
                    return response
            except BaseException:
                response.close()
                raise
            response.discard()
            replays -= 1
            self.attempts += 1

    def _request(self, call: Call, token: "Token | None", *, to_api: bool) -> Request:
        """Return the request for *call*; outside the API's origin, it has no body and no header of the user."""
        headers = _headers_of(call, to_api=to_api) + authorization.headers(token)
        body = call.body if to_api else None
        length = 0 if body is None else None if body.is_chunked else body.length
        return build_request(
            call.method,
            call.url,
            headers,
            body,
            length,
            is_replayable=body is None or call.beside is None,  # otherwise, the body arrives while it is sent
            timeouts=self._timeouts,
            deadline=self._deadline,
            beside=call.beside,
        )

    def _repeating(self, call: Call) -> "Callable[[Token], int] | None":
        """Return a function that sends *call* again with a token and returns the status; None if it is not a GET."""
        if call.method != "GET" or call.body is not None:
            return None

        def repeat(token: "Token") -> int:
            request = self._request(call._replace(beside=None), token, to_api=True)
            response = self._transport.send(request)
            response.discard()
            return response.status

        return repeat

    def _wait_to_retry(self, call: Call, result: Response | NetworkError) -> bool:
        """Wait before a retry of *call* because of *result*; return False if no retry is left."""
        delay = retry.next_delay(
            call.method,
            self._retried,
            self._retries,
            "" if isinstance(result, NetworkError) else result.headers.get("Retry-After"),
            deadline=self._deadline,
        )
        if delay is None:
            return False
        if isinstance(result, NetworkError):
            failure = result.message
        else:
            failure = f"{call.display_url} responded with {result.status}"
            result.discard()
        self._retried += 1
        self._note(f"{failure}; retrying in {delay:.1f} s ({self._retried} of {self._retries})")
        self._wait(delay)
        self.attempts += 1
        return True

    def _refused_retry(self, call: Call, result: Response | NetworkError) -> str | None:
        """Return why *result*, if it is a transient failure, is not retried; None if that needs no words."""
        if not self._retries or not _is_transient(result):
            return None
        if call.method not in retry.IDEMPOTENT:
            return f"--retry does not repeat a {call.method}"
        is_limited = isinstance(result, Response) and result.status == retry.TOO_MANY_REQUESTS
        return f"--retry {self._retries} was not enough" if is_limited and self._retried else None

    def _redirected(self, call: Call, response: Response, redirects: int) -> tuple[Call | None, RedirectError | None]:
        """Return the call that follows *response*, or why the redirect is not followed."""
        try:
            return redirected_call(call, response, redirects, base_url=self._base_url, follow=self._follow), None
        except RedirectError as error:
            return None, error.with_traceback(None)

    def _check_origin(self, call: Call, response: Response, redirected_by: str) -> None:
        """Raise RedirectError if *response* is a web page of another origin: probably one to sign in."""
        if response.headers.get("Content-Type").strip().lower().startswith(("text/html", "application/xhtml")):
            target = urls.displayed_without_query(call.url)
            raise RedirectError(
                f"{redirected_by} redirects to {target}, which is a web page of another origin, perhaps to sign in",
                hint="sign in as the operators of the API describe, or check the base URL",
            )


# redirects


def redirected_call(
    call: Call, response: Response, redirects: int, *, base_url: str, follow: bool = True
) -> Call | None:
    """Return the call that follows the redirect in *response*, or None if it is not a redirect.

    *redirects* is the number of consecutive redirects, including this one. Raises
    RedirectError if the redirect is not followed.
    """
    location = _location(response)
    if location is None:
        return None
    try:
        url = urls.join(call.url, location)
    except urls.InvalidURL as error:
        raise RedirectError(f"the server redirects to a target that {error}", hint=_REPORT) from None
    next_call = call._replace(url=url)
    message = f"{call.display_url} redirects ({response.status}) to {next_call.display_url}"
    if not follow:
        raise RedirectError(message, hint="omit --no-follow to follow it")
    if redirects > MAX_REDIRECTS:
        raise RedirectError(f"more than ten redirects: {message}", hint="check the path")
    if call.url.startswith("https:") and url.startswith("http:"):
        raise RedirectError(
            f"{message}, from https to plain http: not followed", hint="if you trust it, use the http URL"
        )
    if response.status in (301, 302) and call.method not in _SAFE:
        hint = f"send the {call.method} to the target"
        raise RedirectError(f"{message}: not followed, because a {call.method} would become a GET", hint=hint)
    if response.status == 303 and call.method != "HEAD":  # RFC 9110, section 15.4.4
        headers = [header for header in call.headers if not header[0].lower().startswith("content-")]
        return next_call._replace(method="GET", headers=headers, body=None)
    if call.body is not None and not urls.same_origin(url, base_url):
        trust = ("if you trust it, use ", Option("base_url"), f" {urls.root(url)}")
        raise RedirectError(f"{message}: a body is not sent to another origin", hint=trust)
    return next_call


def _location(response: Response) -> str | None:
    """Return the Location of a redirect, or None if *response* is not a redirect.

    Bytes that are not valid UTF-8 become surrogates, so that the URL preserves the bytes that the server sent.
    Raises RedirectError if the response has two different Location headers.
    """
    if response.status not in _REDIRECTS:
        return None
    targets = {value for name, value in response.headers.raw if name.lower() == b"location"}
    if len(targets) > 1:
        raise RedirectError("the response has two different Location headers", hint=_REPORT)
    return targets.pop().decode("utf-8", "surrogateescape") if targets else None


def _is_transient(result: Response | NetworkError) -> bool:
    if isinstance(result, NetworkError):
        return retry.is_transient_error(result)
    return result.status in retry.STATUSES


# headers


def _headers_of(call: Call, *, to_api: bool) -> list[tuple[bytes, bytes]]:
    """Return the headers of *call*, except those that the HTTP layer sets.

    Without *to_api*, the request goes to an origin other than the API's, and no header of the user is included.
    """
    user = list(call.headers) if to_api else []
    if to_api and call.body is not None and call.body.content_type:
        user = with_defaults(user, [("Content-Type", call.body.content_type)])
    headers = with_defaults([*user, *call.own_headers], _DEFAULTS)
    return [(name.encode("ascii"), value.encode(*ENCODING)) for name, value in headers if value is not None]

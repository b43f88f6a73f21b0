"""The flow of one API call: replays after a 401, retries and redirects, up to the final response.

The flow is a generator without I/O, which tests can drive directly: it yields the next step, and a driver performs
the step and sends the result back. There are four drivers: `request.send` blocks, `batch.engine` and `proxy.server` run
many flows in one thread, and `library` is an `httpx.Auth`.
"""

import time
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from xapi_cli.errors import UNAUTHORIZED, NetworkError, RedirectError
from xapi_cli.http import retry, urls
from xapi_cli.tokens import Token

RawHeader = tuple[bytes, bytes]
FIRST_REDIRECT = 300  # a response with a lower status is neither a redirect nor a failure

if TYPE_CHECKING:  # a Protocol takes 0.2 ms to define
    from collections.abc import Sequence
    from typing import Protocol

    class Call(Protocol):
        """The properties of a request that the flow uses."""

        @property
        def method(self) -> str:
            """The method, as it is sent."""

        @property
        def url(self) -> str:
            """The absolute URL."""

        @property
        def display_url(self) -> str:
            """The URL for use in messages, without secrets."""

    class Response(Protocol):
        """The properties of a response that the flow uses."""

        @property
        def status(self) -> int:
            """The status code."""

        @property
        def raw_headers(self) -> Sequence[RawHeader]:
            """The names and values of the header fields, in the order received."""

    class Tokens(Protocol):
        """The source of the token; `cached` and `accepted` return immediately, the others may log in and fail."""

        @property
        def cached(self) -> Token | None:
            """The token to send, or None if there is none yet."""

        def accepted(
            self, token: Token, status: int, sent_at: float, repeat: Callable[[Token], int] | None = None, /
        ) -> None:
            """Record that the response to a request with *token*, sent at *sent_at*, has *status*, which is not 401."""

        def current(self) -> Token | None:
            """Return the token to send."""

        def renew(self, rejected: Token, sent_at: float, /) -> Token | None:
            """Return a token to replace *rejected*, which was sent at *sent_at*, or None if the 401 is final."""


C = TypeVar("C", bound="Call")
R = TypeVar("R", bound="Response")
AnyResponse = TypeVar("AnyResponse", bound="Response")


class Send(NamedTuple, Generic[C]):
    """Send *call* with *token*.

    The result is a Response. If there is none, the driver raises NetworkError or TimeoutExpired in the flow.
    With *to_api* False, the call has left the API's origin; the headers and the body of the user MUST be omitted.
    The driver may omit the body of a response, other than a success, if *needs_body* returns False for its status and
    headers.
    """

    call: C
    token: Token | None
    to_api: bool
    needs_body: "Callable[[Response], bool]"


class Login(NamedTuple):
    """Get a token to replace *rejected*, or the first token if that is None.

    The result is the token, or None if the 401 is final. An error of the login ends the flow.
    """

    rejected: Token | None
    sent_at: float = 0.0

    def token_from(self, tokens: "Tokens") -> Token | None:
        """Return the result of this step, obtained from *tokens*; blocks during a login."""
        return tokens.current() if self.rejected is None else tokens.renew(self.rejected, self.sent_at)


class Wait(NamedTuple):
    """Wait for *seconds* before a retry. The result is None."""

    seconds: float


class FinalResponse(NamedTuple, Generic[AnyResponse]):
    """The final response of a call: the last step, unless its result is a `Resume`.

    *from_api* is False if the redirects left the API's origin before it. *refused_redirect* is the reason why the
    response is a redirect that was not followed. *refused_retry* is why a transient failure was not retried: the
    method, or, from `request.send`, what ended the retries after a 429.
    """

    response: AnyResponse
    from_api: bool = True
    refused_redirect: RedirectError | None = None
    refused_retry: str | None = None

    @property
    def is_rejection(self) -> bool:
        """Whether the API rejected the token; a 401 from another origin does not count."""
        return self.from_api and self.response.status == UNAUTHORIZED


class Resume(NamedTuple, Generic[C]):
    """Send *call*, which requests the body of the final response, or the rest of it, again.

    If the body was truncated with *error*, this is a retry; without one left, the flow ends.
    """

    call: C
    error: NetworkError | None


Step = Send[C] | Login | Wait | FinalResponse[R]
Flow = Generator[Step[C, R], Any, None]


class Policy(NamedTuple, Generic[C]):
    """The rules for the calls of one command.

    *replays* is the maximum number of replays after a 401, each with a newer token; retries and redirects reset the
    count. *retries* is the maximum number of retries after transient failures, none of which starts after *deadline*,
    a time of `time.monotonic`; *note* receives a line about each. *tokens* is None if no call is authenticated.

    *redirected* returns the call that follows the redirect in a response, or None if the response is not a redirect;
    it raises RedirectError if the redirect is not followed. It also receives the number of consecutive redirects.
    """

    base_url: str
    replays: int
    retries: int = 0
    deadline: float | None = None
    tokens: "Tokens | None" = None
    redirected: "Callable[[C, Response, int], C | None]" = lambda call, response, redirects: None
    note: Callable[[str], None] = lambda text: None
    repeat: "Callable[[C, Token], int] | None" = None

    def flow(self, call: C, *, authenticated: bool = True) -> Flow[C, Any]:
        """Yield the steps of *call*; the last one is its final response.

        Without *authenticated*, no token is sent, and a 401 is final. Raises NetworkError, TimeoutExpired and the
        errors of a login.
        """
        to_api, retries, redirects, redirect = True, 0, 1, ""
        result: Response | NetworkError
        while True:
            attempt = _Attempt(self, call, retries, redirects, to_api=to_api)
            result = yield from attempt.result(self.tokens if authenticated and to_api else None)
            delay, refused, refused_retry = None, None, None
            if isinstance(result, NetworkError) or result.status >= FIRST_REDIRECT:
                delay = attempt.retry_delay(result)
                if delay is None:
                    refused_retry = attempt.refused_retry(result)
                    if isinstance(result, NetworkError):
                        if not to_api and result.hint:
                            result.hint = result.hint.replace(urls.BASE_URL, f"the redirect of {redirect}")
                        result.hint = retry.explained(result.hint, refused_retry)
                        raise result
                    next_call, refused = self._redirected(call, result, redirects)
                    if next_call is not None:
                        redirect, call, redirects = call.display_url, next_call, redirects + 1
                        to_api = to_api and urls.same_origin(call.url, self.base_url)
                        continue
            if delay is None:
                resume: Resume[C] = yield FinalResponse(result, to_api, refused, refused_retry)
                call, to_api, redirects = resume.call, True, 1
                if resume.error is None:
                    continue
                result, delay = resume.error, attempt.delay()
                if delay is None:
                    return
            retries += 1
            self.note(f"{attempt.failure(result)}; retrying in {delay:.1f} s ({retries} of {self.retries})")
            yield Wait(delay)

    def _redirected(self, call: C, response: "Response", redirects: int) -> tuple[C | None, RedirectError | None]:
        """Return the call that follows, or why there is none.

        The frame of `flow` keeps the error, so the error must not refer to frames that refer to it.
        """
        try:
            return self.redirected(call, response, redirects), None
        except RedirectError as error:
            error.__cause__ = error.__context__ = None
            return None, error.with_traceback(None)


class _Attempt(Generic[C]):
    """One attempt of *call*, after *retries* retries; a redirect in its response is number *redirects* in a row.

    The delay before a retry is random. It is computed only once, because it decides whether the body of the response
    may be omitted.
    """

    __slots__ = ("_call", "_delays", "_policy", "_redirects", "_retries", "_to_api")

    def __init__(self, policy: Policy[C], call: C, retries: int, redirects: int, *, to_api: bool) -> None:
        self._policy, self._call, self._to_api = policy, call, to_api
        self._retries, self._redirects = retries, redirects
        self._delays: dict[str | None, float | None] | None = None  # by Retry-After

    def result(self, tokens: "Tokens | None") -> "Generator[Step[C, Any], Any, Response | NetworkError]":
        """Return the response after any replays, or the error if there is none; raise the errors of a login.

        Without *tokens*, none is sent.
        """
        token: Token | None = None
        if tokens is not None:
            token = tokens.cached or (yield Login(None))
        replays = 0
        while True:
            sent_at = time.monotonic()
            try:
                response: Response = yield Send(self._call, token, self._to_api, self._needs_body)
            except NetworkError as error:
                return error
            if token is None or tokens is None:
                return response
            if response.status != UNAUTHORIZED:
                repeat = partial(self._policy.repeat, self._call) if self._policy.repeat else None
                tokens.accepted(token, response.status, sent_at, repeat if self._call.method == "GET" else None)
                return response
            newer = (yield Login(token, sent_at)) if replays < self._policy.replays else None
            if newer is None:
                return response
            token, replays = newer, replays + 1

    def retry_delay(self, result: "Response | NetworkError") -> float | None:
        """Return the seconds to wait before a retry after *result*, or None if the request is not retried."""
        if not _is_transient(result):
            return None
        return self.delay(None if isinstance(result, NetworkError) else retry.retry_after(result.raw_headers))

    def refused_retry(self, result: "Response | NetworkError") -> str | None:
        """Return why the transient failure *result* is not retried, if that is because of the method."""
        policy, method = self._policy, self._call.method
        if not policy.retries or method in retry.IDEMPOTENT:
            return None
        return retry.refusal(method) if _is_transient(result) else None

    def failure(self, result: "Response | NetworkError") -> str:
        """Return a description of the transient failure *result*."""
        if isinstance(result, NetworkError):
            return result.message
        return f"{self._call.display_url} responded with {result.status}"

    def _needs_body(self, response: "Response") -> bool:
        """Return whether the body of *response* can be needed: not before a replay, a retry or the next redirect."""
        if self._to_api and response.status == UNAUTHORIZED:  # the request is replayed, or the call fails
            return False
        if self.retry_delay(response) is not None:
            return False
        try:
            return self._policy.redirected(self._call, response, self._redirects) is None
        except RedirectError:
            return True

    def delay(self, retry_after: str | None = None) -> float | None:
        """Return the seconds to wait after a transient failure with *retry_after*, None if no retry is left."""
        self._delays = self._delays or {}
        if retry_after not in self._delays:
            policy = self._policy
            self._delays[retry_after] = retry.next_delay(
                self._call.method,
                self._retries,
                policy.retries,
                retry_after=retry_after,
                deadline=policy.deadline,
            )
        return self._delays[retry_after]


def _is_transient(result: "Response | NetworkError") -> bool:
    if isinstance(result, NetworkError):
        return retry.is_transient_error(result)
    return result.status in retry.STATUSES

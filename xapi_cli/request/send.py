"""Send one API call, and return its final response; `status_error` returns the failure for its status."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from xapi_cli import errors
from xapi_cli.errors import UNAUTHORIZED, NetworkError, RedirectError, ServerStatusError, TokenRejected, XapiError
from xapi_cli.http import authorization, retry
from xapi_cli.http.flow import FinalResponse, Flow, Login, Policy, Resume, Send, Wait
from xapi_cli.http.messages import Request, Response, build_request
from xapi_cli.request import calls
from xapi_cli.request.calls import Call, displayed_without_query
from xapi_cli.system.render import shortened
from xapi_cli.tokens import Token

if TYPE_CHECKING:
    from xapi_cli.auth.token_source import TokenSource
    from xapi_cli.http import flow
    from xapi_cli.http.transport import Transport
    from xapi_cli.request.body.spool import Body

Outcome = FinalResponse[Response]
Uploading = Callable[[int], AbstractContextManager[Callable[[int], None]]]
"""Takes the size of a body; the context manager returns a function that records that so many bytes were sent."""

_CLIENT_HINTS = {
    403: "the API serves only users with master rights",
    404: "check the path and the base URL",
}
# The members in which APIs explain an error: RFC 6749, section 5.2, RFC 9457, and usual ones.
_REASONS = ("error", "error_description", "detail", "message", "reason", "title")
_MAX_SHOWN = 60  # characters of a text of the server
_MIN_WORDS = 3  # of a sentence; "Access denied" repeats the status
_RIGHTS = (
    r"(?i)\b(?:(?:un|not )authori[sz]ed|access denied|forbidden"
    r"|permissions?|permitted|privileges?|rights?|roles?|scopes?)\b"
)
_SERVER_HINTS = {
    501: "the server does not support the method; check METHOD",
    505: "the server does not support HTTP/1.1",
}


def show_nothing(length: int) -> AbstractContextManager[Callable[[int], None]]:
    """Show no progress of a body."""
    return nullcontext(lambda count: None)


class Sender:
    """Send calls over *transport* to the API at *base_url*; report each retry to *note*, as one line.

    Without *tokens*, no token is sent. *retries* is the maximum number of
    retries after transient failures. *deadline* is a time of `time.monotonic`.
    *uploading* shows the progress of a body.
    """

    def __init__(
        self,
        transport: "Transport",
        base_url: str,
        tokens: "TokenSource | None",
        *,
        follow: bool = True,
        retries: int = 0,
        replays: int = 1,
        deadline: float | None = None,
        note: Callable[[str], None] = lambda text: None,
        uploading: Uploading = show_nothing,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport, self._tokens = transport, tokens
        self._deadline, self._uploading, self._sleep = deadline, uploading, sleep
        self._policy: Policy[Call] = Policy(
            base_url,
            replays=replays,
            retries=retries,
            deadline=deadline,
            tokens=tokens,
            redirected=partial(_redirected, base_url=base_url, follow=follow),
            note=note,
            repeat=self._repeat,
        )
        self._flow: Flow[Call, Response] | None = None  # of the last call
        self._sent = 0  # requests for the last call
        self.attempts = 0  # of all calls: the first ones, the retries and the replays after a 401
        self._response: Response | None = None  # of the last Send step; its body is not read

    def send(self, call: Call) -> Outcome:
        """Return the final response to *call*; its body has not been read yet.

        A final 401 is recorded in the tokens. Raises the errors of the login, NetworkError and TimeoutExpired.
        """
        self.attempts += 1
        self._sent = 0
        flow: Flow[Call, Response] = self._policy.flow(call)
        self._flow = flow
        return self._next_outcome(flow, None)

    def resume(self, call: Call, error: NetworkError | None = None) -> Outcome | None:
        """Return the final response to *call*, which requests the body of the last response, or its rest, again.

        If the body was truncated with *error*, that is a retry; return None if none is left.
        """
        assert self._flow is not None  # noqa: S101 - there was a response
        try:
            return self._next_outcome(self._flow, Resume(call, error))
        except StopIteration:
            return None

    def _next_outcome(self, flow: Flow[Call, Response], result: Any) -> Outcome:
        """Continue *flow* with *result* until the next final response."""
        try:
            while True:
                step = flow.throw(result) if isinstance(result, XapiError) else flow.send(result)
                if isinstance(step, FinalResponse):
                    break
                try:
                    result = self._perform(step)
                except XapiError as error:
                    result = error
        except BaseException:
            if self._response is not None:
                self._response.close()
            raise
        last, policy = step.response, self._policy
        why_final = retry.why_retries_ended(last.status, last.raw_headers, policy.retries, deadline=self._deadline)
        refused_retry = step.refused_retry or why_final
        outcome = FinalResponse(last, step.from_api, step.refused_redirect, refused_retry)
        if self._tokens is not None and outcome.is_rejection:
            self._tokens.record_rejection()
        return outcome

    def _perform(self, step: Send[Call] | Login | Wait) -> Response | Token | None:
        """Perform *step* and return its result; the previous response stays open during a login: it may be final."""
        if isinstance(step, Login):
            if self._response is not None:
                self._response.hold()  # the server may serve one connection at a time
            return self._log_in(step)
        self._discard_response()
        if isinstance(step, Send):
            self._response = self._send(step)
            return self._response
        self._sleep(step.seconds)
        self.attempts += 1
        return None

    def _log_in(self, step: Login) -> Token | None:
        assert self._tokens is not None  # noqa: S101 - only an authenticated flow logs in
        token = step.token_from(self._tokens)
        if step.rejected is not None and token is not None:
            self.attempts += 1
        return token

    def _send(self, step: Send[Call]) -> Response:
        self._sent += 1
        request = _request(step, self._uploading)._replace(attempt=self._sent, deadline=self._deadline)
        request = request._replace(beside=step.call.beside)
        return self._transport.send(request)

    def _repeat(self, call: Call, token: Token) -> int:
        """Send *call* again with *token* and return the status."""
        step = Send(call._replace(beside=None), token, to_api=True, needs_body=lambda response: False)
        response = self._transport.send(_request(step, self._uploading)._replace(deadline=self._deadline))
        response.discard()
        return response.status

    def _discard_response(self) -> None:
        if self._response is not None:
            self._response.discard()
            self._response = None


class LastResponse:
    """The last response, *outcome*; it is closed when the next one arrives."""

    outcome: Outcome | None = None

    def take(self, outcome: Outcome) -> None:
        """Make *outcome* the last response."""
        self.close()
        self.outcome = outcome

    def close(self) -> None:
        """Close the response."""
        if self.outcome is not None:
            self.outcome.response.close()


def status_error(
    outcome: Outcome,
    tokens: "TokenSource | None",
    *,
    check_status: bool = True,
    shown: str | None = None,
    body: bytes = b"",
) -> XapiError | None:
    """Return the error for the status of *outcome*, or None for success.

    Without *check_status*, only a 401 is an error. *shown* replaces the URL, without its query, in the message. *body*
    is the beginning of the body, if it was read: the hint does not contradict it.
    """
    response = outcome.response
    if errors.of_status(response.status) is None:
        return None
    where = shown or displayed_without_query(response.request.url)
    message = f"{response.request.method} {where} responded with {response.status}{_reason(response)}"
    error = _status_error(outcome, tokens, message, check_status=check_status)
    if error is not None and error.hint == _CLIENT_HINTS[403] and _states_other_reason(body):
        error.hint = "see the body of the response for the reason"
    if error is not None:
        concern(error, response)
    return error


def concern_call(error: XapiError, call: Call, outcome: Outcome | None) -> None:
    """Record in *error* that it concerns the last response to *call*, *outcome*, or the call if there was none."""
    if outcome is not None:
        concern(error, outcome.response)
    else:
        error.concerning(method=call.method, url=displayed_without_query(call.url))


def concern(error: XapiError, response: Response) -> None:
    """Record in *error* that it concerns *response*, the final response to a request."""
    method, wait = response.request.method, retry.retry_after_seconds(response.headers.raw)
    url = displayed_without_query(response.request.url)
    error.concerning(status=response.status, method=method, url=url, retry_after=wait)


def _status_error(
    outcome: Outcome, tokens: "TokenSource | None", message: str, *, check_status: bool
) -> XapiError | None:
    response, status = outcome.response, outcome.response.status
    if outcome.is_rejection:
        if tokens is None:
            return TokenRejected(message, hint=authorization.no_login_hint("request"))
        return TokenRejected(message, hint=tokens.advice())
    if not check_status and status != UNAUTHORIZED:
        return None
    if outcome.refused_redirect is not None:
        return outcome.refused_redirect
    failure = errors.of_status(status)
    if failure is not None and issubclass(failure, RedirectError):
        hint: str | None = "the response has no Location that can be followed"
    else:
        is_of_server = failure is not None and issubclass(failure, ServerStatusError)
        hint = _server_hint(response) if is_of_server else _hint(outcome)
        hint = retry.explained(hint, outcome.refused_retry)
    return None if failure is None else failure(message, hint=hint)


def _states_other_reason(body: bytes) -> bool:
    """Return whether *body* is a JSON object with a sentence that is not about missing rights."""
    import json

    try:
        members = json.loads(body)
    except (ValueError, RecursionError):
        return False
    if isinstance(members, dict) and isinstance(members.get("error"), dict):
        members = members["error"]
    texts = [members.get(name) for name in _REASONS] if isinstance(members, dict) else []
    sentences = [text for text in texts if isinstance(text, str) and len(text.split()) >= _MIN_WORDS]
    return bool(sentences) and not any(re.search(_RIGHTS, text) for text in sentences)


def _request(step: Send[Call], uploading: Uploading) -> Request:
    """Return the request for *step*; outside the API's origin, it has no body and no header of the user."""
    call, body = step.call, step.call.body if step.to_api else None
    headers = calls.headers_of(call, to_api=step.to_api) + authorization.headers(step.token)
    if body is None:
        return build_request(call.method, call.url, headers)
    length = None if body.is_chunked else body.length
    return build_request(call.method, call.url, headers, _Body(body, uploading), length, is_replayable=False)


class _Body:
    """The *body* of a request; each iteration yields the same bytes, so that the request can be resent."""

    def __init__(self, body: "Body", uploading: Uploading) -> None:
        self._body, self._uploading = body, uploading

    def __iter__(self) -> Iterator[bytes]:
        with self._uploading(self._body.length) as advance:
            for chunk in self._body:
                yield chunk
                advance(len(chunk))


def _redirected(call: Call, response: "flow.Response", redirects: int, *, base_url: str, follow: bool) -> Call | None:
    from xapi_cli.request.redirects import redirected_call

    return redirected_call(call, response, redirects, base_url=base_url, follow=follow)


def _reason(response: Response) -> str:
    phrase = response.reason.decode("utf-8", "backslashreplace")
    phrase = shortened(phrase, _MAX_SHOWN)
    return f" {phrase}" if phrase else ""


def _server_hint(response: Response) -> str:
    return _SERVER_HINTS.get(response.status) or retry.later_hint(response.headers.raw)


def _hint(outcome: Outcome) -> str | None:
    if not outcome.from_api:
        return "a redirect led to another origin, to which the token is not sent; check the base URL"
    if outcome.response.status == 405:
        allowed = shortened(outcome.response.headers.get("Allow").strip(), _MAX_SHOWN)
        return f"allowed methods: {allowed}" if allowed else "check METHOD"
    if outcome.response.status == retry.TOO_MANY_REQUESTS:
        raw_headers, method = outcome.response.raw_headers, outcome.response.request.method
        return retry.rate_limit_hint(raw_headers, method, is_explained=outcome.refused_retry is not None)
    return _CLIENT_HINTS.get(outcome.response.status)

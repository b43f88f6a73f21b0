"""The failure for the status of a response, with the reason that the API gives, and what a failure concerns."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from xapi_cli import errors
from xapi_cli.errors import UNAUTHORIZED, RedirectError, ServerStatusError, TokenRejected, XapiError
from xapi_cli.http import authorization, retry
from xapi_cli.http.messages import Response
from xapi_cli.http.send import Call, Outcome
from xapi_cli.http.urls import displayed_without_query
from xapi_cli.request.media_types import codec_of
from xapi_cli.system.render import shortened

if TYPE_CHECKING:
    from xapi_cli.hints import Hint
    from xapi_cli.http.send import Tokens

_CLIENT_HINTS = {
    403: "the API serves only users with master rights",
    404: "check the path and the base URL",
}
_MAX_SHOWN = 60  # characters of a text of the server
_MAX_REASON = 300  # characters
_MAX_BODY = 64 * 1024  # bytes, of which the reason can come
# RFC 6749, section 5.2 (error_description, error), RFC 9457 (detail, title), and usual names, the best first
_NAMES = ("message", "error_description", "error", "detail", "title", "errors", "errorMessage", "msg", "reason")
_OF_PROBLEM = ("detail", "title", *_NAMES)
_TITLE = re.compile(r"<title[^<>]{0,200}>([^<]{1,1000})", re.IGNORECASE)
_SERVER_HINTS = {
    501: "the server does not support the method; check METHOD",
    505: "the server does not support HTTP/1.1",
}


def status_error(
    outcome: Outcome,
    tokens: "Tokens | None",
    *,
    check_status: bool = True,
    body: bytes = b"",
) -> XapiError | None:
    """Return the error for the status of *outcome*, or None for success.

    Without *check_status*, only a 401 is an error. *body* is the beginning of the body, if it was read: the message has
    the reason that the API gives in it.
    """
    response = outcome.response
    if errors.of_status(response.status) is None:
        return None
    from http import HTTPStatus  # a success does not need it

    where, phrase = displayed_without_query(response.request.url), _phrase(response)
    message = f"{response.request.method} {where} responded with {response.status}{phrase}"
    why = reason(body, response.headers.get("Content-Type").lower())
    usual = [status.phrase.lower() for status in HTTPStatus if status == response.status]
    if why and why.lower() in [phrase.strip().lower(), *usual]:
        why = None  # it only repeats the status
    if why:
        message += f": {why}"
    error = _status_error(outcome, tokens, message, check_status=check_status)
    if error is not None:
        if why and error.hint == _CLIENT_HINTS[403]:
            error.hint = None
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
    method, wait = response.request.method, retry.retry_after_seconds(response.headers.get("Retry-After"))
    url = displayed_without_query(response.request.url)
    error.concerning(status=response.status, method=method, url=url, retry_after=wait)


def _status_error(outcome: Outcome, tokens: "Tokens | None", message: str, *, check_status: bool) -> XapiError | None:
    response, status = outcome.response, outcome.response.status
    if outcome.is_rejection:
        if tokens is None:
            return TokenRejected(message, hint=authorization.NO_LOGIN_HINT)
        return TokenRejected(message, hint=tokens.advice())
    if not check_status and status != UNAUTHORIZED:
        return None
    if outcome.refused_redirect is not None:
        return outcome.refused_redirect
    failure = errors.of_status(status)
    if failure is not None and issubclass(failure, RedirectError):
        hint: Hint | None = "the response has no Location that can be followed"
    else:
        is_of_server = failure is not None and issubclass(failure, ServerStatusError)
        hint = _server_hint(response) if is_of_server else _hint(outcome)
        hint = retry.explained(hint, outcome.refused_retry)
    return None if failure is None else failure(message, hint=hint)


def _phrase(response: Response) -> str:
    phrase = response.reason.decode("utf-8", "backslashreplace")
    phrase = shortened(phrase, _MAX_SHOWN)
    return f" {phrase}" if phrase else ""


def _server_hint(response: Response) -> str:
    return _SERVER_HINTS.get(response.status) or retry.later_hint(response.headers.get("Retry-After"))


def _hint(outcome: Outcome) -> str | None:
    if not outcome.from_api:
        return "a redirect led to another origin, to which the token is not sent; check the base URL"
    if outcome.response.status == 405:
        allowed = shortened(outcome.response.headers.get("Allow").strip(), _MAX_SHOWN)
        return f"allowed methods: {allowed}" if allowed else "check METHOD"
    if outcome.response.status == retry.TOO_MANY_REQUESTS:
        retry_after, method = outcome.response.headers.get("Retry-After"), outcome.response.request.method
        return retry.rate_limit_hint(retry_after, method, is_explained=outcome.refused_retry is not None)
    return _CLIENT_HINTS.get(outcome.response.status)


def reason(body: bytes, content_type: str = "") -> str | None:
    """Return the reason that the API gives in *body* for a failure, or None if there is none.

    That is the first text in the usual members of a JSON object, the title of an HTML page, or the first line of text:
    untrusted text, made printable, in one line of limited length. The caller redacts secrets.
    """
    if len(body) > _MAX_BODY and "json" in content_type:
        return None
    text = body[:_MAX_BODY].decode(codec_of(content_type) or "utf-8", "replace").removeprefix("\ufeff").strip()
    if not text or "\0" in text:
        return None
    if text[0] in "{[":
        try:
            names = _OF_PROBLEM if "problem+json" in content_type else _NAMES
            found = next(_texts(json.loads(text), names), None)
        except (ValueError, RecursionError):
            found = None
    elif "html" in content_type or text[:15].lower().startswith(("<!doctype", "<html")):
        from html import unescape

        title = _TITLE.search(text)
        found = unescape(title[1]) if title else None
    elif text.startswith("<") or content_type.startswith(("image/", "audio/", "video/", "application/octet-stream")):
        found = None
    else:
        found = text.splitlines()[0]
    words = " ".join(found[: 4 * _MAX_REASON].split()) if found else ""
    return shortened(words, _MAX_REASON) or None


def _texts(value: Any, names: Sequence[str], depth: int = 3) -> Iterator[str]:
    """Yield the texts that may be the reason in a JSON *value*, the best first."""
    if isinstance(value, str) and value.strip():
        yield value
    elif isinstance(value, list) and value and depth:
        yield from _texts(value[0], names, depth - 1)
    elif isinstance(value, dict) and depth:
        for name in names:
            yield from _texts(value.get(name), names, depth - 1)

"""Decide whether to retry a request, and how long to wait before the retry; tell the user what to do without one."""

import math
import time

from xapi_cli.errors import NetworkError, XapiError
from xapi_cli.hints import Hint, together
from xapi_cli.http.header_syntax import parse_date

TOO_MANY_REQUESTS = 429
STATUSES = (TOO_MANY_REQUESTS, 502, 503, 504)
IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"})  # RFC 9110, 9.2.2
LONGEST_WAIT = 300.0  # seconds; a longer Retry-After ends the retries
_FIRST, _CAP = 0.5, 30.0  # seconds
_LONGEST_DATE = 64  # characters
_MAX_RETRY_AFTER = 1e12  # seconds; infinity could not be rounded


def next_delay(
    method: str, retries: int, limit: int, retry_after: str = "", *, deadline: float | None = None
) -> float | None:
    """Return the seconds to wait before the next retry of a request with *method*, or None if it is not retried.

    *retries* is the number of retries so far, *limit* the maximum. A retry that would start after *deadline*, a time of
    `time.monotonic`, is not made. *retry_after*, the header of that name, is respected up to LONGEST_WAIT; without one,
    the delay is exponential backoff with full jitter.
    """
    if retries >= limit or method not in IDEMPOTENT:
        return None
    seconds = requested_delay(retry_after)
    if seconds is None:
        import random

        seconds = random.uniform(0.0, min(_CAP, _FIRST * 2 ** min(retries, 10)))  # noqa: S311 - no secret
    is_late = deadline is not None and time.monotonic() + seconds >= deadline
    return None if is_late or seconds > LONGEST_WAIT else seconds


def is_transient_error(error: XapiError) -> bool:
    """Return whether a request that failed with *error* may be sent again: not after a response, valid or not."""
    return isinstance(error, NetworkError) and not error.headers_received


def requested_pause(status: int, retry_after: str) -> float | None:
    """Return the seconds for which a response asks the client to send nothing, None without such a request.

    A pause of more than LONGEST_WAIT is ignored, as it is for a retry.
    """
    if status not in (TOO_MANY_REQUESTS, 503):
        return None
    seconds = requested_delay(retry_after)
    return None if seconds is None or seconds > LONGEST_WAIT else seconds


def retry_after_seconds(retry_after: str) -> int | None:
    """Return the whole seconds that *retry_after* requests; None if it is not valid, or over."""
    seconds = requested_delay(retry_after)
    return math.ceil(seconds) if seconds else None


def requested_delay(retry_after: str) -> float | None:
    """Return the seconds that *retry_after*, the value of Retry-After, requests; None if it is empty or not valid.

    It is a number of seconds, which some APIs send with a fraction, or a date (RFC 9110, section 10.2.3).
    """
    text = retry_after.strip()
    if text.isascii() and text.replace(".", "", 1).isdigit():
        return min(float(text), _MAX_RETRY_AFTER)
    if not text or len(text) > _LONGEST_DATE:
        return None
    try:
        return max(0.0, parse_date(text).timestamp() - time.time())
    except ValueError:
        return None


# the words for the user


def explained(hint: Hint | None, refusal: str | None) -> Hint | None:
    """Return *hint* with *refusal*, why a request was not retried, in parentheses; either may be missing."""
    return together(hint, f" ({refusal})") if hint and refusal else hint or refusal


def later_hint(retry_after: str) -> str:
    """Return the hint to send a request again, and when: at the time that *retry_after* requests, or later."""
    seconds = retry_after_seconds(retry_after)
    return "try again later" if seconds is None else f"try again in {seconds} s"


def rate_limit_hint(retry_after: str, method: str, *, is_explained: bool) -> str:
    """Return the hint for a 429 to a request; it need not suggest --retry if *is_explained* why that did not help."""
    found, is_too_late = later_hint(retry_after), (requested_delay(retry_after) or 0.0) > LONGEST_WAIT
    return found if is_explained or is_too_late or method not in IDEMPOTENT else f"{found}, or use --retry"

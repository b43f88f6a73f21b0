"""Which requests are retried, and how long to wait before a retry."""

import random
import time
from collections.abc import Callable

STATUSES = frozenset({429, 502, 503, 504})
METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})
LONGEST_WAIT = 300.0  # seconds; a longer Retry-After ends the retries
_FIRST, _CAP = 0.5, 30.0


def delay(
    tries: int, retry_after: str | None, *, rng: Callable[[float, float], float] = random.uniform
) -> float | None:
    """Return the seconds to wait before the next attempt after *tries* failed ones, None for no further attempt.

    *retry_after* is the value of `Retry-After`, in seconds or as a date (RFC 9110,
    section 10.2.3). It is respected up to LONGEST_WAIT. Without a valid value, the
    delay is exponential backoff with full jitter; *rng* returns a random number
    between its arguments.
    """
    asked = _seconds(retry_after) if retry_after is not None else None
    if asked is None:
        return rng(0.0, min(_CAP, _FIRST * 2 ** min(tries, 10)))
    return asked if asked <= LONGEST_WAIT else None


def _seconds(retry_after: str) -> float | None:
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError, OSError):
        return None

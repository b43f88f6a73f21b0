"""Rules for resuming a download (RFC 9110, sections 13.1.5 and 14): the request that does it, and its response."""

import re
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.http.decoding import NO_CODINGS

if TYPE_CHECKING:
    from xapi_cli.http.messages import Headers

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII | re.IGNORECASE)
_STRONG_ETAG = re.compile(r'"[\x21\x23-\x7e]{0,1000}"')  # ASCII: other bytes could be sent in another encoding
_VALIDATOR = re.compile(rf"{_STRONG_ETAG.pattern}|[A-Za-z0-9 ,:+-]{{1,100}}", re.ASCII)
_CHANGED = "the file on the server has changed"


class Version(NamedTuple):
    """One version of a resource: its strong *validator*, and its size in bytes if it is known."""

    validator: str
    total: int | None


def headers(version: Version | None, start: int) -> tuple[tuple[str, str], ...]:
    """Return the headers that request *version* from byte *start* on, or all of the current version if it differs.

    Without *version*, they request the whole file. The bytes of a content coding could not be resumed.
    """
    identity = ("Accept-Encoding", "identity")
    return (identity, ("Range", f"bytes={start}-"), ("If-Range", version.validator)) if version else (identity,)


def version_of(fields: "Headers") -> Version | None:
    """Return the version in a 200 response with the header *fields*, or None if it cannot be resumed."""
    etag, modified = fields.get("etag").strip(), fields.get("last-modified").strip()
    if is_coded(fields) or fields.get("accept-ranges").strip().lower() == "none":
        return None
    is_strong = _STRONG_ETAG.fullmatch(etag) if etag else modified and _is_before(modified, fields.get("date"))
    validator = etag or modified
    return Version(validator, length_of(fields)) if is_strong and is_validator(validator) else None


def is_validator(text: str) -> bool:
    """Return whether *text* can be sent as If-Range: an entity tag or a date."""
    return _VALIDATOR.fullmatch(text) is not None


def problem(version: Version, start: int, fields: "Headers") -> str | None:
    """Return why a 206 response with the header *fields* does not continue *version* at byte *start*, otherwise None.

    All of the rest must follow, so that the response is the last one that is needed.
    """
    found = _CONTENT_RANGE.fullmatch(fields.get("content-range").strip())
    if found is None:
        return "the server sent a range without a valid Content-Range"
    first, last, total = map(int, found.groups())
    if first != start or last != total - 1 or length_of(fields) not in (None, total - start):
        return "the server sent a different range than the one requested"
    # the ETag must be sent again, Last-Modified need not (section 15.3.7)
    is_etag = version.validator.startswith('"')
    sent = fields.get("etag" if is_etag else "last-modified").strip()
    if total != (version.total or total) or (sent != version.validator and (is_etag or sent)):
        return _CHANGED
    return "the server sent a range with a Content-Encoding" if is_coded(fields) else None


def why_whole(version: Version, fields: "Headers") -> str:
    """Return why the server responded with the whole file, and these header *fields*, to a request for a part."""
    current, total = version_of(fields), None if is_coded(fields) else length_of(fields)
    if (current and current.validator != version.validator) or total not in (None, version.total or total):
        return _CHANGED
    return "the server sent the whole file, because it does not support ranges"


def total_of(fields: "Headers") -> int:
    """Return the size of the whole file according to the valid Content-Range in *fields*."""
    return int(fields.get("content-range").rpartition("/")[2])


def length_of(fields: "Headers") -> int | None:
    """Return the length of the body that the header *fields* declare, None if they do not."""
    length = fields.get("content-length").strip()
    return int(length) if length.isascii() and length.isdigit() and len(length) <= 18 else None


def is_coded(fields: "Headers") -> bool:
    """Return whether the body has a content coding: its bytes are not those of the file."""
    return fields.get("content-encoding").strip().lower() not in NO_CODINGS


def _is_before(modified: str, date: str) -> bool:
    """Return whether *modified* is at least one second before *date*: otherwise, the file may change within it."""
    from email.utils import parsedate_to_datetime

    try:
        return (parsedate_to_datetime(date) - parsedate_to_datetime(modified)).total_seconds() >= 1
    except (ValueError, TypeError, OverflowError):
        return False

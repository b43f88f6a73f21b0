"""Rules for resuming a download (RFC 9110, sections 13.1.5 and 14): the request that does it, and its response."""

import re
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.http.content_coding import NO_CODINGS

if TYPE_CHECKING:
    from xapi_cli.http.messages import Headers

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII | re.IGNORECASE)
_STRONG_ETAG = re.compile(r'"[\x21\x23-\x7e]*"')  # ASCII: other bytes could be sent in another encoding
_VALIDATOR = re.compile(r'"[\x21\x23-\x7e]*"|[A-Za-z0-9 ,:+-]+', re.ASCII)
_MAX_VALIDATOR_LENGTH = 1024  # characters; a longer one is not stored


class Version(NamedTuple):
    """One version of a resource: its strong *validator*, its size in bytes if it is known, and a digest of its URL."""

    validator: str
    total: int | None
    url: str


def headers(version: Version | None, start: int) -> tuple[tuple[str, str], ...]:
    """Return the headers that request *version* from byte *start* on, or all of the current version if it differs.

    Without *version*, they request the whole file. The bytes of a content coding could not be resumed.
    """
    identity = ("Accept-Encoding", "identity")
    return (identity, ("Range", f"bytes={start}-"), ("If-Range", version.validator)) if version else (identity,)


def version_of(fields: "Headers", url: str) -> Version | None:
    """Return the version in a 200 response with the header *fields*, or None if it cannot be resumed."""
    validator = _strong_validator(fields)
    if validator is None or is_coded(fields) or fields.get("accept-ranges").strip().lower() == "none":
        return None
    return Version(validator, length_of(fields), url)


def is_validator(text: str) -> bool:
    """Return whether *text* can be sent as If-Range: an entity tag or a date."""
    return _VALIDATOR.fullmatch(text) is not None


def problem(version: Version, start: int, fields: "Headers", url: str) -> str | None:
    """Return why a 206 response with the header *fields* does not continue *version* at byte *start*, otherwise None.

    All of the rest must follow, so that the response is the last one that is needed.
    """
    found = _CONTENT_RANGE.fullmatch(fields.get("content-range").strip())
    if found is None:
        return "the server sent a range without a valid Content-Range"
    first, last, total = map(int, found.groups())
    length = length_of(fields)
    if first != start or last != total - 1 or length not in (None, total - start):
        return "the server sent a different range than the one requested"
    # the ETag must be sent again, Last-Modified need not (section 15.3.7)
    is_etag = version.validator.startswith('"')
    sent = fields.get("etag" if is_etag else "last-modified").strip()
    is_changed = sent != version.validator and (is_etag or bool(sent))
    if total != (version.total or total) or is_changed or url != version.url:
        return "the file on the server has changed"
    return "the server sent a range with a Content-Encoding" if is_coded(fields) else None


def why_whole(version: Version, fields: "Headers", url: str) -> str:
    """Return why the server responded with the whole file, and these header *fields*, to a request for a part."""
    current, total = _strong_validator(fields), length_of(fields)
    if url != version.url or (current or version.validator) != version.validator:
        return "the file on the server has changed"
    if version.total is not None and total not in (None, version.total) and not is_coded(fields):
        return "the file on the server has changed"
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


def _strong_validator(fields: "Headers") -> str | None:
    """Return the value for If-Range: a strong entity tag, or a date that is a strong validator (section 8.8.2.2)."""
    etag, modified = fields.get("etag").strip(), fields.get("last-modified").strip()
    if max(len(etag), len(modified)) > _MAX_VALIDATOR_LENGTH:
        return None
    if etag:
        return etag if _STRONG_ETAG.fullmatch(etag) else None
    return modified if modified and _is_before(modified, fields.get("date")) else None


def _is_before(modified: str, date: str) -> bool:
    """Return whether *modified* is at least one second before *date*: otherwise, the file may change within it."""
    from email.utils import parsedate_to_datetime

    try:
        return (parsedate_to_datetime(date) - parsedate_to_datetime(modified)).total_seconds() >= 1
    except (ValueError, TypeError, OverflowError):
        return False

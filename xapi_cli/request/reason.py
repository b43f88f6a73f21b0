"""The reason that an API gives for a failure, in its own words, for a message to the user.

It is untrusted text: it becomes printable, one line of limited length, and the caller redacts secrets.
"""

import html
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from xapi_cli.system.render import shortened

MAX_LENGTH = 300  # characters
_MAX_BODY = 64 * 1024  # bytes, of which the reason can come
# RFC 6749, section 5.2 (error_description, error), RFC 9457 (detail, title), and usual names, the best first
_NAMES = ("message", "error_description", "error", "detail", "title", "errors", "errorMessage", "msg", "reason")
_OF_PROBLEM = ("detail", "title", *_NAMES)
_TITLE = re.compile(r"<title[^<>]{0,200}>([^<]{1,1000})", re.IGNORECASE)


def reason(body: bytes, content_type: str = "") -> str | None:
    """Return the reason in *body*, or None if there is none.

    That is the first text in the usual members of a JSON object, the title of an HTML page, or the first line of text.
    """
    if len(body) > _MAX_BODY and "json" in content_type:
        return None
    text = body[:_MAX_BODY].decode("utf-8", "replace").removeprefix("\ufeff").strip()
    if not text or "\0" in text:
        return None
    if text[0] in "{[":
        try:
            names = _OF_PROBLEM if "problem+json" in content_type else _NAMES
            found = next(_texts(json.loads(text), names), None)
        except (ValueError, RecursionError):
            found = None
    elif "html" in content_type or text[:15].lower().startswith(("<!doctype", "<html")):
        title = _TITLE.search(text)
        found = html.unescape(title[1]) if title else None
    elif text.startswith("<") or content_type.startswith(("image/", "audio/", "video/", "application/octet-stream")):
        found = None
    else:
        found = text.splitlines()[0]
    words = " ".join(found[: 4 * MAX_LENGTH].split()) if found else ""
    return shortened(words, MAX_LENGTH) or None


def _texts(value: Any, names: Sequence[str], depth: int = 3) -> Iterator[str]:
    """Yield the texts that may be the reason in a JSON *value*, the best first."""
    if isinstance(value, str) and value.strip():
        yield value
    elif isinstance(value, list) and value and depth:
        yield from _texts(value[0], names, depth - 1)
    elif isinstance(value, dict) and depth:
        for name in names:
            yield from _texts(value.get(name), names, depth - 1)

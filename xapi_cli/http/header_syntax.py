"""The syntax of HTTP/1.1 (RFC 9112): names and values of headers, dates, and chunks."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from xapi_cli.errors import UsageError

Header = tuple[str, str | None]  # a name and a value; None removes a default header
# In bytes, with informational responses; also the limit for each chunk header line and for all trailers.
MAX_HEADER_SIZE = 100_000
TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # RFC 9110, 5.6.2
LAST_CHUNK = b"0\r\n\r\n"
TLS_RECORDS = (b"\x14", b"\x15", b"\x16")  # what begins with one of these bytes is TLS, not HTTP
REFUSED_METHODS = {"CONNECT": "it opens a tunnel", "TRACE": "its response returns the token"}  # and why
_CONTROL_CHARACTER = r"[\x00-\x08\x0a-\x1f\x7f-\x9f]"
_RESERVED_HEADERS = frozenset({
    "connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip


def chunk(data: bytes) -> bytes:
    """Return *data* as a chunk; b"" if it is empty, because an empty chunk is the last one (RFC 9112, 7.1)."""
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


def check_field(
    name: str, value: str, where: str, *, hint: str = "a name consists of letters, digits and dashes"
) -> str:
    """Return *name* if the user may set the header *name* to *value*; otherwise raise UsageError.

    *where* is what contains the header; *hint* says how to write a name.
    """
    if not re.fullmatch(TOKEN, name):
        raise UsageError(f"{where} is a header with an invalid name", hint=hint)
    if name.lower() in _RESERVED_HEADERS or name.lower().startswith("proxy-"):
        raise UsageError(f"the header {name} is set by xapi", hint="omit it")
    if name.lower() == "host" and not value.strip(" \t"):
        raise UsageError("the header Host cannot be removed", hint="omit it")
    if found := re.search(_CONTROL_CHARACTER, value):
        code = f"U+{ord(found[0]):04X}"
        raise UsageError(f"the header {name} has a control character ({code}) in its value", hint="remove it")
    from xapi_cli.system.render import encode_argument

    encode_argument(value, f"the value of the header {name}")
    return name


def with_defaults(headers: Sequence[Header], defaults: Sequence[Header]) -> list[Header]:
    """Return *headers* and those *defaults* that they neither set nor remove."""
    given = {name.lower() for name, _ in headers}
    return [*headers, *(default for default in defaults if default[0].lower() not in given)]


def parse_date(text: str) -> datetime:
    """Return the time in *text*, an HTTP date: UTC, also without a zone (RFC 9110, 5.6.7); raises ValueError."""
    from email.utils import parsedate_to_datetime

    try:
        found = parsedate_to_datetime(text)
    except OverflowError:
        raise ValueError from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)

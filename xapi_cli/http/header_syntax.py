"""The syntax of header sections (RFC 9112): the head of a request as bytes, and headers as text."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from xapi_cli.errors import UsageError

MAX_HEADER_SIZE = (
    100_000  # bytes, with informational responses; also the limit for each chunk header line and for all trailers
)
TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # RFC 9110, 5.6.2
_TOKEN = TOKEN.encode()
FIELD_LINE = re.compile(
    rb"(" + _TOKEN + rb"):[ \t]*"
    rb"([\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?|)[ \t]*\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"
TLS_RECORDS = (b"\x14", b"\x15", b"\x16")  # what begins with one of these bytes is TLS, not HTTP
REFUSED_METHODS = {"CONNECT": "it opens a tunnel", "TRACE": "its response returns the token"}  # and why
_TARGET = rb"[\x21-\x7e]+"
_VALUE = rb"(?:[^\x00\s]+(?:[ \t]+[^\x00\s]+)*)?"
_MAX_DIGITS = 20  # of a Content-Length
_CONTROL_CHARACTER = r"[\x00-\x08\x0a-\x1f\x7f-\x9f]"
_RESERVED_HEADERS = frozenset({
    "connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip


class RequestHead(NamedTuple):
    """The request line and headers as *data*; *length* is that of the body, or None if it is sent in chunks."""

    data: bytes
    length: int | None


def request_head(method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> RequestHead:
    """Return the head of a request; Host comes first (RFC 9110, 7.2).

    Raises ValueError, whose message has no data of the request, if a part of it is not valid.
    """
    verb = method.encode("ascii")
    are_valid = re.fullmatch(_TOKEN, verb) and re.fullmatch(_TARGET, target)
    hosts: list[bytes] = []
    rest = b""
    codings, lengths = [], set()
    for name, value in headers:
        are_valid = are_valid and re.fullmatch(_TOKEN, name) and re.fullmatch(_VALUE, value)
        line = b"%s: %s\r\n" % (name, value)
        match name.lower():
            case b"host":
                hosts, line = [*hosts, line], b""
            case b"transfer-encoding":
                codings.append(value.lower())
            case b"content-length":
                lengths.add(value)
        rest += line
    if not are_valid:
        raise ValueError("a character that HTTP does not allow")
    if len(hosts) != 1:
        raise ValueError("no Host header, or more than one")
    if codings not in ([], [b"chunked"]) or len(lengths) > 1:
        raise ValueError("an ambiguous body length")
    length = lengths.pop() if lengths else b"0"
    if not length.isdigit() or len(length) > _MAX_DIGITS:
        raise ValueError("not a valid Content-Length")
    head = b"%s %s HTTP/1.1\r\n%s%s\r\n" % (verb, target, hosts[0], rest)
    return RequestHead(head, None if codings else int(length))


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
    from xapi_cli.system.encoding import encode_argument

    encode_argument(value, f"the value of the header {name}")
    return name


def joined_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by lowercase name; the values of a repeated header are joined by `, ` (RFC 9110, 5.3)."""
    joined: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("utf-8", "backslashreplace")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined

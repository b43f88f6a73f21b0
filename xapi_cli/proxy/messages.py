"""The heads of forwarded requests and responses, and the responses of the proxy itself."""

import json
import re
from collections.abc import Sequence
from http.client import responses

from xapi_cli.http import authorization, urls
from xapi_cli.http.connection import Route
from xapi_cli.http.response_parser import ResponseHead
from xapi_cli.proxy.request_parser import RequestHead
from xapi_cli.request.calls import ENCODING, Call, Header, encoded
from xapi_cli.request.items import with_defaults
from xapi_cli.tokens import Token

# RFC 9110, section 7.6.1, and RFC 9112, appendix C.2.2; they concern one connection only.
_HOP_BY_HOP = frozenset(
    {
        b"connection", b"http2-settings", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
        b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
_AUTHORIZATION = authorization.NAME.lower().encode("ascii")
_NOT_FORWARDED = _HOP_BY_HOP | {_AUTHORIZATION, b"content-length", b"cookie", b"cookie2", b"expect", b"host"}
_NOT_RETURNED = _HOP_BY_HOP | {b"content-length", b"set-cookie", b"set-cookie2"}
_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_LINK = b"link"
_WITH_URL = frozenset({b"location", b"content-location", _LINK})
_TARGET = re.compile(r"(?<=<)[^<>]*(?=>)")  # of a link (RFC 8288, section 3)
# the header lines of a client that sends identical requests
_FORWARDED: dict[tuple[RequestHead, Sequence[Header]], bytes] = {}
_MAX_CACHED = 256


def request_head(head: RequestHead, call: Call, route: Route, token: Token | None) -> bytes:
    """Return the request line and headers with which *head* is forwarded as *call* with *token*."""
    server, path = urls.split_server(call.url)
    target = call.url if route.is_forwarded else path
    lines = _FORWARDED.get(key := (head, call.headers))
    if lines is None:
        if len(_FORWARDED) >= _MAX_CACHED:
            _FORWARDED.clear()
        lines = _FORWARDED[key] = _forwarded_lines(*key)
    start = f"{head.method} {target} HTTP/1.1\r\nHost: {server.partition('//')[2]}\r\n".encode("ascii")
    own = [b"%s: %s\r\n" % header for header in authorization.headers(token, route)]
    return b"".join((start, lines, *own, b"\r\n"))


def _forwarded_lines(head: RequestHead, defaults: Sequence[Header]) -> bytes:
    """Return the header lines of *head* that concern the API, after those *defaults* that they do not replace."""
    dropped = _NOT_FORWARDED | head.listed(b"connection")
    fields = zip(head.names, head.fields, strict=True)
    own = [(sent.decode(), value.decode(*ENCODING)) for sent, (name, value) in fields if name not in dropped]
    lines = [b"%s: %s\r\n" % header for header in encoded(with_defaults(own, defaults))]
    if head.length is None:
        lines.append(_CHUNKED)
    elif head.length or head.get(b"content-length") is not None:
        lines.append(b"Content-Length: %d\r\n" % head.length)
    return b"".join(lines)


def response_head(head: ResponseHead, request: RequestHead, origin: str, *, closes: bool) -> tuple[bytes, bool]:
    """Return the status line and headers for the client, and whether the body is sent in chunks.

    URLs of *origin*, the API's, lead to the proxy then. With *closes*, the connection ends after the response.
    """
    dropped: frozenset[bytes] | set[bytes] = _NOT_RETURNED
    if named := head.headers.get(b"connection"):
        dropped = dropped | {each.strip().lower() for each in named.split(b",")}
    lines = [b"HTTP/1.1 %d %s\r\n" % (head.status, head.reason)]
    for name, value in head.raw_headers:
        lowered = name.lower()
        if lowered not in dropped:
            sent = _rewritten(value, origin, request, has_links=lowered == _LINK) if lowered in _WITH_URL else value
            lines.append(b"%s: %s\r\n" % (name, sent))
    framing = _framing(head, request)
    lines.append(framing)
    if closes or (not framing and ends_with_connection(head, request)):
        lines.append(b"Connection: close\r\n")
    elif request.is_http_1_0:
        lines.append(b"Connection: keep-alive\r\n")
    lines.append(b"\r\n")
    return b"".join(lines), framing == _CHUNKED


def _framing(head: ResponseHead, request: RequestHead) -> bytes:
    """Return the header line that delimits the body; for a HEAD request, with the length of what a GET would return."""
    has_length = b"content-length" in head.headers and b"transfer-encoding" not in head.headers
    if has_length and head.status != 204:
        return b"Content-Length: %d\r\n" % head.declared_length()
    return _CHUNKED if head.has_body(request.method) and not request.is_http_1_0 else b""


def ends_with_connection(head: ResponseHead, request: RequestHead) -> bool:
    """Return whether the client recognizes the end of the body by that of the connection."""
    return head.has_body(request.method) and not _framing(head, request)


def _rewritten(value: bytes, origin: str, request: RequestHead, *, has_links: bool) -> bytes:
    """Return *value*, a URL or links, with the API's *origin* replaced by that of the proxy, as the client knows it."""
    own = f"http://{request.get(b'host') or ''}"

    def rewritten(reference: str) -> str:
        rest = urls.after_origin(reference.strip(), origin)
        return reference if rest is None else own + rest

    text = value.decode("latin-1")
    return (_TARGET.sub(lambda found: rewritten(found[0]), text) if has_links else rewritten(text)).encode("latin-1")


def own_response(status: int, kind: str, message: str, *, closes: bool, has_body: bool = True) -> bytes:
    """Return a response of the proxy itself, whose body is a JSON object with *kind* and *message*."""
    body = json.dumps({"error": kind, "message": f"xapi proxy: {message}"}).encode() + b"\n"
    lines = [
        f"HTTP/1.1 {status} {responses[status]}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
    ]
    if status == 401:
        lines.append('WWW-Authenticate: Bearer realm="xapi proxy"')
    if closes:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (body if has_body else b"")

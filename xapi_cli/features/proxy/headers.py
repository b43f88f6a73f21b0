"""The headers of forwarded requests and responses, and the responses of the proxy itself."""

import json
import re
from collections.abc import Sequence
from http.client import responses

from xapi_cli.features.proxy.incoming import Refusal, RequestHead
from xapi_cli.http import authorization, urls
from xapi_cli.http.header_syntax import Header, with_defaults
from xapi_cli.http.messages import Headers, Response
from xapi_cli.http.send import ENCODING

# RFC 9110, section 7.6.1, and RFC 9112, appendix C.2.2; they concern one connection only.
_HOP_BY_HOP = frozenset(
    {
        b"connection", b"http2-settings", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
        b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
_AUTHORIZATION = authorization.NAME.lower().encode("ascii")
_NOT_FORWARDED = _HOP_BY_HOP | {_AUTHORIZATION, b"content-length", b"cookie", b"expect", b"host"}
_NOT_RETURNED = _HOP_BY_HOP | {b"content-length", b"set-cookie"}
_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_URLS = {b"location": re.compile(rb".+"), b"link": re.compile(rb"(?<=<)[^<>]*(?=>)")}  # RFC 8288, section 3
_ADDED_BY_XAPI = ("Accept", "Accept-Encoding", "User-Agent")  # unless the client, or the profile, sends them


def forwarded(head: RequestHead, defaults: Sequence[Header]) -> list[Header]:
    """Return the headers of *head* that concern the API, and those *defaults* that they do not replace.

    The headers that xapi would add are removed: the API gets what the client has sent.
    """
    dropped = _NOT_FORWARDED | _options(head.headers)
    own: list[Header] = [
        (name.decode(), value.decode(*ENCODING)) for name, value in head.headers.raw if name.lower() not in dropped
    ]
    found = with_defaults(own, defaults)
    names = {name.lower() for name, _ in found}
    return found + [(name, None) for name in _ADDED_BY_XAPI if name.lower() not in names]


def response_start(response: Response, request: RequestHead, origin: str, *, closes: bool) -> tuple[bytes, bool]:
    """Return the status line and headers of *response* for the client, and whether its body is chunked.

    URLs of *origin*, the API's, lead to the proxy in it. If it *closes* the connection, that is announced.
    """

    def rewritten(found: re.Match[bytes]) -> bytes:
        rest = urls.after_origin(found[0].decode("latin-1").strip(), origin)
        return found[0] if rest is None else f"http://{request.headers.get('Host')}{rest}".encode("latin-1")

    dropped = _NOT_RETURNED | _options(response.headers)
    lines = [b"HTTP/1.1 %d %s\r\n" % (response.status, response.reason)]
    for name, value in response.headers.raw:
        if (lowered := name.lower()) not in dropped:
            sent = _URLS[lowered].sub(rewritten, value) if lowered in _URLS else value
            lines.append(b"%s: %s\r\n" % (name, sent))
    framing = _framing(response, request)
    lines += [framing, b"Connection: close\r\n" if closes else b"", b"\r\n"]
    return b"".join(lines), framing == _CHUNKED


def _options(headers: Headers) -> set[bytes]:
    """Return the names in the header Connection, which concern the connection only."""
    return {each.strip().lower().encode() for each in headers.get("Connection").split(",")}


def _framing(response: Response, request: RequestHead) -> bytes:
    """Return the header line that delimits the body; for a HEAD request, with the length of what a GET would return."""
    length = response.headers.get("Content-Length")
    if length and not response.headers.get("Transfer-Encoding") and response.status != 204:
        return b"Content-Length: %d\r\n" % int(length.partition(",")[0])  # the transport has checked it
    has_no_body = request.method == "HEAD" or response.status in (204, 304)
    return b"" if has_no_body or request.is_http_1_0 else _CHUNKED  # HTTP/1.0: the end of the connection


def own_response(refusal: Refusal, *, closes: bool, has_body: bool) -> bytes:
    """Return the response of the proxy itself with *refusal*, as a JSON object."""
    body = json.dumps({"error": refusal.kind, "message": f"xapi proxy: {refusal.message}"}).encode() + b"\n"
    lines = [
        f"HTTP/1.1 {refusal.status} {responses[refusal.status]}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
    ]
    if refusal.status == 401:
        lines.append('WWW-Authenticate: Bearer realm="xapi proxy"')
    if closes:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (body if has_body else b"")

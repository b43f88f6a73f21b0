"""Send the requests of an `httpx.Client` over the transport of xapi: those of logins and of the library.

The transport of httpx limits neither the size of the response headers, nor the time in which they arrive, nor DNS
lookups, nor informational responses; it accepts a truncated gzip body; and it delivers bytes that a server sends after
a response as the response to the next request.
"""

from collections.abc import Iterator

import httpx

from xapi_cli.http import urls
from xapi_cli.http.messages import Headers, Request, Response
from xapi_cli.http.timeouts import DEADLINE_NAME, Timeouts
from xapi_cli.http.transport import Transport


class HttpxTransport(httpx.BaseTransport):
    """Send requests of httpx over *transport*.

    A request carries its timeouts in the extension `timeout` of httpx. More extensions: `deadline`, a time of the
    monotonic clock that limits the whole request, which messages call `deadline_name`, and `login`, whether it requests
    a token. A response has the extensions `tls`, the version of TLS, and `response`, what the transport has returned.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the response to *request* with a decoded body that is not read yet.

        Raises UsageError, NetworkError or TimeoutExpired.
        """
        return converted_response(self._transport.send(_converted(request)))

    def close(self) -> None:
        """Close all connections; operations of other threads on them fail."""
        self._transport.close()


class _Stream(httpx.SyncByteStream):
    """The decoded body of *response*; iteration raises NetworkError if it is truncated."""

    def __init__(self, response: Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        return self._response.decoded()

    def close(self) -> None:
        self._response.close()


def converted_response(response: Response) -> httpx.Response:
    """Return *response* as one of httpx, with a decoded body that is not read yet."""
    headers = response.headers.raw
    if response.request.method != "HEAD" and "Content-Encoding" in response.headers:
        removed = (b"content-encoding", b"content-length")
        headers = [header for header in headers if header[0].lower() not in removed]
    return httpx.Response(
        response.status,
        headers=headers,
        stream=_Stream(response),
        extensions={
            "http_version": b"HTTP/" + response.version,
            # that of a login may repeat the password, and httpx logs it
            "reason_phrase": b"" if response.request.is_login else response.reason,
            "tls": response.tls,
            "response": response,
        },
    )


def timeouts_of(request: httpx.Request) -> Timeouts:
    """Return the timeouts that the extensions of *request* set; a client always sets `timeout`."""
    seconds, extensions = request.extensions["timeout"], request.extensions
    deadline, name = extensions.get("deadline"), extensions.get("deadline_name", DEADLINE_NAME)
    return Timeouts(seconds.get("connect"), seconds.get("read"), seconds.get("write"), deadline, name)


def _converted(request: httpx.Request) -> Request:
    url = str(request.url)
    return Request(
        request.method,
        url,
        urls.origin(url),
        request.url.raw_path,
        Headers(request.headers.raw),
        request.stream,  # type: ignore[arg-type]  # the client rejects async streams
        None if "Transfer-Encoding" in request.headers else int(request.headers.get("Content-Length", "0")),
        is_replayable=isinstance(request.stream, httpx.ByteStream),
        timeouts=timeouts_of(request),
        is_login=bool(request.extensions.get("login")),
    )

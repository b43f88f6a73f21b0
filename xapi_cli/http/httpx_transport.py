"""xapi's transport for httpx, which the library uses.

The transport of httpx does not limit the size of the response headers, the time in which they arrive, DNS lookups, or
informational responses.
"""

from collections.abc import Iterable, Iterator

import httpx

from xapi_cli.errors import UsageError
from xapi_cli.http.messages import Headers, Request, Response
from xapi_cli.http.timeouts import Timeouts
from xapi_cli.http.transport import BodyConsumed, Transport
from xapi_cli.http.urls import DEFAULT_PORTS


class HttpxTransport(httpx.BaseTransport):
    """Send requests of httpx over *transport*.

    Each request carries its timeouts, in the `timeout` extension of httpx. The extension `deadline`, a time of the
    monotonic clock, limits the whole request, and messages call that limit `deadline_name`; `attempt` is the number of
    the attempt, for the log. A response has the extensions `tls`, the version of TLS; `exposed`, whether others can
    read the connection; and `discard`, a function that ends the body.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the response to *request* with a body that is not read yet.

        Raises UsageError, NetworkError or TimeoutExpired, and httpx.StreamConsumed if *request* has to be sent again
        and its body cannot be read again.
        """
        try:
            response = self._transport.send(_request(request))
        except BodyConsumed as error:
            raise error.args[0] from None
        return httpx.Response(
            response.status,
            headers=response.raw_headers,
            stream=_Stream(response),
            extensions={
                "http_version": b"HTTP/" + response.version,
                "reason_phrase": response.reason,
                "tls": response.tls,
                "exposed": response.is_exposed,
                "discard": response.discard,
            },
        )

    def close(self) -> None:
        """Close all connections; operations of other threads on them fail."""
        self._transport.close()


class _Body:
    """The body of a request: the *stream* of httpx."""

    def __init__(self, stream: Iterable[bytes]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._stream
        except httpx.StreamConsumed as error:
            raise BodyConsumed(error) from None


class _Stream(httpx.SyncByteStream):
    """The body of *response*."""

    def __init__(self, response: Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        return self._response.chunks()

    def close(self) -> None:
        self._response.close()


def _request(request: httpx.Request) -> Request:
    url, extensions = request.url, request.extensions
    if url.scheme not in DEFAULT_PORTS or not url.raw_host:
        raise UsageError("the URL is neither http nor https, or has no host")
    port = DEFAULT_PORTS[url.scheme] if url.port is None else url.port
    if not 0 < port < 65_536:
        raise UsageError("the URL has a port outside 1-65535")
    seconds = extensions.get("timeout") or {}
    return Request(
        request.method,
        str(url),
        (url.scheme, url.raw_host.decode("ascii"), port),
        url.netloc,
        url.raw_path,
        Headers(request.headers.raw),
        _Body(request.stream),  # type: ignore[arg-type]  # the client rejects async streams
        is_replayable=isinstance(request.stream, httpx.ByteStream),
        timeouts=Timeouts(
            connect=seconds.get("connect"),
            read=seconds.get("read"),
            write=seconds.get("write"),
            deadline=extensions.get("deadline"),
            deadline_name=extensions.get("deadline_name") or "--max-time",
        ),
        attempt=extensions.get("attempt", 1),
    )

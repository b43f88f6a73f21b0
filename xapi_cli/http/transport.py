"""Send the requests of httpx over HTTP/1.1 with limits on memory and time, however the server behaves.

The transport of httpx does not limit the size of the response headers, the time
in which they arrive, DNS lookups, or informational responses.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import httpx

from xapi_cli.errors import NetworkError, UsageError
from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.dial import Dialer
from xapi_cli.http.http1 import BlockingExchange, may_resend, request_event
from xapi_cli.http.pool import ConnectionPool, Lender
from xapi_cli.http.timeouts import Timeouts

if TYPE_CHECKING:
    import ssl

    from xapi_cli.http.proxies import Proxy

_DEFAULT_PORTS = {"http": 80, "https": 443}


def _no_proxy(scheme: str, host: str, port: int) -> None:  # the signature of the *proxy* parameter
    return None


def _ignore_trace(line: str) -> None:
    pass


def _do_nothing() -> None:
    pass


def _show_nothing(host: str) -> AbstractContextManager[object]:
    return nullcontext()


class Transport(httpx.BaseTransport):
    """A thread-safe transport that keeps connections open between requests.

    *tls* is that of `Dialer`.
    *proxy* returns the proxy for a scheme, host and port, or None. *trace* is
    called with a line about each connection. *waiting* returns a context manager
    for the wait until the response headers of a host arrive. *lender* is asked for
    a connection before one is opened.

    Each request carries its timeouts. In the `timeout` extension of httpx, in
    seconds, `connect` covers everything up to the completed TLS handshake, `write`
    each wait while sending, and `read` the wait for the complete response headers
    and then each wait for more of the body. The extension `deadline`, a time of
    the monotonic clock, limits the whole request. The extension `exposed` is a
    function that is called before the request is sent over a connection that
    others can read; the extension `exposed` of the response is True then.
    """

    def __init__(
        self,
        tls: "Callable[[], ssl.SSLContext]",
        proxy: "Callable[[str, str, int], Proxy | None]" = _no_proxy,
        trace: Callable[[str], None] | None = None,
        waiting: Callable[[str], AbstractContextManager[object]] | None = None,
        lender: Lender | None = None,
    ) -> None:
        self._proxy = proxy
        self._waiting = waiting or _show_nothing
        self._trace = trace or _ignore_trace
        self._dialer = Dialer(tls, self._trace)
        self._pool: ConnectionPool[Route] = ConnectionPool()
        self._lender = lender

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the response to *request* with a body that is not read yet.

        Raises UsageError, NetworkError or TimeoutExpired.
        """
        route = self._route(request.url)
        with self._waiting(route.host):
            return self._exchange(request, route)

    def _exchange(self, request: httpx.Request, route: Route) -> httpx.Response:
        event = request_event(request, route)
        timeouts = Timeouts.of(request.extensions)
        first_error = None
        connection = self._pool.acquire(route)
        if connection is None:
            is_replayable = may_resend(event) and isinstance(request.stream, httpx.ByteStream)
            connection = self._borrow(route, request, timeouts, new=not is_replayable)
        if connection and connection.is_used:
            self._trace(f"* using the open connection to {route}")
            exchange = BlockingExchange(connection, request, event, timeouts)
            try:
                return self._response(exchange, connection)
            except NetworkError as error:
                if not exchange.may_resend:
                    raise
                self._trace("* the server had closed that connection")
                first_error, connection = error, None
        if connection is None:
            connection = self._dialer.open(route, timeouts.start_wait(timeouts.connect, f"no connection to {route}"))
            self._pool.add(connection)
        try:
            return self._response(BlockingExchange(connection, request, event, timeouts), connection)
        except httpx.StreamConsumed:
            if first_error is None:
                raise
            raise first_error from None  # the request body is a stream that can be read only once

    def close(self) -> None:
        """Close all connections; operations of other threads on them fail."""
        self._pool.close()
        if self._lender is not None:
            self._lender.close()

    def _borrow(self, route: Route, request: httpx.Request, timeouts: Timeouts, *, new: bool) -> Connection | None:
        if self._lender is None:
            return None
        wait = timeouts.start_wait(timeouts.connect, f"no connection to {route}")
        wait.remaining()  # raises TimeoutExpired, as opening a connection would
        authorization = request.headers.get("Authorization", "")
        connection = self._lender.borrow(route, authorization, wait, self._trace, new=new)
        if connection is not None:
            self._pool.add(connection)
        return connection

    def _route(self, url: httpx.URL) -> Route:
        if url.scheme not in _DEFAULT_PORTS or not url.raw_host:
            raise UsageError("the URL is neither http nor https, or has no host")
        host = url.raw_host.decode("ascii")
        port = _DEFAULT_PORTS[url.scheme] if url.port is None else url.port
        if not 0 < port < 65_536:
            raise UsageError("the URL has a port outside 1-65535")
        return Route(url.scheme, host, port, self._proxy(url.scheme, host, port))

    def _response(self, exchange: BlockingExchange, connection: Connection) -> httpx.Response:
        try:
            is_exposed = connection.is_exposed
            if is_exposed:
                exchange.request.extensions.get("exposed", _do_nothing)()
            head = exchange.send()
        except BaseException:
            self._pool.discard(connection)
            raise
        body = _Body(exchange, lambda: self._release(exchange, connection))
        return httpx.Response(
            head.status,
            headers=head.raw_headers,
            stream=body,
            extensions={
                "http_version": b"HTTP/" + head.version,
                "reason_phrase": head.reason,
                "tls": connection.tls,
                "exposed": is_exposed,
                "proxy": str(connection.route.proxy) if connection.route.proxy else None,
                "discard": body.discard,
            },
        )

    def _release(self, exchange: BlockingExchange, connection: Connection) -> None:
        if exchange.end():
            self._pool.release(connection.route, connection)
        else:
            self._pool.discard(connection)


class _Body(httpx.SyncByteStream):
    """The body of a response; *release* is called once, when reading ends."""

    def __init__(self, exchange: BlockingExchange, release: Callable[[], None]) -> None:
        self._exchange = exchange
        self._release = release
        self._has_ended = False

    def __iter__(self) -> Iterator[bytes]:
        while (data := self._read()) is not None:
            yield data

    def discard(self) -> None:
        """Close the body; discard its rest if that is quick, so that the connection can be reused."""
        self._end(self._exchange.discard_body)

    def close(self) -> None:
        """Close the body; discard only data that has arrived already."""
        self._end(lambda: self._exchange.discard_body(0))

    def _read(self) -> bytes | None:
        if self._has_ended:
            return None
        data = None
        try:
            data = self._exchange.read_body()
        finally:
            if data is None:
                self._end()
        return data

    def _end(self, discard: Callable[[], None] = lambda: None) -> None:
        if not self._has_ended:
            self._has_ended = True
            try:
                discard()
            finally:
                self._release()

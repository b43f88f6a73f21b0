"""Send requests over HTTP/1.1 with limits on memory and time, however the server behaves."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from xapi_cli.errors import NetworkError, TimeoutExpired, UsageError, XapiError
from xapi_cli.http import authorization
from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.dial import Dialer
from xapi_cli.http.exchange import DISCARD_TIMEOUT, MAX_DISCARDED, Exchange
from xapi_cli.http.header_syntax import LAST_CHUNK, RequestHead, chunk, request_head
from xapi_cli.http.messages import Request, Response
from xapi_cli.http.pool import ConnectionPool
from xapi_cli.http.response_parser import ResponseHead
from xapi_cli.http.timeouts import Timeouts, Wait
from xapi_cli.system.redact import redact_url

if TYPE_CHECKING:
    import ssl

    from xapi_cli.http.proxies import Proxy
    from xapi_cli.http.request_log import RequestLog


class BodyConsumed(Exception):
    """The body of a request cannot be iterated again; the argument is the exception that says so."""


class Transport:
    """A thread-safe transport; if it *keeps_open*, connections stay open between requests.

    *timeout*, in seconds, limits each wait of a request that does not carry its own timeouts: the wait for a
    connection, up to the completed TLS handshake, each wait while sending, the wait for the complete response headers,
    and then each wait for more of the body. *tls* is that of `Dialer`. *proxy* returns the proxy for a scheme, host and
    port, or None. *trace* is called with a line about each connection. *waiting* returns a context manager for the wait
    until the response headers of a host arrive. *on_request* is called with each request before it is sent,
    *on_response* with its response. *log* gets each request that is sent.
    """

    def __init__(
        self,
        tls: "Callable[[], ssl.SSLContext]",
        proxy: "Callable[[str, str, int], Proxy | None]" = lambda scheme, host, port: None,
        trace: Callable[[str], None] | None = None,
        waiting: Callable[[str], AbstractContextManager[object]] = nullcontext,
        log: "RequestLog | None" = None,
        *,
        timeout: float | None = None,
        keeps_open: bool = True,
        on_request: Callable[[Request], None] | None = None,
        on_response: Callable[[Response], None] | None = None,
    ) -> None:
        self._proxy = proxy
        self._waiting, self._trace = waiting, trace
        self._dialer = Dialer(tls, trace)
        self._pool: ConnectionPool[Route] = ConnectionPool(limit=None if keeps_open else 0)
        self._log = log
        self._timeout, self._on_request, self._on_response = timeout, on_request, on_response

    def send(self, request: Request) -> Response:
        """Return the response to *request* with a body that is not read yet.

        Raises UsageError, NetworkError, TimeoutExpired or BodyConsumed.
        """
        if self._on_request is not None:
            self._on_request(request)
        started = time.monotonic()
        scheme, host, port = request.server
        route = Route(scheme, host, port, self._proxy(scheme, host, port))
        try:
            with self._waiting(host):
                response = self._exchange(request, route, started)
        except (NetworkError, TimeoutExpired) as error:
            _record(error, request)
            raise
        if self._on_response is not None:
            self._on_response(response)
        return response

    def _exchange(self, request: Request, route: Route, started: float) -> Response:
        head = _request_head(request, route)
        limit = self._timeout
        timeouts = request.timeouts or Timeouts(limit, limit, limit, request.deadline, request.deadline_name)
        first_error = None
        connection = self._kept_connection(request, route)
        if connection and connection.kind:
            if self._trace is not None:
                self._trace(f"* using the open connection to {route}")
            exchange = _BlockingExchange(connection, request, head, timeouts)
            try:
                return self._response(exchange, connection, started)
            except NetworkError as error:
                if not exchange.record.may_resend:
                    raise
                if self._trace is not None:
                    self._trace("* the server had closed that connection")
                first_error, connection = error.with_traceback(None), None  # it refers to this frame
        if connection is None:
            connection = self._dialer.open(route, Wait(timeouts, timeouts.connect, lambda: f"no connection to {route}"))
            self._pool.add(connection)
        try:
            return self._response(_BlockingExchange(connection, request, head, timeouts), connection, started)
        except BodyConsumed:
            if first_error is None:
                raise
            raise first_error from None

    def close(self) -> None:
        """Close all connections; operations of other threads on them fail."""
        self._pool.close()

    def _kept_connection(self, request: Request, route: Route) -> Connection | None:
        """Return an open connection, or None; a login gets a new one, because the server may serve one at a time."""
        if not request.is_login:
            return self._pool.acquire(route)
        self._pool.close_unused()
        return None

    def _response(self, exchange: "_BlockingExchange", connection: Connection, started: float) -> Response:
        is_exposed = connection.is_exposed
        try:
            if is_exposed:
                exchange.request.exposed()
            if self._log is not None:
                self._log.begin(exchange.record)
            head = exchange.send()
        except BaseException:
            self._pool.discard(connection)
            if self._log is not None:
                self._log.end(exchange.record)
            raise
        return Response(
            exchange.request,
            head.status,
            head.raw_headers,
            _ResponseBody(exchange, partial(self._release, exchange, connection)),
            started=started,
            reason=head.reason,
            version=head.version,
            tls=connection.tls,
            is_exposed=is_exposed,
            abort=connection.abort,
        )

    def _release(self, exchange: "_BlockingExchange", connection: Connection) -> None:
        if exchange.record.end(connection):
            self._pool.release(connection.route, connection)
        else:
            self._pool.discard(connection)
        if self._log is not None:
            self._log.end(exchange.record)


def open_transport(
    *,
    ca_bundle: str | None,
    environ: Mapping[str, str],
    trace: Callable[[str], None] | None = None,
    waiting: Callable[[str], AbstractContextManager[object]] = nullcontext,
    log: "RequestLog | None" = None,
    timeout: float | None = None,
    keeps_open: bool = True,
    on_request: Callable[[Request], None] | None = None,
    on_response: Callable[[Response], None] | None = None,
) -> Transport:
    """Return a transport that trusts the CAs in *ca_bundle* and uses the proxies in *environ*.

    Both are read when a connection first needs them. The other parameters are those of
     `Transport`, which adds no credentials and no cookies, and follows no redirects.
    """

    def context() -> "ssl.SSLContext":
        from xapi_cli.http import tls

        return tls.create_context(ca_bundle, environ)

    def proxy_for(scheme: str, host: str, port: int) -> "Proxy | None":
        if "_proxy" not in "\n".join(environ).lower():  # usually; it takes less than importing the module
            return None
        from xapi_cli.http import proxies

        return proxies.proxy_for(scheme, host, port, environ)

    return Transport(
        context,
        proxy_for,
        trace,
        waiting,
        log,
        timeout=timeout,
        keeps_open=keeps_open,
        on_request=on_request,
        on_response=on_response,
    )


class _ResponseBody:
    """The body of a response; *release* is called once, when reading ends."""

    def __init__(self, exchange: "_BlockingExchange", release: Callable[[], None]) -> None:
        self._exchange = exchange
        self._release = release
        self._has_ended = False
        self._discard_timeout = DISCARD_TIMEOUT
        self._held: list[bytes] = []
        self._errors: list[NetworkError] = []  # the one that follows what is held

    def __iter__(self) -> Iterator[bytes]:
        while self._held:
            yield self._held.pop(0)
        while self._errors:
            raise self._errors.pop()
        while not self._has_ended:
            data = None
            try:
                data = self._exchange.read_body()
            except (NetworkError, TimeoutExpired) as error:
                _record(error, self._exchange.request)
                raise
            finally:
                if data is None:
                    self._end()
            if data is not None:
                yield data

    def hold(self) -> bool:
        """Read the rest of the body into memory if it is short and arrives soon; return whether it has ended."""
        if not self._has_ended:
            self._discard_timeout = 0.0  # its time is used here
            try:
                if self._exchange.hold_body(self._held):
                    self._end()
            except NetworkError as error:
                _record(error, self._exchange.request)
                self._errors.append(error.with_traceback(None))
                self._exchange.record.failure = None  # the body may not be needed
                self.discard()
        return self._has_ended

    def discard(self) -> None:
        """Close the body; discard its rest if that is quick, so that the connection can be reused."""
        self._end(lambda: self._exchange.discard_body(self._discard_timeout))

    def close(self) -> None:
        """Close the body; discard only data that has arrived already."""
        self._held.clear()
        self._errors.clear()
        self._end(lambda: self._exchange.discard_body(0))

    def _end(self, discard: Callable[[], None] | None = None) -> None:
        if not self._has_ended:
            self._has_ended = True
            try:
                if discard is not None:
                    discard()
            finally:
                self._release()


class _BlockingExchange:
    """Send *request*, with the request line and headers *head*, over *connection* and read the response."""

    def __init__(self, connection: Connection, request: Request, head: RequestHead, timeouts: Timeouts) -> None:
        self._connection, self.request, self._request_head, self._timeouts = connection, request, head, timeouts
        self.record = Exchange(
            connection.route,
            request.method,
            is_reused=connection.kind is not None,
            over_tls=connection.tls is not None,
            is_safe_to_resend=request.is_safe_to_resend,
        )
        self.record.attempt, self.record.is_login = request.attempt, request.is_login

    def send(self) -> ResponseHead:
        """Send the request and return the status line and headers of its response.

        The response may arrive before the request is complete. Raises NetworkError
        or TimeoutExpired.
        """
        if self.record.is_reused and not self._connection.is_idle():
            raise NetworkError(f"{self._connection.route} closed the connection or sent unsolicited data")
        try:
            self._send_request()
            wait = Wait(self._timeouts, self._timeouts.read, self.record.awaited)
            while self.record.head is None:
                self._receive(wait)
        except TimeoutExpired as error:
            self.record.record_sent(error)
            raise
        return self.record.head

    def read_body(self) -> bytes | None:
        """Return the next part of the response body, None at its end; raises NetworkError or TimeoutExpired."""
        wait = None
        try:
            while not self.record.has_response:
                if block := self.record.body():
                    return block
                if not self.record.has_response:
                    wait = wait or Wait(self._timeouts, self._timeouts.read, self.record.awaited)
                    self._receive(wait)
        except TimeoutExpired as error:
            self.record.record_sent(error)
            raise
        return None

    def hold_body(self, blocks: list[bytes]) -> bool:
        """Append the rest of the response body to *blocks*, within the limits of a body that is not needed.

        Return whether it has ended; raises NetworkError.
        """
        wait, size = None, 0
        try:
            while not self.record.has_response and size < MAX_DISCARDED:
                if block := self.record.body():
                    blocks.append(block)
                    size += len(block)
                elif not self.record.has_response:
                    wait = wait or Wait(self._timeouts, DISCARD_TIMEOUT, lambda: "no end")
                    self._receive(wait)
        except TimeoutExpired:
            pass  # it can be read later
        return self.record.has_response

    def discard_body(self, seconds: float) -> None:
        """Discard the rest of the response body, within *seconds*, as far as that keeps the connection."""
        wait = Wait(self._timeouts, seconds, lambda: "no end")
        self.record.discard()
        try:
            while not self.record.has_response:
                self._receive(wait)
        except TimeoutExpired:
            self.record.expire()

    def _send_request(self) -> None:
        length = self._request_head.length
        self._send(self._request_head.data, is_last=length == 0)
        size = 0
        for block in self.request.body:
            # It could not be detected that the source of a body without a declared length yields less the second time.
            self.record.is_replayable = length is not None
            size += len(block)
            if length is not None and size > length:
                raise self._body_changed()
            self._send(block if length is not None else chunk(block), is_last=size == length)
            if self.record.stops_sending:
                return
        if length is None:
            self._send(LAST_CHUNK, is_last=True)
        elif size < length:
            raise self._body_changed()

    def _send(self, data: bytes, *, is_last: bool = False) -> None:
        """Send *data*, the request line and headers in one call: each send(2) is a packet."""
        self.record.offer(data, is_last=is_last)
        wait = None
        while self.record.is_sending:
            if self.record.head is None:
                self._receive(None)
                if self.record.stops_sending:
                    break
            try:
                count = self._connection.send_now(self.record.unsent)
            except OSError:
                self.record.cannot_send()
                break
            self.record.sent(count)
            if count:
                wait = None
            else:
                wait = wait or Wait(self._timeouts, self._timeouts.write, self.record.awaited)
                self._wait_to_send(wait)

    def _wait_to_send(self, wait: Wait) -> None:
        try:
            self._connection.wait(wait, receiving=self.record.head is None, sending=True)
        except TimeoutExpired:
            if not self.record.expire():
                raise

    def _receive(self, wait: Wait | None) -> None:
        """Receive data; without *wait*, only what has arrived."""
        data: bytes | OSError | None
        try:
            data = self._connection.receive(wait) if wait else self._connection.receive_now()
        except OSError as error:
            data = error.with_traceback(None)  # it refers to this frame, and the frame to the error
        if data is not None:
            self.record.receive(data)

    def _body_changed(self) -> XapiError:
        return XapiError("the request's body changed while it was sent", hint="send a copy of the data")


def _record(error: XapiError, request: Request) -> None:
    """Record in *error* that it concerns *request*."""
    error.concerning(method=request.method, url=redact_url(request.url.partition("?")[0]))


def _request_head(request: Request, route: Route) -> RequestHead:
    """Return the request line and headers of *request* for *route*; raises UsageError if they are not valid HTTP."""
    target, headers = request.target, request.headers.raw
    if route.is_forwarded:
        target = b"http://" + request.authority + target
        headers = [*headers, *authorization.headers(None, route)]
    try:
        if request.method != "CONNECT":
            return request_head(request.method, target, headers)
    except ValueError:  # UnicodeError is one
        pass  # raising after the handler keeps what is invalid out of a traceback
    raise UsageError(
        "the request's method, URL or headers are not valid in HTTP",
        hint="check them for characters that HTTP does not allow",
    )

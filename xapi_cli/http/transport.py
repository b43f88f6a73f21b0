"""Send requests over HTTP/1.1 with limits on memory and time, however the server behaves.

The invariants of an exchange, and why they hold:

- **A connection carries another request only after a complete exchange.** Bytes of a response that is not complete, or
  that are left over, would be parsed as the response to the next request; a request that is not complete would be
  continued by the next one. So a connection is kept only if all of the request was sent, and all of the response was
  received, with no byte after it. Everything else costs a new connection, and nothing more.
- **A response may arrive before the request is sent.** So it is looked for before each write but the first one. After a
  status that is not a success, the rest of the request is not sent (RFC 9112, section 9.5). After a success, sending
  goes on: the server may read the request to its end.
- **A failure to send is not the result.** The server may have sent a response before it closed the connection;
  otherwise, receiving reports the cause.
- **A request is sent again only if that changes nothing.** If the server has just closed a kept connection, no byte of
  a response arrives. The request is sent again if the connection was found closed before its first byte, or if its
  method is idempotent (RFC 9110, section 9.2.2). What was passed to the socket counts as sent, whatever it reports:
  TLS may have sent a part of it. This is not a retry, and is not counted.
- **A body that is not needed is read only to keep the connection**: for `DISCARD_TIMEOUT` seconds and up to
  `MAX_DISCARDED` bytes.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import h11

from xapi_cli.errors import NetworkError, TimeoutExpired, UsageError, XapiError
from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.dial import Dialer
from xapi_cli.http.error_text import CERTIFICATE_REQUIRED, describe_error
from xapi_cli.http.header_syntax import LAST_CHUNK, chunk
from xapi_cli.http.messages import RawHeader, Request, Response
from xapi_cli.http.pool import Pool
from xapi_cli.http.responses import ResponseHead, ResponseParser
from xapi_cli.http.retry import IDEMPOTENT
from xapi_cli.http.timeouts import Timeouts, Wait
from xapi_cli.system.redact import redact_url

if TYPE_CHECKING:
    import ssl

    from xapi_cli.http.log import RequestLog
    from xapi_cli.http.proxies import Proxy

MAX_DISCARDED = 64 * 1024  # bytes of a body that is not needed
DISCARD_TIMEOUT = 0.2  # seconds to read them


class Transport:
    """A thread-safe transport, whose connections stay open between requests.

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
        on_request: Callable[[Request], None] | None = None,
        on_response: Callable[[Response], None] | None = None,
    ) -> None:
        self._tls, self._proxy, self._waiting, self._trace, self._log = tls, proxy, waiting, trace, log
        self._timeout = timeout
        self._on_request, self._on_response = on_request, on_response
        self._begin_process()

    def _begin_process(self) -> None:
        self._process = os.getpid()
        self._dialer = Dialer(self._tls, self._trace)
        self._pool = Pool()

    def send(self, request: Request) -> Response:
        """Return the response to *request* with a body that is not read yet.

        Raises UsageError, NetworkError or TimeoutExpired.
        """
        if self._process != os.getpid():  # after os.fork(): the parent process uses the connections, and held the locks
            self._begin_process()
        if self._on_request is not None:
            self._on_request(request)
        started = time.monotonic()
        scheme, host, port = request.server
        route = Route(scheme, host, port, self._proxy(scheme, host, port))
        event = _request_event(request, route)
        limit = self._timeout
        timeouts = request.timeouts or Timeouts(limit, limit, limit, request.deadline)
        try:
            with self._waiting(host):
                exchange = self._exchange(request, event, route, timeouts)
        except (NetworkError, TimeoutExpired) as error:
            _concern(error, request)
            raise
        response = Response(request, exchange.head, exchange, started=started, tls=exchange.connection.tls)
        if self._on_response is not None:
            self._on_response(response)
        return response

    def close(self) -> None:
        """Close all connections; operations of other threads on them fail."""
        self._pool.close()

    def _exchange(self, request: Request, event: h11.Request, route: Route, timeouts: Timeouts) -> "Exchange":
        """Return the exchange that has received the status line and headers of the response to *request*."""
        connection = self._kept_connection(request, route)
        if connection is not None:
            if self._trace is not None:
                self._trace(f"* using the open connection to {route}")
            exchange = Exchange(connection, request, event, timeouts, self._end)
            try:
                return self._begin(exchange)
            except NetworkError:
                if not exchange.may_resend:
                    raise
            if self._trace is not None:
                self._trace("* the server had closed that connection")
        connection = self._dialer.open(route, Wait(timeouts, timeouts.connect, lambda: f"no connection to {route}"))
        self._pool.add(connection)
        return self._begin(Exchange(connection, request, event, timeouts, self._end))

    def _kept_connection(self, request: Request, route: Route) -> Connection | None:
        """Return an open connection, or None; a login gets a new one, because the server may serve one at a time."""
        if not request.is_login:
            return self._pool.acquire(route, is_idempotent=request.method in IDEMPOTENT)
        self._pool.close_unused()
        return None

    def _begin(self, exchange: "Exchange") -> "Exchange":
        try:
            if self._log is not None:
                self._log.begin(exchange)
            exchange.send()
        except BaseException:
            self._end(exchange, is_reusable=False)
            raise
        return exchange

    def _end(self, exchange: "Exchange", *, is_reusable: bool) -> None:
        self._pool.release(exchange.connection, is_reusable=is_reusable)
        if self._log is not None:
            self._log.end(exchange)


class Exchange:
    """The exchange of *request*, with the request line and headers in *event*, for its response, over *connection*.

    It is also the body of the response. *on_end* is called once, with whether the connection may carry another request.
    """

    def __init__(
        self,
        connection: Connection,
        request: Request,
        event: h11.Request,
        timeouts: Timeouts,
        on_end: Callable[..., None],
    ) -> None:
        self.connection, self.request, self.route = connection, request, connection.route
        self._timeouts, self._on_end = timeouts, on_end
        self._parser = ResponseParser(event, connection.route, over_tls=connection.tls is not None)
        self._beside = request.beside
        self._may_send = True  # more of the request
        self._has_sent_all = False
        self._awaits_sending = False
        self._has_ended = False
        self._held: list[bytes] = []  # data of the body, for later
        self._problem: NetworkError | None = None  # that follows it
        # the log reads these
        self.started = time.monotonic()
        self.is_sent = False  # at least a part of the request may have been sent
        self.failure: str | None = None  # the kind of the error because of which there is no complete response
        self.has_response = False  # all of the response that is needed was received

    @property
    def head(self) -> ResponseHead:
        """The status line and headers of the response."""
        assert self._parser.head is not None  # noqa: S101 - `send` has returned
        return self._parser.head

    @property
    def status(self) -> int | None:
        """The status of the response, None without one."""
        return self._parser.head.status if self._parser.head else None

    @property
    def may_resend(self) -> bool:
        """Whether the request, which failed over a kept connection, may be sent again over a new one."""
        if self._parser.has_started or not self.request.is_replayable:
            return False
        return not self.is_sent or self.request.method in IDEMPOTENT

    def send(self) -> None:
        """Send the request, and receive the status line and headers of its response.

        Raises NetworkError or TimeoutExpired.
        """
        try:
            self._send_request()
            wait = Wait(self._timeouts, self._timeouts.read, self._awaited)
            while self._parser.head is None:
                self._receive(wait)
        except (NetworkError, TimeoutExpired) as error:
            self._fail(error)
            raise

    # the body of the response

    def __iter__(self) -> Iterator[bytes]:
        """Yield what is left of the body; raises NetworkError or TimeoutExpired."""
        while self._held:
            yield self._held.pop(0)
        if self._problem is not None:
            raise self._problem
        while not self._has_ended:
            wait = Wait(self._timeouts, self._timeouts.read, self._awaited)
            try:
                while not (block := self._parser.body()) and not self._parser.has_ended:
                    self._receive(wait)
            except BaseException as error:
                if isinstance(error, NetworkError | TimeoutExpired):
                    self._fail(error)
                self.end()
                raise
            if self._parser.has_ended:
                self.end()
            if block:
                yield block

    def hold(self) -> bool:
        """Read the rest of the body into memory if it is short and arrives soon; return whether it has ended."""
        self._read_rest(DISCARD_TIMEOUT, self._held)
        return self._has_ended

    def discard(self, seconds: float = DISCARD_TIMEOUT) -> None:
        """End the exchange; read what is left of the body in *seconds*, so that the connection can be reused."""
        self._read_rest(seconds, [])
        self._held.clear()
        self._problem, self.has_response = None, True
        self.end()

    def end(self) -> None:
        """Pass on the connection, which may carry another request only if this exchange is complete."""
        if not self._has_ended:
            self._has_ended = True
            self.has_response = self.has_response or self._parser.has_ended
            self.connection.end_response(
                self.request.method,
                self.head.status,
                keep_alive=self.head.headers.get(b"keep-alive", b""),
                has_surplus=self._parser.has_surplus,
            )
            self._on_end(self, is_reusable=self._has_sent_all and self._parser.allows_reuse)

    def _read_rest(self, seconds: float, blocks: list[bytes]) -> None:
        """Append the rest of the body to *blocks*, up to a limit; iteration raises the error that ends it, if any."""
        wait, size = Wait(self._timeouts, seconds, self._awaited), 0
        try:
            with suppress(TimeoutExpired):  # it can be read later
                while not (self._has_ended or self._parser.has_ended) and size < MAX_DISCARDED:
                    if block := self._parser.body():
                        blocks.append(block)
                        size += len(block)
                    elif not self._parser.has_ended:
                        self._receive(wait)
        except NetworkError as error:
            _concern(error, self.request)
            self._problem = error.with_traceback(None)  # it refers to frames that refer to this object
            self.has_response = True  # the body may not be needed
            self.end()
        if self._parser.has_ended:
            self.end()

    # sending and receiving

    def _send_request(self) -> None:
        """Send the request; its headers and the first block of its body in one call, each of which is a packet."""
        data, is_chunked = self._parser.request_head, self.request.length is None
        for block in self.request.body:
            self._write(data + (chunk(block) if is_chunked else block))
            data = b""
            if not self._may_send:
                return
        if is_chunked:
            data += LAST_CHUNK
        if data:
            self._write(data)
        self._has_sent_all = self._may_send

    def _write(self, data: bytes) -> None:
        """Send *data*, unless a response arrives that makes it unnecessary; b"" only looks for a response."""
        unsent, wait = memoryview(data), None
        if self.is_sent:
            self._receive_early()
        while unsent and self._may_send:
            self.is_sent = True
            try:
                count = self.connection.send_now(unsent)
            except OSError:
                self._may_send = False
                return
            unsent = unsent[count:]
            if count:
                wait = None
            else:
                wait = wait or Wait(self._timeouts, self._timeouts.write, self._awaited)
                self._wait_to_send(wait)
            if unsent:
                self._receive_early()

    def _wait_to_send(self, wait: Wait) -> None:
        self._awaits_sending = True
        try:
            self.connection.wait(wait, receiving=self._parser.head is None, sending=True)
        except TimeoutExpired:
            if self._parser.head is None:
                raise
            self._may_send = False  # the response has arrived; the server need not read the rest of the request
        self._awaits_sending = False

    def _receive_early(self) -> None:
        """Receive what has arrived of a response before the request was sent."""
        if self._parser.head is None:
            self._receive(None)

    def _receive(self, wait: Wait | None) -> None:
        """Receive data, or wait for some; without *wait*, receive only what has arrived."""
        try:
            data = self.connection.receive_now()
        except OSError as error:
            self._break(error.with_traceback(None))  # it refers to this frame, and the frame to the error
            return
        if data is None:
            if wait is not None:
                self._wait_for_data(wait)
        elif data:
            had_head = self._parser.head is not None
            self._parser.receive(data)
            if not had_head and self._parser.head is not None:
                self._received_head(self._parser.head)
        else:
            self._parser.close()

    def _wait_for_data(self, wait: Wait) -> None:
        watched, on_data = self._beside or (None, None)
        if self.connection.wait(wait, receiving=True, beside=watched) and on_data is not None:
            self._beside = None
            on_data()

    def _received_head(self, head: ResponseHead) -> None:
        if head.status >= 300:
            self._may_send = self._has_sent_all  # the rest of the request
        if head.status == 407 and self.route.proxy:
            raise self.route.proxy.refusal(head)

    def _break(self, error: OSError) -> None:
        """Process the failure of the connection; raises NetworkError if the headers of the response are missing."""
        reason, hint = describe_error(error)
        if getattr(error, "reason", None) == CERTIFICATE_REQUIRED:
            self.is_sent = False  # it ends the handshake, which is over for the client: no request was read
        if self._parser.head is None:
            problem = f"the connection to {self.route} broke before the response: {reason}"
            raise NetworkError(problem, hint=hint) from error
        self._parser.close(reason, is_clean=False)

    def _awaited(self) -> str:
        """Return what the exchange waits for, as the start of the message about a timeout."""
        if self._awaits_sending:
            return f"{self.route} accepted no data"
        return f"no response from {self.route}" if self._parser.head is None else f"no more data from {self.route}"

    def _fail(self, error: NetworkError | TimeoutExpired) -> None:
        """Record in *error* whether the request was sent, and add a hint if sending it again may have side effects."""
        self.failure = error.kind  # not the error: its traceback refers to frames that refer to this object
        error.sent = self.is_sent
        head, proxy = self._parser.head, self.route.proxy
        if head is None and proxy is not None and self.route.is_forwarded:
            error.hint = proxy.hint
        is_refused = head is not None and head.status >= 400
        if (
            error.sent
            and not is_refused
            and self.request.method not in IDEMPOTENT
            and not self.request.is_login  # a second token has no side effects
        ):
            error.may_be_processed = True
            error.hint = f"the {self.request.method} may have been processed: check before you send it again"
        _concern(error, self.request)


def open_transport(*, ca_bundle: str | None, environ: Mapping[str, str], **options: Any) -> Transport:
    """Return a transport that trusts the CAs in *ca_bundle* and uses the proxies in *environ*.

    Both are read when a connection first needs them. *options* are the other parameters of `Transport`, which adds no
    credentials and no cookies, and follows no redirects.
    """

    def context() -> "ssl.SSLContext":
        from xapi_cli.http import tls

        return tls.create_context(ca_bundle, environ)

    @cache
    def proxy_for(scheme: str, host: str, port: int) -> "Proxy | None":
        if "_proxy" not in "\n".join(environ).lower():  # usually; it takes less than importing the module
            return None
        from xapi_cli.http import proxies

        return proxies.proxy_for(scheme, host, port, environ)

    return Transport(context, proxy_for, **options)


def _concern(error: XapiError, request: Request) -> None:
    """Record in *error* that it concerns *request*."""
    error.concerning(method=request.method, url=redact_url(request.url.partition("?")[0]))


@lru_cache(8)  # the requests of a batch have the same ones
def _checked(headers: tuple[RawHeader, ...]) -> Any:
    """Return *headers* in the form of h11, which checks them."""
    return h11.Request(method="GET", target="/", headers=list(headers)).headers


def _request_event(request: Request, route: Route) -> h11.Request:
    """Return the request line and headers of *request* for *route*; raises UsageError if they are not valid HTTP."""
    target, headers = request.target, request.headers.raw
    if route.is_forwarded:
        target = request.url.encode("ascii")
        if route.proxy and route.proxy.authorization:
            headers = [*headers, (b"Proxy-Authorization", route.proxy.authorization)]
    try:
        return h11.Request(method=request.method, target=target, headers=_checked(tuple(headers)))
    except (h11.LocalProtocolError, UnicodeError):
        pass  # raising after the handler keeps what is invalid out of a traceback
    raise UsageError(
        "the request's method, URL or headers are not valid in HTTP",
        hint="check them for characters that HTTP does not allow",
    )

"""The exchange of one request of httpx over one connection, which blocks; h11 writes the request."""

from typing import TYPE_CHECKING

import h11

from xapi_cli.errors import NetworkError, TimeoutExpired, UsageError, XapiError
from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.exchange import DISCARD_TIMEOUT, IDEMPOTENT, Exchange
from xapi_cli.http.response_parser import ResponseHead, new_protocol

if TYPE_CHECKING:
    import httpx

    from xapi_cli.http.timeouts import Timeouts, Wait


def request_event(request: "httpx.Request", route: Route) -> h11.Request:
    """Return the request line and headers of *request* for *route*; raises UsageError if they are not valid HTTP."""
    target, headers = request.url.raw_path, list(request.headers.raw)
    if route.proxy and route.scheme == "http":
        target = b"http://" + request.url.netloc + target
        if route.proxy.authorization:
            headers.append((b"Proxy-Authorization", route.proxy.authorization))
    try:
        event = h11.Request(method=request.method, target=target, headers=headers)
    except (h11.LocalProtocolError, UnicodeError):
        event = None  # raising after the handler keeps h11's message, which contains the value, out of a traceback
    if event is None or event.method == b"CONNECT":
        raise UsageError(
            "the request's method, URL or headers are not valid in HTTP",
            hint="check them for characters that HTTP does not allow",
        )
    return event


class BlockingExchange:
    """Send *request*, with the request line and headers *event*, over *connection* and read the response."""

    def __init__(
        self, connection: Connection, request: "httpx.Request", event: h11.Request, timeouts: "Timeouts"
    ) -> None:
        self._connection, self.request, self._request_event, self._timeouts = connection, request, event, timeouts
        self._protocol = new_protocol()
        self._length = _declared_length(event)
        self._exchange = Exchange(
            connection.route,
            request.method,
            is_reused=connection.is_used,
            over_tls=connection.tls is not None,
            is_safe_to_resend=bool(request.extensions.get("safe_to_resend")),
        )

    @property
    def may_resend(self) -> bool:
        """Whether the request, which failed, may be sent again over a new connection."""
        return self._exchange.may_resend

    def send(self) -> ResponseHead:
        """Send the request and return the status line and headers of its response.

        The response may arrive before the request is complete. Raises NetworkError
        or TimeoutExpired.
        """
        if self._connection.is_used and not self._connection.is_idle():
            raise NetworkError(f"{self._connection.route} closed the connection or sent unsolicited data")
        try:
            self._send_request()
            wait = self._timeouts.start_wait(self._timeouts.read, self._exchange.awaited)
            while self._exchange.head is None:
                self._receive(wait)
        except TimeoutExpired as error:
            self._exchange.record_sent(error)
            raise
        return self._exchange.head

    def read_body(self) -> bytes | None:
        """Return the next part of the response body, None at its end; raises NetworkError or TimeoutExpired."""
        wait = self._timeouts.start_wait(self._timeouts.read, self._exchange.awaited)
        try:
            while not self._exchange.has_response:
                if block := self._exchange.body():
                    return block
                if not self._exchange.has_response:
                    self._receive(wait)
        except TimeoutExpired as error:
            self._exchange.record_sent(error)
            raise
        return None

    def discard_body(self, seconds: float = DISCARD_TIMEOUT) -> None:
        """Discard the rest of the response body, within *seconds*, as far as that keeps the connection."""
        wait = self._timeouts.start_wait(seconds, "no end")
        self._exchange.discard()
        try:
            while not self._exchange.has_response:
                self._receive(wait)
        except TimeoutExpired:
            self._exchange.expire()

    def end(self) -> bool:
        """Mark the connection as idle; return whether it may carry another request."""
        head = self._exchange.head
        assert head is not None  # noqa: S101 - the body follows the headers
        self._connection.end_response(self.request.method, head.status, has_surplus=self._exchange.has_surplus)
        return self._exchange.allows_reuse

    def _send_request(self) -> None:
        self._send(self._request_event)
        size = 0
        for chunk in self.request.stream:  # type: ignore[union-attr]  # the client rejects async streams
            # It could not be detected that the source of a body without a declared length yields less the second time.
            self._exchange.is_replayable = self._length is not None
            size += len(chunk)
            if self._length is not None and size > self._length:
                raise self._body_changed()
            self._send(h11.Data(data=chunk))
            if self._exchange.stops_sending:
                return
        if self._length is not None and size < self._length:
            raise self._body_changed()
        self._send(h11.EndOfMessage())

    def _send(self, event: h11.Event) -> None:
        """Send *event*, the request line and headers at once: each send(2) is a packet."""
        data = self._protocol.send(event) or b""
        self._exchange.offer(data, is_last=isinstance(event, h11.EndOfMessage))
        wait = None
        while self._exchange.is_sending:
            if self._exchange.head is None:
                self._receive(None)
                if self._exchange.stops_sending:
                    break
            try:
                count = self._connection.send_now(self._exchange.unsent)
            except OSError:
                self._exchange.cannot_send()
                break
            self._exchange.sent(count)
            if count:
                wait = None
            else:
                wait = wait or self._timeouts.start_wait(self._timeouts.write, self._exchange.awaited)
                self._wait_to_send(wait)

    def _wait_to_send(self, wait: "Wait") -> None:
        try:
            self._connection.wait(wait, receiving=self._exchange.head is None, sending=True)
        except TimeoutExpired:
            if not self._exchange.expire():
                raise

    def _receive(self, wait: "Wait | None") -> None:
        """Receive data; without *wait*, only what has arrived."""
        data: bytes | OSError | None
        try:
            data = self._connection.receive(wait) if wait else self._connection.receive_now()
        except OSError as error:
            data = error
        if data is not None:
            self._exchange.receive(data)

    def _body_changed(self) -> XapiError:
        return XapiError("the request's body changed while it was sent", hint="send a copy of the data")


def may_resend(event: h11.Request) -> bool:
    """Return whether the request *event* may be resent after a failure at any time; see `Exchange.may_resend`."""
    return event.method.decode("ascii") in IDEMPOTENT and _declared_length(event) is not None


def _declared_length(event: h11.Request) -> int | None:
    """Return the body length that *event* declares in bytes; None with Transfer-Encoding."""
    headers = {name: value for name, value in event.headers}  # noqa: C416  # the pairs have a type of h11
    if b"transfer-encoding" in headers:
        return None
    return int(headers.get(b"content-length", b"0"))

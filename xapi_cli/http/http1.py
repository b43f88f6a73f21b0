"""HTTP/1.1 with h11: send one request and read its response over one connection."""

from typing import TYPE_CHECKING

import h11

from xapi_cli.errors import NetworkError, TimeoutExpired, UsageError, XapiError
from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.response_parser import ResponseParser, declares_body, new_protocol

if TYPE_CHECKING:
    import httpx

    from xapi_cli.http.timeouts import Timeouts, Wait

IDEMPOTENT = {"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"}  # RFC 9110, 9.2.2


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


class ResponseReader:
    """Read a response from *connection* with a `ResponseParser`; *sender* names the server or proxy in messages."""

    def __init__(self, protocol: h11.Connection, connection: Connection, sender: str) -> None:
        self.parser = ResponseParser(protocol, sender, over_tls=connection.tls is not None)
        self._connection = connection

    def read_headers(self, wait: "Wait") -> h11.Response:
        """Return the status line and headers of the final response; informational responses are skipped."""
        while self.parser.response is None:
            self._receive(wait)
        return self.parser.response

    def poll(self) -> None:
        """Read the part of the status line and headers that has arrived, without waiting."""
        if self.parser.response is None:
            self._receive(None)

    def read_body(self, wait: "Wait") -> bytes | None:
        """Wait for the next part of the body and return it, None at the end."""
        while not self.parser.has_ended:
            if block := self.parser.body():
                return block
            if not self.parser.has_ended:
                self._receive(wait)
        return None

    def _receive(self, wait: "Wait | None") -> None:
        try:
            data = self._connection.receive(wait) if wait else self._connection.receive_now()
        except OSError as error:
            raise self.parser.connection_error(error) from error
        if data is not None:
            self.parser.receive(data)


class Exchange:
    """Send *request*, with the request line and headers *event*, over *connection* and read the response."""

    def __init__(
        self, connection: Connection, request: "httpx.Request", event: h11.Request, timeouts: "Timeouts"
    ) -> None:
        self._connection = connection
        self.request = request
        self._request_event = event
        self._timeouts = timeouts
        self._protocol = new_protocol()
        self._reader = ResponseReader(self._protocol, connection, str(connection.route))
        self._length = _declared_length(event)
        self._is_sent = False
        self._is_body_started = False
        self._is_broken = False
        self._is_incomplete = False  # the server will not receive the rest of the request

    def send(self) -> h11.Response:
        """Send the request and return the status line and headers of its response.

        The response may arrive before the request is complete. Raises NetworkError
        or TimeoutExpired.
        """
        try:
            self._send_request()
            wait = self._timeouts.start_wait(self._timeouts.read, f"no response from {self._connection.route}")
            return self._reader.read_headers(wait)
        except (NetworkError, TimeoutExpired) as error:
            is_safe_to_resend = bool(self.request.extensions.get("safe_to_resend"))
            record_sent(error, self.request.method, is_sent=self._is_sent, is_safe_to_resend=is_safe_to_resend)
            raise

    def read_body(self) -> bytes | None:
        """Return the next part of the response body, None at its end; raises NetworkError or TimeoutExpired."""
        wait = self._timeouts.start_wait(self._timeouts.read, f"no more data from {self._connection.route}")
        try:
            return self._reader.read_body(wait)
        except (NetworkError, TimeoutExpired) as error:
            error.sent = True
            raise

    def discard_body(self, size: int, seconds: float) -> None:
        """Discard the rest of the response body, at most about *size* bytes, within *seconds*."""
        wait = self._timeouts.start_wait(seconds, "no end")
        try:
            while size > 0 and (block := self._reader.read_body(wait)) is not None:
                size -= len(block)
        except (NetworkError, TimeoutExpired):
            self._is_broken = True

    @property
    def may_resend(self) -> bool:
        """Whether the request may be resent over a new connection after a reused connection failed.

        RFC 9110, 9.2.2: it may be if nothing was sent or if the method is
        idempotent. A body without a declared length is not resent, because it
        could not be detected that its source yields less data the second time.
        """
        if self._reader.parser.has_started:
            return False
        is_replayable = self._length is not None or not self._is_body_started
        return is_replayable and (not self._is_sent or self.request.method in IDEMPOTENT)

    @property
    def is_reusable(self) -> bool:
        """Whether the connection may carry another request."""
        response = self._reader.parser.response
        if response is None or self._is_broken or self._is_incomplete or not self._reader.parser.allows_reuse:
            return False  # the next request would continue an incomplete one
        return not declares_body(self.request.method, response.status_code, dict(response.headers))

    def mark_idle(self) -> None:
        """Mark the connection as idle, and record the kind of the response and whether surplus bytes arrived."""
        parser = self._reader.parser
        assert parser.response is not None  # noqa: S101 - the body follows the headers
        self._connection.mark_idle(self.request.method, parser.response.status_code)
        self._connection.has_surplus = self._connection.has_surplus or parser.has_surplus

    def _send_request(self) -> None:
        self._send(self._request_event)
        size = 0
        for chunk in self.request.stream:  # type: ignore[union-attr]  # the client rejects async streams
            self._is_body_started = True
            size += len(chunk)
            if self._length is not None and size > self._length:
                raise self._body_changed()
            self._send(h11.Data(data=chunk))
            if self._stops_sending:
                return
        if self._length is not None and size < self._length:
            raise self._body_changed()
        self._send(h11.EndOfMessage())

    def _send(self, event: h11.Event) -> None:
        if data := self._protocol.send(event):  # the request line and headers at once: each send(2) is a packet
            self._send_bytes(memoryview(data))

    def _send_bytes(self, data: memoryview) -> None:
        """Send *data*; stop when an error response has arrived or the connection has failed."""
        if self._connection.is_used and not self._is_sent and not self._connection.is_idle():
            raise NetworkError(f"{self._connection.route} closed the connection or sent unsolicited data")
        wait = None
        while data and not self._stops_sending:
            self._reader.poll()
            if self._stops_sending:
                break
            count = self._send_some(data)
            data = data[count:]
            if count:
                wait = None
            else:
                wait = wait or self._timeouts.start_wait(
                    self._timeouts.write, f"{self._connection.route} accepted no data"
                )
                self._wait_to_send(wait)
        self._is_incomplete = self._is_incomplete or bool(data)  # the state machine takes all of it as sent

    @property
    def _stops_sending(self) -> bool:
        """Whether to stop sending: the connection failed, or the status is not a success (RFC 9112, 9.5)."""
        response = self._reader.parser.response
        return self._is_broken or (response is not None and response.status_code >= 300)

    def _send_some(self, data: memoryview) -> int:
        try:
            count = self._connection.send_now(data)
        except OSError:
            self._is_broken = True  # a response may have arrived anyway; otherwise reading reports the cause
            return 0
        self._is_sent = self._is_sent or bool(count or self._connection.tls)
        return count

    def _wait_to_send(self, wait: "Wait") -> None:
        if self._is_broken:
            return
        try:
            self._connection.wait(wait, receiving=self._reader.parser.response is None, sending=True)
        except TimeoutExpired:
            if self._reader.parser.response is None:
                raise
            self._is_broken = True  # the response has arrived; the server need not read the rest of the body

    def _body_changed(self) -> XapiError:
        return XapiError("the request's body changed while it was sent", hint="send a copy of the data")


def may_resend(event: h11.Request) -> bool:
    """Return whether the request *event* may be resent after a failure at any time; see `Exchange.may_resend`."""
    return event.method.decode("ascii") in IDEMPOTENT and _declared_length(event) is not None


def record_sent(
    error: NetworkError | TimeoutExpired, method: str, *, is_sent: bool, is_safe_to_resend: bool = False
) -> None:
    """Record in *error* whether the request was sent, and add a hint if resending it may have side effects.

    With *is_safe_to_resend*, resending is safe although *method* is not idempotent.
    """
    error.sent = is_sent
    if is_sent and method not in IDEMPOTENT and not is_safe_to_resend:
        error.hint = f"the {method} may have been processed: check before you send it again"


def _declared_length(event: h11.Request) -> int | None:
    """Return the body length that *event* declares in bytes; None with Transfer-Encoding."""
    headers = {name: value for name, value in event.headers}  # noqa: C416  # the pairs have a type of h11
    if b"transfer-encoding" in headers:
        return None
    return int(headers.get(b"content-length", b"0"))

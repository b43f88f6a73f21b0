"""Speak HTTP/1.1 by the rules of h11: one request and its response over one connection."""

from typing import TYPE_CHECKING

import h11

from xapi_cli.errors import NetworkError, TimeoutExpired, UsageError, XapiError
from xapi_cli.wire.connection import BLOCK, Connection, Route
from xapi_cli.wire.failures import explained

if TYPE_CHECKING:
    import httpx

    from xapi_cli.wire.limits import Limit, Limits

HEAD_LIMIT = 100_000  # bytes, informational responses included

IDEMPOTENT = {"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"}  # RFC 9110, 9.2.2
_TLS_RECORDS = {b"\x14", b"\x15", b"\x16"}
_PLAINER = {  # than h11's own words
    "Received server _SWITCH_UPGRADE event without a pending proposal": "a switch to another protocol",
    "Only Transfer-Encoding": "an unknown transfer coding",
    "Receive buffer too long": "an endless line",
    "illegal request line": "illegal status line",
    "InformationalResponse status_code": "a status under 100",
}


def request_head(request: "httpx.Request", route: Route) -> h11.Request:
    """Return the head of *request* as *route* wants it; UsageError when it cannot be sent as HTTP."""
    target, headers = request.url.raw_path, list(request.headers.raw)
    if route.proxy and route.scheme == "http":
        target = b"http://" + request.url.netloc + target
        if route.proxy.authorization:
            headers.append((b"Proxy-Authorization", route.proxy.authorization))
    try:
        head = h11.Request(method=request.method, target=target, headers=headers)
    except (h11.LocalProtocolError, UnicodeError):
        head = None  # raising outside keeps h11's words, which hold the header's value, out of a traceback
    if head is None or head.method == b"CONNECT":
        raise UsageError("the request's method, URL or headers are not valid in HTTP", hint="look for odd characters")
    return head


def new_protocol() -> h11.Connection:
    """Return the state of one request and its response."""
    return h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)


class Incoming:
    """Read the answer of the server or proxy that messages call *sender*."""

    def __init__(self, protocol: h11.Connection, connection: Connection, sender: str) -> None:
        self.head: h11.Response | None = None
        self.has_begun = False
        self.has_ended = False
        self._protocol = protocol
        self._connection = connection
        self._sender = sender
        self._room = HEAD_LIMIT
        self._body_size = 0
        self._is_closed = False
        self._flaw: str | None = None  # of the body

    def wait_for_head(self, limit: "Limit") -> h11.Response:
        """Return the final head, having passed over informational ones."""
        while self.head is None:
            self._look(limit)
        return self.head

    def look(self) -> None:
        """Take what has come of the head already, without waiting."""
        if self.head is None:
            self._look(None)

    def block(self, limit: "Limit") -> bytes | None:
        """Return the next part of the body as soon as there is one, None at the end."""
        while not self.has_ended:
            if block := self._buffered():
                self._body_size += len(block)
                return block
            if not self.has_ended:
                self._protocol.receive_data(self._receive_body(limit))
        return None

    def _look(self, limit: "Limit | None") -> None:
        if not self._room:
            raise self._invalid(f"a head of more than {HEAD_LIMIT:,} bytes")
        size = min(BLOCK, self._room)
        try:
            data = self._connection.receive(limit, size) if limit else self._connection.receive_now(size)
        except OSError as error:
            raise self._broken(error) from error
        if data == b"":
            raise self._closed()
        if data:
            self._take(data)

    def _take(self, data: bytes) -> None:
        """Read *data* as a part of the head, or more than that."""
        is_tls = not (self.has_begun or self._connection.tls) and data[:1] in _TLS_RECORDS
        self.has_begun = True
        self._room -= len(data)
        self._protocol.receive_data(data)
        try:
            event = self._protocol.next_event()
            while isinstance(event, h11.InformationalResponse) and event.status_code != 101:
                event = self._protocol.next_event()
        except h11.RemoteProtocolError as error:
            flaw = str(error)
        else:
            if isinstance(event, h11.Response):
                self.head = event
            if not isinstance(event, h11.InformationalResponse):
                return
            flaw = "a switch to another protocol"
        raise self._invalid(flaw, hint="does the base URL need https?" if is_tls else None)

    def _buffered(self) -> bytes:
        """Return what of the body has been received and not yet returned; note the end."""
        parts: list[bytes] = []
        while not (self.has_ended or self._flaw):
            try:
                event = self._protocol.next_event()
            except h11.RemoteProtocolError as error:
                self._flaw = self._flaw_of_body(error)
                break
            if event is h11.NEED_DATA:
                break
            if isinstance(event, h11.Data):
                parts.append(event.data)
            else:
                self.has_ended = True
        if self._flaw and not parts:  # what came before the flaw is returned first
            raise self._cut_off(self._flaw)
        return b"".join(parts)

    def _flaw_of_body(self, error: h11.RemoteProtocolError) -> str:
        return "connection closed by the server" if self._is_closed else _plain(str(error))

    def _receive_body(self, limit: "Limit") -> bytes:
        try:
            data = self._connection.receive(limit)
        except OSError as error:
            raise self._cut_off(explained(error)[0]) from error
        self._is_closed = not data
        return data

    def _broken(self, error: OSError) -> NetworkError:
        reason, hint = explained(error)
        return NetworkError(f"the connection to {self._sender} broke before the answer: {reason}", hint=hint)

    def _closed(self) -> NetworkError:
        how = "in the middle of its answer" if self.has_begun else "without an answer"
        return NetworkError(f"{self._sender} closed the connection {how}")

    def _invalid(self, flaw: str, hint: str | None = None) -> NetworkError:
        hint = hint or "is this the right host and port?"
        return NetworkError(f"the answer of {self._sender} is not valid HTTP ({_plain(flaw)})", hint=hint)

    def _cut_off(self, reason: str) -> NetworkError:
        return NetworkError(
            f"the body from {self._sender} was cut off after {self._body_size:,} bytes ({reason})", answered=True
        )


class Exchange:
    """Send *request*, whose head is *head*, over *connection* and read the response."""

    def __init__(self, connection: Connection, request: "httpx.Request", head: h11.Request, limits: "Limits") -> None:
        self._connection = connection
        self.request = request
        self._request_head = head
        self._limits = limits
        self._protocol = new_protocol()
        self._incoming = Incoming(self._protocol, connection, str(connection.route))
        self._length = _declared_length(head)
        self._is_sent = False
        self._is_body_begun = False
        self._is_broken = False

    def head(self) -> h11.Response:
        """Return the response's head: the answer to the whole request, or one that came early."""
        try:
            self._send_request()
            limit = self._limits.wait(self._limits.read, f"no answer from {self._connection.route}")
            return self._incoming.wait_for_head(limit)
        except (NetworkError, TimeoutExpired) as error:
            is_harmless = bool(self.request.extensions.get("harmless"))
            note_sent(error, self.request.method, is_sent=self._is_sent, is_harmless=is_harmless)
            raise

    def block(self) -> bytes | None:
        """Return the next part of the response's body, None at its end."""
        limit = self._limits.wait(self._limits.read, f"no more data from {self._connection.route}")
        try:
            return self._incoming.block(limit)
        except (NetworkError, TimeoutExpired) as error:
            error.sent = True
            raise

    def skip(self, size: int, seconds: float) -> None:
        """Read away what is left of the response's body, at most *size* bytes in *seconds*."""
        limit = self._limits.wait(seconds, "no end")
        try:
            while size > 0 and (block := self._incoming.block(limit)) is not None:
                size -= len(block)
        except (NetworkError, TimeoutExpired):
            self._is_broken = True

    @property
    def may_repeat(self) -> bool:
        """Tell whether, after a failure of an old connection, the request may be sent again on a new one.

        RFC 9110, 9.2.2: nothing was sent, or sending it twice does what sending
        it once does. A body of undeclared length is not sent again: nobody would
        notice that its source has less to give the second time.
        """
        if self._incoming.has_begun:
            return False
        is_replayable = self._length is not None or not self._is_body_begun
        return is_replayable and (not self._is_sent or self.request.method in IDEMPOTENT)

    @property
    def is_reusable(self) -> bool:
        """Tell whether the connection may serve another request."""
        states = self._protocol.states
        is_complete = states[h11.CLIENT] is h11.DONE and states[h11.SERVER] is h11.DONE
        return is_complete and not self._is_broken and not self._protocol.trailing_data[0] and not self._is_smuggling

    @property
    def _is_smuggling(self) -> bool:
        """Tell whether the head declares the body's end in two ways (RFC 9112, 6.3): who knows what comes after it."""
        names = {name for name, _ in self._incoming.head.headers} if self._incoming.head else set()
        return {b"content-length", b"transfer-encoding"} <= names

    def _send_request(self) -> None:
        self._send(self._request_head)
        size = 0
        for chunk in self.request.stream:  # type: ignore[union-attr]  # the client has refused an async one
            self._is_body_begun = True
            size += len(chunk)
            if self._length is not None and size > self._length:
                raise self._changed()
            self._send(h11.Data(data=chunk))
            if self._has_stopped:
                return
        if self._length is not None and size < self._length:
            raise self._changed()
        self._send(h11.EndOfMessage())

    def _send(self, event: h11.Event) -> None:
        for part in self._protocol.send_with_data_passthrough(event) or ():
            self._send_bytes(memoryview(part))

    def _send_bytes(self, data: memoryview) -> None:
        """Send *data*, but stop when the server has answered or will not take any more."""
        limit = None
        while data and not self._has_stopped:
            self._incoming.look()
            if self._has_stopped:
                return
            count = self._send_some(data)
            data = data[count:]
            if count:
                limit = None
            else:
                limit = limit or self._limits.wait(self._limits.write, f"{self._connection.route} took no data")
                self._wait_to_send(limit)

    @property
    def _has_stopped(self) -> bool:
        """Tell whether sending is over: an answer other than success does not wait for the rest (RFC 9112, 9.5)."""
        head = self._incoming.head
        return self._is_broken or (head is not None and head.status_code >= 300)

    def _send_some(self, data: memoryview) -> int:
        try:
            count = self._connection.send_now(data)
        except OSError:
            self._is_broken = True  # an answer may be there nevertheless, or the reason why there is none
            return 0
        self._is_sent = self._is_sent or bool(count or self._connection.tls)
        return count

    def _wait_to_send(self, limit: "Limit") -> None:
        if self._is_broken:
            return
        try:
            self._connection.wait(limit, receiving=self._incoming.head is None, sending=True)
        except TimeoutExpired:
            if self._incoming.head is None:
                raise
            self._is_broken = True  # the server has answered; that it left some of the body unread is its own affair

    def _changed(self) -> XapiError:
        return XapiError("the request's body changed while it was sent", hint="send a copy that nothing writes to")


def note_sent(error: NetworkError | TimeoutExpired, method: str, *, is_sent: bool, is_harmless: bool = False) -> None:
    """Let *error* tell whether the request had left, and what that may mean, unless doing it twice *is_harmless*."""
    error.sent = is_sent
    if is_sent and method not in IDEMPOTENT and not is_harmless:
        error.hint = f"the {method} may have been processed: check before you send it again"


def _declared_length(head: h11.Request) -> int | None:
    """Return the length of the body that *head* announces; None when the body will tell its own end."""
    headers = {name: value for name, value in head.headers}  # noqa: C416  # the pairs are of h11's own kind
    if b"transfer-encoding" in headers:
        return None
    return int(headers.get(b"content-length", b"0"))


def _plain(flaw: str) -> str:
    """Return h11's *flaw* in words; what it quotes from the server comes after a colon and stays out."""
    flaw = flaw.partition(":")[0]
    plainer = [words for start, words in _PLAINER.items() if flaw.startswith(start)]
    return plainer[0] if plainer else flaw[:1].lower() + flaw[1:]

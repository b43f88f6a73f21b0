"""One request and its response over one connection, without I/O, and how much of an unneeded body is read.

A driver owns a connection. It offers the request as bytes, sends `unsent` as far as the connection takes it, and passes
on everything that it receives, until `is_done`. `http.transport` has a driver that blocks; `http.connections` has one
for many exchanges in one thread. Both only wait, and measure the time; what they wait for, and what it means, is
decided here.

The invariants, and why they hold:

- **A connection carries another request only after a complete exchange.** Bytes of a response that is not complete, or
  that are left over, would be parsed as the response to the next request; a request that is not complete would be
  continued by the next one. So `end` allows that only if all of the request was sent, and all of the response was
  received, with no byte after it. Everything else costs a new connection, and nothing more.
- **A response may arrive before the request is sent.** After a status that is not a success, the rest of the request is
  not sent (RFC 9112, section 9.5). After a success, sending goes on: the server may read the request to its end.
- **A failure to send is not the result.** The server may have sent a response before it closed the connection;
  otherwise, receiving reports the cause. So the driver stops sending and goes on receiving.
- **A request is sent again only if that changes nothing.** If the server has just closed a reused connection, no byte
  of a response arrives. The request may be sent again if none of it was sent, or if its method is idempotent (RFC 9110,
  section 9.2.2) and its body can be read again. That is not a retry: `http.flow` does not count it.
- **A body that is not needed is read only to keep the connection**: for `DISCARD_TIMEOUT` seconds and up to
  `MAX_DISCARDED` bytes. If it does not end by then, or is not valid, the connection is not reused, and the response
  counts as complete nevertheless.
"""

import time
from typing import TYPE_CHECKING

from xapi_cli.errors import NetworkError, TimeoutExpired
from xapi_cli.http.response_parser import ResponseHead, ResponseParser
from xapi_cli.http.retry import IDEMPOTENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from xapi_cli.http.connection import Connection, Route

MAX_DISCARDED = 64 * 1024  # bytes of a body that is not needed
DISCARD_TIMEOUT = 0.2  # seconds to read them


class Exchange:
    """The exchange of a request with *method* for its response, over a connection for *route*.

    The connection *is_reused* if it has carried an exchange. *needs_body* receives the status and headers and returns
    whether the body is needed; that of a success always is. With *is_safe_to_resend*, no hint warns of resending the
    request.
    """

    head: ResponseHead | None = None
    is_discarding = False
    is_replayable = True  # the request can be read again from its start
    stops_sending = False  # the rest of the request is not sent
    unsent = memoryview(b"")
    failure: str | None = None  # the kind of the error because of which there is no complete response
    attempt = 1  # the number of the attempt to send the same call, including replays and retries
    is_login = False
    bytes_sent = 0  # including the request line and headers
    response_bytes = 0  # of the body, before content decoding
    head_size = 0  # of the request line and headers, in bytes, if it is known
    first_part = b""  # of the request; contains the request line and headers
    _is_finished = False  # all of the request was offered
    _has_sent_any = False  # at least a part of the request was sent
    _is_broken = False  # nothing more can be sent
    has_response = False  # all of the response that is needed was received and taken
    _is_abandoned = False  # the rest of a body that is not needed
    _discarded = 0  # bytes of the body

    def __init__(
        self,
        route: "Route",
        method: str,
        *,
        is_reused: bool = False,
        over_tls: bool = False,
        needs_body: "Callable[[ResponseHead], bool] | None" = None,
        is_safe_to_resend: bool = False,
    ) -> None:
        self.route, self.method, self._needs_body = route, method, needs_body
        self.started = time.monotonic()
        self.is_reused, self.over_tls, self._is_safe_to_resend = is_reused, over_tls, is_safe_to_resend
        self._parser = ResponseParser(method, route, over_tls=over_tls)

    # the request

    def offer(self, data: bytes, *, is_last: bool = False) -> None:
        """Make *data* the next part of the request; *is_last* ends the request.

        It has no effect after a part that could not be sent to its end.
        """
        if not self.unsent:
            self.unsent = memoryview(data)
            self._is_finished = is_last
            self.first_part = self.first_part or data

    def sent(self, count: int) -> None:
        """Record that the connection took *count* bytes; one with TLS may have sent some even if it took none."""
        self.unsent = self.unsent[count:]
        self.bytes_sent += count
        self._has_sent_any = self._has_sent_any or bool(count) or self.over_tls

    def cannot_send(self) -> None:
        """Record that nothing more can be sent; a response, or the cause of the failure, can still be received."""
        self._is_broken = self.stops_sending = True

    @property
    def is_sending(self) -> bool:
        """Whether a part of the request is to be sent now."""
        return bool(self.unsent) and not self.stops_sending

    @property
    def has_sent_all(self) -> bool:
        """Whether nothing more of the request is to be sent."""
        return self.stops_sending or (self._is_finished and not self.unsent)

    # the response

    def receive(self, data: bytes | OSError) -> None:
        """Process what the connection delivered: data, b"" at its end, or the error with which it failed.

        Raises NetworkError if there will be no complete response.
        """
        parser = self._parser
        try:
            if isinstance(data, OSError):
                raise parser.connection_error(data) from data
            parser.receive(data)
        except NetworkError as error:
            if not self.is_discarding:
                if self.route.proxy and self.route.is_forwarded and self.head is None:
                    error.hint = self.route.proxy.hint
                self.record_sent(error)
                raise
            self._abandon()
            return
        if self.head is None and (head := parser.head) is not None:
            self.head = head
            if head.status >= 300:
                self._received_unsuccessful(head)
        if self.is_discarding:
            self._discard()

    def body(self) -> bytes:
        """Return the data of the body that arrived since the last call; raises NetworkError if no more will arrive."""
        if self.head is None or self.is_discarding:
            return b""
        try:
            block = self._parser.body()
        except NetworkError as error:
            self.record_sent(error)
            raise
        self.has_response = self._parser.has_ended
        self.response_bytes += len(block)
        return block

    def discard(self) -> None:
        """From now on, discard the body."""
        self.is_discarding = True
        self._discard()

    @property
    def is_sent(self) -> bool:
        """Whether a part of the request was sent."""
        return bool(self.first_part)

    @property
    def status(self) -> int | None:
        """The status of the response, None without one."""
        return None if self.head is None else self.head.status

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to be sent or received."""
        return self.has_response and self.has_sent_all

    def _received_unsuccessful(self, head: ResponseHead) -> None:
        self.stops_sending = True
        if head.status == 407 and self.route.proxy:
            refusal = self.route.proxy.refusal(head)  # type: ignore[arg-type]
            self.record_sent(refusal)
            raise refusal
        if self._needs_body is not None and not self._needs_body(head):
            self.is_discarding = True

    def _discard(self) -> None:
        try:
            while not self._parser.has_ended and (block := self._parser.body()):
                self._discarded += len(block)
                self.response_bytes += len(block)
        except NetworkError:
            self._abandon()
        if self._discarded > MAX_DISCARDED:
            self._abandon()
        self.has_response = self.has_response or self._parser.has_ended

    def _abandon(self) -> None:
        self._is_abandoned = self.has_response = True

    # the end

    def expire(self) -> bool:
        """Record that a wait timed out; return whether the exchange has its response, or goes on, nevertheless."""
        if self.is_discarding:
            self._abandon()
        elif self.head is None or not self.is_sending:
            return False
        self.cannot_send()  # the response has arrived; the server need not read the rest of the request
        return True

    def awaited(self) -> str:
        """Return what the exchange waits for, as the start of the message about a timeout."""
        if self.is_sending:
            return f"{self.route} accepted no data"
        return f"no response from {self.route}" if self.head is None else f"no more data from {self.route}"

    def record_sent(self, error: NetworkError | TimeoutExpired) -> None:
        """Record in *error* whether the request was sent, and add a hint if sending it again may have side effects."""
        self.failure = error.kind  # not the error: its traceback refers to frames that refer to this object
        error.sent = self._has_sent_any or self.head is not None
        is_refused = self.head is not None and self.head.status >= 400
        if error.sent and not is_refused and self.method not in IDEMPOTENT and not self._is_safe_to_resend:
            error.hint = f"the {self.method} may have been processed: check before you send it again"

    @property
    def may_resend(self) -> bool:
        """Whether the request, which failed, may be sent again over a new connection."""
        if not self.is_reused or self._parser.has_started or not self.is_replayable:
            return False
        return not self._has_sent_any or self.method in IDEMPOTENT

    def end(self, connection: "Connection") -> bool:
        """Mark *connection*, which carried the exchange, as idle; return whether it may carry another request."""
        assert self.head is not None  # noqa: S101 - there is a response
        connection.end_response(self.method, self.head.status, has_surplus=self._parser.has_surplus)
        is_complete = self._is_finished and not self.unsent and not (self._is_broken or self._is_abandoned)
        return is_complete and self._parser.allows_reuse

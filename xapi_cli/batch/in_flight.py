"""A request in flight: the input line, the flow of its call, and its exchange over a connection."""

import time
from typing import TYPE_CHECKING

from xapi_cli.batch.exchanges import BufferedExchange
from xapi_cli.batch.input.entries import Entry
from xapi_cli.batch.responses import BufferedResponse
from xapi_cli.errors import XapiError
from xapi_cli.http.flow import FinalResponse, Flow, Send
from xapi_cli.request.calls import Call

if TYPE_CHECKING:
    from xapi_cli.http.connection import Connection

Outcome = FinalResponse[BufferedResponse] | XapiError


class InFlight:
    """The request of *entry*, driven by *flow* until it has an outcome."""

    __slots__ = ("attempts", "data", "entry", "exchange", "flow", "memory", "needs_new_connection", "started", "step")

    def __init__(self, entry: Entry, flow: Flow[Call, BufferedResponse]) -> None:
        self.entry, self.flow = entry, flow
        self.started = time.monotonic()
        self.exchange: BufferedExchange | None = None
        self.step: Send[Call] | None = None  # while it is being sent, or waits for a connection
        self.needs_new_connection = False  # the connection over which it was sent has failed
        self.attempts = 0
        self.data = b""  # the request as it is sent
        self.memory = entry.size  # bytes, not counting those of its exchange

    def begin(self, connection: "Connection", timeout: float) -> BufferedExchange:
        """Return the exchange of the current step over *connection*, without sending it.

        *timeout* limits each wait, in seconds.
        """
        step = self.step
        assert step is not None  # noqa: S101 - the engine has set it
        exchange = BufferedExchange(connection, step.call.method, timeout, step.needs_body)
        exchange.offer(self.data, is_last=True)
        body = step.call.body
        exchange.head_size = len(self.data) - (body.length if body is not None and step.to_api else 0)
        return exchange

    def follows_redirect(self, step: Send[Call]) -> bool:
        """Return whether *step* follows a redirect, so that the call of the entry was processed."""
        return step.call is not self.entry.call

    @property
    def number(self) -> int:
        """Return the number of the input line."""
        return self.entry.number

"""Forward the requests of many clients in one thread, without blocking on any of them.

This is a driver of `http.flow` and `http.exchange`, as the engine of a batch is. Only DNS lookups, connection setup,
TLS handshakes and logins block; they run in other threads, except a login that may prompt the user.

A client has at most one call at a time; further requests on its connection stay in its input. A call waits in one
place:

- with the connections, until there is one to the API
- on a connection, until its response was passed on, fails, or times out
- for a login: with the gate, which starts one login for all; new calls are held meanwhile

Backpressure: for a client that does not read, nothing more is received, and its next request is not processed; for an
API that does not read, nothing more is read from the client. So bodies of any size, and any number of requests, take
constant memory in both directions.

Each call takes two descriptors, and the number of descriptors is limited. So no more clients are accepted than half of
them; the others wait in the backlog of the system until a client leaves. Meanwhile, a connection ends with its call,
and those that are idle are closed.
"""

import errno
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING, Any

from xapi_cli.auth.login_gate import LoginGate
from xapi_cli.auth.token_source import TokenSource
from xapi_cli.errors import UNAUTHORIZED, NetworkError, TimeoutExpired, XapiError, unexpected
from xapi_cli.http import error_text  # noqa: F401 - it can no longer be imported when no descriptor is left
from xapi_cli.http.connection import Connection
from xapi_cli.http.connections import Connections
from xapi_cli.http.event_loop import EventLoop
from xapi_cli.http.flow import FinalResponse, Login, Policy, Send
from xapi_cli.http.network import Network
from xapi_cli.http.response_parser import ResponseHead
from xapi_cli.proxy import messages
from xapi_cli.proxy.client import Client, ForwardedCall, without_receiver
from xapi_cli.proxy.request_parser import InvalidRequest, take_head
from xapi_cli.proxy.rules import Refusal, Rules
from xapi_cli.proxy.streamed_exchange import StreamedExchange
from xapi_cli.request.calls import Call, Header
from xapi_cli.system.render import decimal
from xapi_cli.tokens import Token

if TYPE_CHECKING:
    from xapi_cli.http.request_log import RequestLog

_TICK = 0.25  # seconds between two timeout checks
_BACKLOG = 512  # connections that the system accepts before the proxy does
_ACCEPTED_AT_ONCE = 64
_OTHER_DESCRIPTORS = 48  # those that this process has open, and those of a login
_MAX_REJECTION = 64 * 1024  # bytes of the body of a 401 kept in memory to be passed on, unlike MAX_DISCARDED
_LINGER = 2.0  # seconds in which a client may read a response before it has sent the rest of its request
_MAX_LINGER = 16 * 2**20  # bytes of that rest
_REPLAYS = 1
_NEVER = float("inf")


class Server:
    """Forward the requests that *rules* allow with a token of *tokens*, over connections of *network*.

    *timeout*, in seconds, limits each wait for the API or for the headers of a request. *redact* removes secrets from a
    message, and *complete* gives a failure its hint. *headers* are added to each request, unless a forwarded field has
    the same name. *descriptors* is how many this process may have, None for any number. With *interactive*, a login may
    prompt the user; it then blocks all calls. *log* gets each request that is sent.
    """

    def __init__(
        self,
        network: Network,
        tokens: TokenSource,
        rules: Rules,
        *,
        timeout: float,
        redact: Callable[[str], str],
        complete: Callable[[XapiError], None],
        headers: tuple[Header, ...] = (),
        descriptors: int | None = None,
        interactive: bool = False,
        log: "RequestLog | None" = None,
    ) -> None:
        self._network, self._tokens, self._rules = network, tokens, rules
        self._timeout, self._redact, self._complete, self._headers = timeout, redact, complete, headers
        self._policy: Policy[Call] = Policy(rules.base_url, replays=_REPLAYS, tokens=tokens)
        self._loop = EventLoop()
        self._connections: Connections[ForwardedCall, StreamedExchange] = Connections(
            network, self._loop, timeout, on_error=self._resume, log=log
        )
        self._gate: LoginGate[ForwardedCall] = LoginGate(
            tokens,
            self._loop,
            resume=self._resume,
            is_in_use=self._is_in_use,
            on_login=self._logging_in,
            is_interactive=interactive,
        )
        self._listeners: dict[socket.socket, int | None] = {}
        self._clients: set[Client] = set()
        self._calls: set[ForwardedCall] = set()
        self._held: deque[ForwardedCall] = deque()  # until the login in progress has ended
        self._to_advance: deque[Client] = deque()  # with a call that ended or got a connection, or which read
        self._numbers = count()
        self._max_clients = _NEVER if descriptors is None else max(1, (descriptors - _OTHER_DESCRIPTORS) // 2)
        self._is_full = False  # no more clients are accepted
        self._next_timeout_check = 0.0

    # for the caller

    def listen(self, listener: socket.socket, port: int | None) -> None:
        """Accept connections on *listener*, at the TCP *port*; None for a Unix socket, on which no key is needed."""
        listener.setblocking(False)
        listener.listen(_BACKLOG)
        self._listeners[listener] = port
        self._watch_listeners()

    def wake(self) -> None:
        """Make `serve` check whether it is to end; thread-safe."""
        self._loop.wake()

    def run_in_thread(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Run *work*, which blocks, in a thread; call *then* with its result or exception in the server's thread."""
        self._loop.run_in_thread(work, then)

    def serve(self, is_ending: Callable[[], bool], *, grace: float) -> None:
        """Serve until *is_ending*; then finish calls for at most *grace* seconds."""
        while not is_ending():
            self._step()
        self._stop_listening()
        end = time.monotonic() + grace
        while self._calls and time.monotonic() < end:
            self._step()

    def close(self) -> None:
        """Close all connections."""
        self._stop_listening()
        for client in list(self._clients):
            self._drop(client)
        self._loop.close()

    # events

    def _step(self) -> None:
        for ready, events in self._loop.ready(
            min(_TICK, max(0.0, self._connections.next_grace_end - time.monotonic()))
        ):
            if isinstance(ready, Client):
                self._process_client(ready, events)
            else:
                self._process_connection(ready, events)
        self._connections.end_turn()
        now = time.monotonic()
        if now >= self._next_timeout_check:
            self._next_timeout_check = now + _TICK
            self._check_timeouts(now)
        self._gate.decide()
        while self._held and not self._gate.is_closed:
            self._resume(self._held.popleft(), None)
        while self._to_advance:
            self._advance(self._to_advance.popleft())

    def _watch_listeners(self) -> None:
        for listener, port in self._listeners.items():
            self._loop.watch_pipe(listener.fileno(), EVENT_READ, partial(self._accept, listener, port))

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            self._loop.unwatch_pipe(listener.fileno())
            listener.close()
        self._listeners.clear()

    def _accept(self, listener: socket.socket, port: int | None) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            if len(self._clients) >= self._max_clients and not self._drop_idle():
                self._pause_listening()
                return
            try:
                client = Client(listener.accept()[0], port)
            except BlockingIOError:
                return
            except OSError as error:  # for example, the client has already left
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._pause_listening()
                return
            self._clients.add(client)
            self._loop.watch(client, client.events())

    def _pause_listening(self) -> None:
        """Accept no connection until a client leaves, or the next check of timeouts."""
        self._is_full = True
        for each in self._listeners:
            self._loop.unwatch_pipe(each.fileno())

    def _resume_listening(self) -> None:
        self._is_full = False
        self._watch_listeners()

    # clients

    def _process_client(self, client: Client, events: int) -> None:
        if events & EVENT_WRITE and not client.send():
            self._drop(client)
            return
        if events & EVENT_READ and not client.receive():
            self._drop(client)
            return
        self._advance(client)
        if client.has_ended and client in self._clients:
            self._drop_left([client])

    def _advance(self, client: Client) -> None:
        """Process the input of *client* as far as possible, and send its output."""
        while not (client.closes or client.is_full) and client.call is None and client in self._clients:
            try:
                head = take_head(client.input)
            except InvalidRequest as error:
                self._refuse(client, error.status, "request", error.reason)
                break
            if head is None:
                break
            client.expires = _NEVER  # each request has its own limit
            try:
                url = self._rules.url_of(head, port=client.port)
            except Refusal as refusal:
                is_last = bool(head.length != 0 or not head.persists)
                self._refuse(client, refusal.status, refusal.kind, refusal.message, closes=is_last, method=head.method)
                continue
            number, begun = next(self._numbers), self._to_advance.append
            call = Call(head.method, url, self._headers)
            self._start(ForwardedCall(number, client, head, call, self._policy, begun))
        if client.has_ended and client.call is None and not client.is_full:
            client.closes = True
        if client.closes:
            client.discarded += len(client.input)
            client.input.clear()
        elif client.call is not None:
            self._feed(client, client.call)
        self._settle(client)

    def _settle(self, client: Client) -> None:
        """Send the output of *client*, watch it for what it needs now, and close it at its end."""
        if client not in self._clients:
            return
        was_full = client.is_full
        if not client.send() or (client.closes and client.discarded > _MAX_LINGER) or self._is_over(client):
            self._drop(client)
            return
        call = client.call
        if call is not None and call.exchange is not None and call.exchange.is_paused and not client.is_full:
            call.exchange.resume()
            self._pass_on(call, call.exchange)
            return
        if call is None and was_full and not client.is_full:
            self._to_advance.append(client)
        self._set_limit(client)
        self._loop.watch(client, client.events())

    @staticmethod
    def _is_over(client: Client) -> bool:
        """Return whether *client*, whose input has ended, has got its responses, or has not sent a complete request."""
        if not client.has_ended:
            return False
        if client.call is None:
            return client.closes and not client.output
        return client.call.upload.wants_data  # what has arrived of the body was taken

    def _set_limit(self, client: Client) -> None:
        """Limit the time for the rest of a request line and headers, and for a client to close its connection.

        The body of a request may take any time: its source may be another program that runs for long.
        """
        if client.closes:
            if client.expires == _NEVER and not client.output:
                client.end_output()
                client.expires = time.monotonic() + _LINGER
        elif client.call is not None or client.is_full or not client.input:
            client.expires = _NEVER
        elif client.expires == _NEVER:
            client.expires = time.monotonic() + self._timeout

    def _feed(self, client: Client, call: ForwardedCall) -> None:
        """Pass on what arrived of the body of *call*, as far as the API reads it."""
        while not call.upload.has_ended:
            size, was_wanted = len(client.input), call.upload.wants_data
            try:
                call.upload.take(client.input)
            except InvalidRequest as error:
                self._end(call)
                if call.is_responding:
                    self._drop(client)
                else:
                    self._refuse(client, error.status, "request", error.reason)
                return
            if (exchange := call.exchange) is not None:
                self._send(call, exchange)
            is_tried = was_wanted and len(client.input) == size  # what has arrived is a part of a line
            if call.exchange is None or not client.input or is_tried or not call.upload.wants_data:
                return

    def _send(self, call: ForwardedCall, exchange: StreamedExchange) -> None:
        try:
            exchange.send()
        except XapiError as error:  # the copy of the body
            self._failed(call, exchange, error)
            return
        if exchange.is_done:
            self._finish(call, exchange)
        else:
            self._connections.watch(exchange)

    def _refuse(
        self, client: Client, status: int, kind: str, message: str, *, closes: bool = True, method: str = "GET"
    ) -> None:
        """Respond to *client* with an error of the proxy."""
        client.output += messages.own_response(status, kind, message, closes=closes, has_body=method != "HEAD")
        client.closes = client.closes or closes

    def _drop_idle(self) -> bool:
        """Drop a client that is not expected to send a request soon; return whether there was one."""
        now = time.monotonic()
        client = next((each for each in self._clients if each.is_idle and each.expected_until < now), None)
        if client is not None:
            self._drop(client)
        return client is not None

    def _drop_left(self, clients: list[Client]) -> None:
        """Drop those of *clients*, whose input has ended, that do not wait for a response."""
        for client in without_receiver(clients):
            self._drop(client)

    def _drop(self, client: Client) -> None:
        """Close the connection of *client* and end its call; reset it if a truncated response would seem complete."""
        if client.close_ends_response and (client.output or client.call is not None):
            client.reset_at_close()
        if client.call is not None:
            self._end(client.call)
        self._clients.discard(client)
        self._loop.unwatch(client)
        client.close()
        if self._is_full:
            self._resume_listening()

    # the flow of a call

    def _start(self, call: ForwardedCall) -> None:
        client = call.client
        client.call = call
        self._calls.add(call)
        if call.head.expects_continue and not client.input:
            client.output += b"HTTP/1.1 100 Continue\r\n\r\n"
        try:
            call.upload.take(client.input)
        except InvalidRequest as error:
            self._end(call)
            self._refuse(client, error.status, "request", error.reason)
            return
        if self._gate.is_closed:
            self._held.append(call)
        else:
            self._resume(call, None)

    def _resume(self, call: ForwardedCall, result: Any) -> None:
        """Send *result* to the flow of *call*, or raise it there, and perform the next step of the flow."""
        if call.is_over:
            return
        call.step = None
        try:
            step = call.flow.throw(result) if isinstance(result, Exception) else call.flow.send(result)
        except XapiError as error:
            self._fail(call, error.with_traceback(None))  # it refers to this frame, and the frame to the error
            return
        except Exception as error:  # noqa: BLE001 - of a login, for example; the other calls go on
            self._fail(call, unexpected(error))
            return
        if isinstance(step, Send):
            if call.rejection is not None and not call.upload.is_replayable:
                self._fail(call, _too_large())
                return
            call.step, call.rejection = step, None
            self._connections.send(call, self._network.route(step.call.url))
        elif isinstance(step, Login):
            self._gate.enter(call, step)
        else:
            assert isinstance(step, FinalResponse)  # noqa: S101 - without retries, there is nothing to wait for
            self._respond(call, step.response)

    def _fail(self, call: ForwardedCall, error: XapiError) -> None:
        """Respond to the client of *call* with *error*, which ended its flow."""
        client = call.client
        is_last = not call.upload.has_ended or not call.head.persists
        self._end(call)
        self._complete(error)
        status = 504 if isinstance(error, TimeoutExpired) else 502
        self._refuse(client, status, error.kind, self._redact(str(error)), closes=is_last, method=call.head.method)
        self._to_advance.append(client)

    def _respond(self, call: ForwardedCall, head: ResponseHead) -> None:
        """Begin to pass the final response with *head* on."""
        client = call.client
        closes = not call.head.persists or self._is_full or (head.status >= 300 and not call.upload.has_ended)
        text, call.is_chunked = messages.response_head(head, call.head, self._rules.origin, closes=closes)
        client.close_ends_response = messages.ends_with_connection(head, call.head)
        if call.rejection is None:
            call.is_responding, call.ends_connection = True, closes
            client.output += text
            return
        self._gate.record_rejection()
        if call.has_rejection:
            client.output += text + call.framed(bytes(call.rejection)) + call.end_of_body
        else:
            self._refuse(client, 401, "auth", self._redact(self._tokens.advice()), method=call.head.method)
        self._end(call)
        client.closes = client.closes or closes or client.close_ends_response
        self._to_advance.append(client)

    def _end(self, call: ForwardedCall) -> None:
        """Remove *call*, complete or not."""
        if call.exchange is not None:
            self._connections.release(call.exchange, is_reusable=False)
        elif call.step is not None:
            self._connections.withdraw(call)
        call.step = None
        call.client.call = None
        self._calls.discard(call)
        call.end()

    def _logging_in(self, begins: bool) -> None:
        if begins:
            self._connections.close_unused()

    def _is_in_use(self, token: Token) -> bool:
        """Return whether a call with *token* waits for its response, after its upload, which may take any time."""
        return any(
            each.step is not None
            and each.step.token is token
            and not each.is_responding
            and (each.exchange is None or each.exchange.has_sent_all)
            for each in self._calls
        )

    # responses

    def _process_connection(self, connection: Connection, events: int) -> None:
        call = self._connections.busy.get(connection)
        if call is None or call.exchange is None:
            self._connections.check_idle(connection)
            return
        exchange = call.exchange
        try:
            exchange.process(events)
        except XapiError as error:
            self._failed(call, exchange, error)
            return
        if events & EVENT_WRITE and not call.upload.has_ended:  # there may be room for more of the body
            self._feed(call.client, call)
            self._settle(call.client)
        if call.exchange is exchange:
            self._pass_on(call, exchange)

    def _pass_on(self, call: ForwardedCall, exchange: StreamedExchange) -> None:
        """Pass on what arrived of the response in *exchange*."""
        client, head = call.client, exchange.head
        if head is None:
            self._connections.watch(exchange)
            return
        if call.response is None:
            call.response = head
            if head.status == UNAUTHORIZED and call.step is not None and call.step.token is not None:
                call.rejection, call.has_rejection = bytearray(), False
            else:
                self._resume(call, head)
        try:
            if call.rejection is not None:
                self._collect_rejection(call, exchange, call.rejection)
                return
            self._pass_on_body(call, exchange)
        except NetworkError as error:
            self._failed(call, exchange, error)
            return
        if exchange.is_done:
            self._finish(call, exchange)
            return
        self._connections.watch(exchange)
        self._settle(client)

    @staticmethod
    def _pass_on_body(call: ForwardedCall, exchange: StreamedExchange) -> None:
        """Pass on what arrived of the body of the response, and its end, which may come before that of the upload."""
        if exchange.has_response:
            return
        client = call.client
        while not client.is_full and (block := exchange.body()):
            client.output += call.framed(block)
        if exchange.has_response:
            client.output += call.end_of_body
        elif client.is_full:
            exchange.pause()

    def _collect_rejection(self, call: ForwardedCall, exchange: StreamedExchange, rejection: bytearray) -> None:
        """Keep the body of a 401, which is passed on if the 401 is final; then renew the token."""
        while block := exchange.body():
            rejection += block
        if not exchange.has_response and len(rejection) <= _MAX_REJECTION:
            self._connections.watch(exchange)
            return
        self._end_rejection(call, exchange)

    def _end_rejection(self, call: ForwardedCall, exchange: StreamedExchange) -> None:
        call.has_rejection = exchange.has_response
        self._connections.release(exchange, is_reusable=exchange.end(exchange.connection))
        self._resume(call, call.response)

    def _finish(self, call: ForwardedCall, exchange: StreamedExchange) -> None:
        """End *call*, whose response is complete."""
        client = call.client
        self._connections.release(exchange, is_reusable=exchange.end(exchange.connection))
        closes = call.ends_connection or not call.head.persists or not call.upload.has_ended
        self._end(call)
        client.closes = client.closes or closes or client.close_ends_response
        self._to_advance.append(client)

    def _failed(self, call: ForwardedCall, exchange: StreamedExchange, error: XapiError) -> None:
        """Try again after *error* if that changes nothing, else pass it on."""
        step = call.step
        self._connections.release(exchange, is_reusable=False)
        if call.is_responding:
            call.client.send()
            self._drop(call.client)
        elif call.rejection is not None and call.response is not None:
            self._resume(call, call.response)
        elif isinstance(error, NetworkError) and exchange.may_resend and call.upload.is_replayable and step is not None:
            self._connections.resend(call, self._network.route(step.call.url))
        else:
            self._resume(call, error)

    # timeouts

    def _check_timeouts(self, now: float) -> None:
        for call, exchange in self._connections.expired(now):
            self._expire(call, exchange)
        for client in [each for each in self._clients if each.expires <= now]:
            self._expire_client(client)
        self._drop_left([each for each in self._clients if each.has_ended])
        self._connections.close_expired()
        if self._is_full:
            self._resume_listening()

    def _expire(self, call: ForwardedCall, exchange: StreamedExchange) -> None:
        if call.rejection is not None:
            self._end_rejection(call, exchange)
        elif (error := exchange.timeout_error()) is not None:
            self._failed(call, exchange, error)
        else:
            self._pass_on(call, exchange)

    def _expire_client(self, client: Client) -> None:
        """End the wait for the rest of a request, or for a client to close its connection."""
        if client.closes:
            self._drop(client)
            return
        limit = f"{decimal(self._timeout)} s"
        self._refuse(client, 408, "timeout", f"the headers of the request were not complete within {limit}")
        client.expires = _NEVER
        self._settle(client)


def _too_large() -> NetworkError:
    return NetworkError("the token was rejected, and the body is too large to be sent again", hint="send it again")

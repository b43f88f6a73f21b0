"""Which request of an event loop each connection carries, and which requests wait for one."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from xapi_cli.errors import NetworkError, TimeoutExpired, XapiError
from xapi_cli.http.connection import BLOCK, Connection, Route
from xapi_cli.http.event_loop import EventLoop
from xapi_cli.http.exchange import Exchange
from xapi_cli.http.network import Network
from xapi_cli.http.pool import ConnectionPool
from xapi_cli.system.render import decimal

if TYPE_CHECKING:
    from xapi_cli.http.request_log import RequestLog
    from xapi_cli.http.response_parser import ResponseHead


class CarriedExchange(Exchange):
    """An exchange with *method* over *connection*: it sends and receives what is possible without blocking.

    *timeout* limits each wait, in seconds; the current one *expires* at a time of the monotonic clock. *needs_body* is
    that of `Exchange`.
    """

    is_watched = False  # for the events that the exchange needs, otherwise as an idle connection
    is_held = False  # it has a connection, but may not be sent yet

    def __init__(
        self,
        connection: Connection,
        method: str,
        timeout: float,
        needs_body: "Callable[[ResponseHead], bool] | None" = None,
    ) -> None:
        is_reused, over_tls = connection.kind is not None, connection.tls is not None
        super().__init__(connection.route, method, is_reused=is_reused, over_tls=over_tls, needs_body=needs_body)
        self.connection, self._timeout = connection, timeout
        self.expires = self.started + timeout
        self.was_idle = is_reused  # the connection was idle, so the server may have closed it

    def events(self) -> int:
        """Return the selector events to wait for."""
        raise NotImplementedError

    def send(self) -> None:
        """Send as much of the request as the connection takes."""
        while self.unsent and not self.stops_sending:
            try:
                count = self.connection.send_now(self.unsent)
            except OSError:
                self.cannot_send()
            else:
                self.sent(count)
                if not count:
                    break
            self.expires = time.monotonic() + self._timeout

    def receive_block(self, size: int = BLOCK) -> bool:
        """Process one block that has arrived, so that other exchanges get a turn; return whether there was one.

        *size* is its greatest length, as for `Connection.receive_now`.
        """
        try:
            data: bytes | OSError | None = self.connection.receive_now(size)
        except OSError as error:
            data = error.with_traceback(None)  # it refers to this frame, and the frame to the error
        if data is None:
            return False
        self.receive(data)
        return True

    def restart_timeout(self) -> None:
        """Begin another wait."""
        self.expires = time.monotonic() + self._timeout

    def timeout_error(self) -> TimeoutExpired | None:
        """Return the error after the timeout; None if the exchange goes on without the rest of the request."""
        if self.expire():
            self.restart_timeout()
            return None
        missing = f"{self.awaited()} within {decimal(self._timeout)} s"
        error = TimeoutExpired(missing, hint="raise --timeout to wait longer")
        self.record_sent(error)
        return error


E = TypeVar("E", bound=CarriedExchange)


class CarriedRequest(Protocol[E]):
    """A request, and its *exchange* while a connection carries it; *attempts* counts the exchanges that were begun."""

    exchange: E | None
    attempts: int

    def begin(self, connection: Connection, timeout: float, /) -> E:
        """Return the exchange of the request over *connection*, without sending it.

        *timeout* limits each wait, in seconds. Raises XapiError if the body cannot be read again.
        """


R = TypeVar("R", bound=CarriedRequest[Any])


class Limiter(Protocol):
    """Limits the requests that are sent."""

    def try_send(self) -> bool:
        """Return whether a request may be sent now, and count it if so."""

    def is_blocked(self) -> bool:
        """Return whether `try_send` has returned False, and nothing may be sent yet."""


class Connections(Generic[R, E]):
    """Assign connections to requests; open more with *network* if none is idle.

    *timeout* limits each wait of a connection, in seconds. *on_error* receives a waiting
    request and the exception if no connection could be opened for it. *log* gets all exchanges.
    If it *collects*, a request that gets a connection is sent by the next `flush`, otherwise immediately.
    """

    limiter: Limiter | None = None  # permits each request; what it does not permit now, a later `flush` sends

    def __init__(
        self,
        network: Network,
        loop: EventLoop,
        timeout: float,
        on_error: Callable[[R, Exception], None],
        log: "RequestLog | None" = None,
        *,
        collects: bool = False,
    ) -> None:
        self._log, self._collects = log, collects
        self._network, self._loop, self._timeout, self._on_error = network, loop, timeout, on_error
        self.busy: dict[Connection, R] = {}
        # if requests are collected, `flush` checks the connections, when it sends
        self._pool: ConnectionPool[Route] = ConnectionPool(on_close=loop.unwatch, waits=False, checks=not collects)
        self._dialing: dict[Route, int] = {}  # number of connections that are being opened
        self._waiting: dict[Route, deque[R]] = {}  # for any connection
        self._resending: dict[Route, deque[R]] = {}  # for a new connection
        self._begun: list[tuple[R, E]] = []  # requests of which nothing has been sent
        self.holds_requests = False  # the last `flush` left requests that could not be sent yet
        self.paused: set[E] = set()  # exchanges that are not read, because the memory budget is exhausted

    # requests

    def send(self, request: R, route: Route) -> None:
        """Send *request* over an idle connection to *route*, or as soon as there is one."""
        connection = self._pool.acquire(route)
        if connection is not None:
            self._begin(connection, request)
        else:
            self.wait(request, route)

    def wait(self, request: R, route: Route) -> None:
        """Queue *request* for the next connection: one that becomes idle or a new one, whichever is available first."""
        self._waiting.setdefault(route, deque()).append(request)
        self._dial_for_waiting(route)

    def resend(self, request: R, route: Route) -> None:
        """Send *request*, which failed on a connection that was open before, over a new connection.

        If it fails there too, the cause is the request, and not that the connection was idle for too long.
        """
        self._resending.setdefault(route, deque()).append(request)
        self._dial_for_waiting(route)

    def flush(self) -> None:
        """Send the requests that got a connection since the last call, one immediately after the other.

        Data wakes a server that waits for it, and waking it takes longer than sending the data. A server that is still
        busy with the previous request need not be woken.
        """
        if self.holds_requests and self.limiter is not None and self.limiter.is_blocked():
            self._hold(self._begun)  # a connection that was closed is not replaced before something may be sent
            return
        while self._begun:
            begun, self._begun, self.holds_requests = self._begun, [], False
            for number, (request, exchange) in enumerate(begun):
                if request.exchange is not exchange:
                    continue  # it was canceled, or has another connection
                if self._collects and exchange.was_idle and not exchange.connection.is_idle():
                    self._send_elsewhere(request, exchange)
                    continue
                if self.limiter is not None and not self.limiter.try_send():
                    self._hold(begun[number:] + self._begun)
                    return
                self._send_begun(request, exchange)

    def end_turn(self) -> None:
        """Log the exchanges that have ended, and serve waiting requests, after the events of a turn.

        These get the connections that became idle, or whose grace period is over.
        """
        if self._log is not None:
            self._log.flush()
        if not any(self._waiting.values()):
            return
        for route in [route for route, waiting in self._waiting.items() if waiting]:
            waiting = self._waiting[route]
            while waiting and (connection := self._pool.acquire(route)) is not None:
                self._begin(connection, waiting.popleft())
            self._dial_for_waiting(route)

    def release(self, exchange: E, *, is_reusable: bool) -> None:
        """Take the connection of *exchange* from its request; keep it open if it *is_reusable*."""
        connection = exchange.connection
        self.busy.pop(connection).exchange = None
        if self._log is not None:
            self._log.add(exchange)
        self.paused.discard(exchange)
        if not is_reusable:
            self._pool.discard(connection)
        elif self._pool.release(connection.route, connection) and exchange.is_watched:
            self._watch_idle(connection)

    def withdraw(self, request: R) -> None:
        """Remove *request*, if it waits for a connection."""
        for waiting in (*self._waiting.values(), *self._resending.values()):
            if request in waiting:
                waiting.remove(request)

    def unsent_requests(self) -> list[R]:
        """Return the requests that were never sent, and those that are held, maybe after an earlier attempt."""
        waiting = [request for each in self._waiting.values() for request in each if not request.attempts]
        begun = [(each, exchange) for each, exchange in self._begun if each.exchange is exchange]
        return waiting + [each for each, exchange in begun if each.attempts == 1 or exchange.is_held]

    def drop(self, requests: Iterable[R]) -> None:
        """Remove *requests*, which are among the `unsent_requests`."""
        for request in requests:
            if request.exchange is not None:
                self._take_back(request, request.exchange)
            else:
                self.withdraw(request)

    def stop_waiting(self) -> None:
        """Remove all requests that wait for a connection."""
        self._waiting.clear()
        self._resending.clear()

    def log_interrupted(self) -> None:
        """Log the exchanges that the end of the event loop interrupts; the log writes their lines when it is closed."""
        if self._log is not None:
            self.drop(self.unsent_requests())  # the log has only what may have been sent
            for request in self.busy.values():
                if request.exchange is not None:
                    self._log.add(request.exchange)

    # connections

    def watch(self, exchange: E) -> None:
        """Watch the connection of *exchange* for the events that it needs, unless it is paused."""
        exchange.is_watched = True
        self._loop.watch(exchange.connection, 0 if exchange in self.paused else exchange.events())

    def check_idle(self, connection: Connection) -> None:
        """Close *connection*, which is idle, if it was closed or received data."""
        if not connection.is_idle():
            self._pool.remove(connection.route, connection)

    def close_expired(self) -> None:
        """Close the connections that have been idle for too long."""
        self._pool.close_expired()

    def close_unused(self) -> None:
        """Close the connections if all are idle: a server that serves one at a time then gets to that of a login."""
        self._pool.close_unused()

    @property
    def next_grace_end(self) -> float:
        """Return when an idle connection can first serve a waiting request; infinite if none waits for that."""
        if not any(self._waiting.values()):
            return float("inf")
        ends = [self._pool.next_grace_end(route) for route, waiting in self._waiting.items() if waiting]
        return min((end for end in ends if end is not None), default=float("inf"))

    # backpressure

    def pause(self, exchange: E) -> None:
        """Stop reading for *exchange*; its timeout is suspended."""
        self.paused.add(exchange)
        exchange.expires = float("inf")
        self.watch(exchange)

    def is_paused(self, exchange: E | None) -> bool:
        """Return whether *exchange* is paused."""
        return exchange in self.paused

    def resume_paused(self) -> None:
        """Read from all connections again."""
        paused, self.paused = self.paused, set()
        for exchange in paused:
            exchange.restart_timeout()
            self.watch(exchange)

    # timeouts

    def expired(self, now: float) -> Iterator[tuple[R, E]]:
        """Yield the requests that have timed out, except those with unread data: this process was late, not the server.

        Requests that end while the caller iterates are omitted.
        """
        expired: list[tuple[R, E]] = [
            (request, exchange)
            for request in self.busy.values()
            if (exchange := request.exchange) is not None and exchange.expires <= now
        ]
        pending = self._loop.pending() if expired else ()
        for request, exchange in expired:
            is_carried = request.exchange is exchange
            if is_carried and exchange.connection not in pending:
                yield request, exchange

    # steps

    def _begin(self, connection: Connection, request: R) -> None:
        try:
            exchange = request.begin(connection, self._timeout)
        except XapiError as error:  # the copy of its body cannot be read
            self._pool.discard(connection)
            self._on_error(request, error)
            return
        self.busy[connection], request.exchange = request, exchange
        request.attempts += 1
        exchange.attempt = request.attempts
        self._begun.append((request, exchange))
        if not self._collects:
            self.flush()

    def _hold(self, begun: list[tuple[R, E]]) -> None:
        """Keep *begun* for the next `flush`; what arrives until then is no response, so it is not read."""
        self._begun, self.holds_requests = begun, True
        for request, exchange in begun:
            if request.exchange is exchange and not exchange.is_held:
                exchange.is_held = exchange.was_idle = True
                exchange.expires = float("inf")
                self._loop.watch(exchange.connection, 0)

    def _send_elsewhere(self, request: R, exchange: E) -> None:
        """Send *request* over another connection: that of *exchange* was closed, or received data, in the meantime."""
        self._take_back(request, exchange)
        self.send(request, exchange.connection.route)

    def _take_back(self, request: R, exchange: E) -> None:
        """Close the connection of *exchange*, over which nothing of *request* was sent."""
        del self.busy[exchange.connection]
        self.paused.discard(exchange)
        self._pool.discard(exchange.connection)
        request.exchange = None
        request.attempts -= 1

    def _send_begun(self, request: R, exchange: E) -> None:
        try:
            exchange.send()
        except XapiError as error:  # the copy of its body cannot be read
            self.release(exchange, is_reusable=False)
            self._on_error(request, error)
            return
        was_held, exchange.is_held = exchange.is_held, False
        if exchange.unsent or exchange.over_tls or not exchange.is_reused or was_held:
            self.watch(exchange)  # otherwise, it has been watched for a response since it became idle

    def _dial_for_waiting(self, route: Route) -> None:
        """Open a connection for each waiting request, minus the idle connections, which are in their grace periods."""
        needed = max(0, len(self._waiting.get(route, ())) - self._pool.count(route))
        needed += len(self._resending.get(route, ()))
        while self._dialing.get(route, 0) < needed:
            self._dialing[route] = self._dialing.get(route, 0) + 1
            self._loop.run_in_thread(lambda: self._network.dial(route), lambda result: self._dialed(route, result))

    def _dialed(self, route: Route, result: Connection | Exception) -> None:
        self._dialing[route] -= 1
        waiting = self._resending.get(route) or self._waiting.get(route)
        if isinstance(result, Exception):
            if waiting:
                self._on_error(waiting.popleft(), result)
            elif not isinstance(result, (NetworkError, TimeoutExpired)):
                raise result
            return
        if waiting:
            self._begin(result, waiting.popleft())
        elif self._pool.release(route, result):
            self._watch_idle(result)

    def _watch_idle(self, connection: Connection) -> None:
        self._loop.watch(connection, connection.events(receiving=True))

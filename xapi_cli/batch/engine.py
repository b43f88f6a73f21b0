"""Run many calls concurrently in one thread, without blocking on any single call.

Only DNS lookups, connection setup, TLS handshakes and logins block; they run in
separate threads. `make bench-batch` measures the throughput.
"""

import heapq
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from itertools import count
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from xapi_cli.batch.connections import READ, WRITE, ClientConnection
from xapi_cli.batch.entries import Entry
from xapi_cli.batch.flow import Answer, Course, Pause, Policy, Renew, Send
from xapi_cli.batch.memory_budget import MemoryBudget
from xapi_cli.batch.network import Composer, Network
from xapi_cli.batch.responses import Reply
from xapi_cli.errors import (
    AuthenticationError,
    ClientStatusError,
    NetworkError,
    RedirectError,
    ServerStatusError,
    TimeoutExpired,
    XapiError,
)
from xapi_cli.http.connection import Connection, Route
from xapi_cli.http.reuse import GRACE, KEEP_ALIVE, Reuse
from xapi_cli.tokens import Token

_TICK = 0.25  # seconds between two timeout checks
_TURN = 0.01  # seconds spent on one long response before other work continues
_OF_ONE_LINE = (NetworkError, TimeoutExpired, AuthenticationError, RedirectError, ClientStatusError, ServerStatusError)


class InFlight:
    """A call in flight."""

    __slots__ = ("channel", "course", "entry", "held", "request", "started", "wanted")

    def __init__(self, entry: Entry, course: Course) -> None:
        self.entry, self.course = entry, course
        self.started = time.monotonic()
        self.channel: ClientConnection | None = None
        self.wanted: Send | None = None
        self.request = b""
        self.held = entry.size  # bytes in memory, not counting those of its connection

    @property
    def elapsed_ms(self) -> int:
        """Return the milliseconds since the call started."""
        return round((time.monotonic() - self.started) * 1000)


Steps = Iterator[None]
OnDone = Callable[[InFlight, Answer | XapiError], Steps | None]


class Engine:
    """Send the entries from *take*, at most *jobs* concurrently, and pass each outcome to *landed*.

    *landed* returns an iterator over the remaining steps if a response is long, else None. The
    engine interleaves these steps with other work. It prefers the response that has used the least
    time, so that no response waits for a longer one. With *ordered*, the result of a finished call
    may stay in the memory budget until all earlier calls have finished.

    *take* returns None if there is currently nothing to send; `wake`, which is thread-safe,
    makes the engine call it again. *logging_in* is called with True before a login, which may
    print messages, and with False after it. With *interactive*, a login may prompt the user;
    it then blocks the engine. *timeout* is in seconds.
    """

    def __init__(
        self,
        network: Network,
        rules: Policy,
        *,
        jobs: int,
        timeout: float,
        budget: MemoryBudget,
        take: Callable[[], Entry | None],
        landed: OnDone,
        ordered: bool = False,
        interactive: bool = False,
        logging_in: Callable[[bool], None] = lambda begins: None,
    ) -> None:
        self._network, self._rules, self._shared = network, rules, rules.shared
        self._jobs, self._timeout, self._budget = jobs, timeout, budget
        self._take, self._landed, self._ordered = take, landed, ordered
        self._interactive, self._logging_in = interactive, logging_in
        self._composer = Composer()
        self._selector = selectors.DefaultSelector()
        self._alarm, self._bell = socket.socketpair()
        self._alarm.setblocking(False)
        self._bell.setblocking(False)
        self._selector.register(self._alarm, READ)
        self._from_threads: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._flights: set[InFlight] = set()
        self._busy: dict[ClientConnection, InFlight] = {}
        self._idle: dict[Route, deque[ClientConnection]] = {}  # longest idle first
        self._reuse = Reuse()
        self._waiting: dict[Route, deque[InFlight]] = {}
        self._dialling: dict[Route, int] = {}
        self._events: dict[ClientConnection, int] = {}
        self._paused: list[tuple[float, int, InFlight]] = []  # heap of retries, by due time
        self._work: list[tuple[float, int, InFlight, Steps]] = []  # heap, by the time spent
        self._held: set[ClientConnection] = set()  # not read while the memory budget is exhausted
        self._for_token: list[InFlight] = []
        self._undecided: list[tuple[InFlight, Token]] = []  # rejected, but the token may still be valid
        self._is_renewing = False
        self._is_stopping = False
        self._order = count()
        self._next_look = 0.0

    # public interface

    @property
    def in_flight(self) -> int:
        """Return the number of calls in flight."""
        return len(self._flights)

    @property
    def is_renewing(self) -> bool:
        """Return whether a login is in progress."""
        return self._is_renewing

    @property
    def is_asking(self) -> bool:
        """Return whether an interactive login, which may prompt the user, blocks the engine."""
        return self._is_renewing and self._interactive

    def wake(self) -> None:
        """Make the engine check for new input and results; thread-safe."""
        with suppress(OSError):  # the socket buffer is full, so a wake-up is pending already
            self._bell.send(b"\0")

    def stop(self) -> None:
        """Start no more calls; those in flight can finish."""
        self._is_stopping = True

    def give_up(self, error: XapiError) -> None:
        """End all calls in flight with *error*."""
        for flight in sorted(self._flights, key=lambda each: each.entry.number):
            if flight.channel is not None:
                del self._busy[flight.channel]
                self._drop(flight.channel)
            self._land(flight, error)
        self._work.clear()
        self._paused.clear()
        self._for_token.clear()
        self._undecided.clear()
        self._waiting.clear()

    def step(self, *, has_more: Callable[[], bool]) -> bool:
        """Process what is ready, or wait briefly for events.

        Return False if no call is in flight and none will follow: the engine is stopping, or
        *has_more* returns False.
        """
        self._fill()
        if self._is_stopping:
            self._give_up_pauses()
        if not self._flights and (self._is_stopping or not has_more()):
            return False
        self._poll(0.0 if self._work else self._patience())
        if self._work:
            self._do_work()
        return True

    def close(self) -> None:
        """Close all connections."""
        for channel in list(self._events):
            self._drop(channel)
        self._selector.close()
        self._alarm.close()
        self._bell.close()

    # starting calls

    def _fill(self) -> None:
        while len(self._flights) < self._jobs and not (self._is_stopping or self._is_renewing or self._undecided):
            if not self._budget.has_room and self._flights:
                return
            entry = self._take()
            if entry is None:
                return
            self._begin(entry)

    def _begin(self, entry: Entry) -> None:
        assert entry.call is not None  # noqa: S101 - bad lines are not sent
        self._budget.add(entry.size)
        flight = InFlight(entry, self._rules.course(entry.call, authorized=entry.is_authorized))
        self._flights.add(flight)
        self._go_on(flight, None)

    def _go_on(self, flight: InFlight, value: Any) -> None:
        """Send *value* to the flow of *flight*, or raise it there, and perform the next step of the flow."""
        flight.wanted = None
        try:
            wanted = flight.course.throw(value) if isinstance(value, Exception) else flight.course.send(value)
        except StopIteration as end:
            self._land(flight, end.value)
        except _OF_ONE_LINE as error:
            self._land(flight, error)
        else:
            self._do(flight, wanted)

    def _do(self, flight: InFlight, wanted: Send | Renew | Pause) -> None:
        if isinstance(wanted, Send):
            self._send(flight, wanted)
        elif isinstance(wanted, Renew):
            self._renew(flight, wanted.rejected)
        else:
            heapq.heappush(self._paused, (time.monotonic() + wanted.seconds, next(self._order), flight))

    def _land(self, flight: InFlight, outcome: Answer | XapiError) -> None:
        steps = self._landed(flight, outcome)
        if steps is None:
            self._end(flight)
            return
        assert isinstance(outcome, Answer)  # noqa: S101 - an error has no body
        size = len(outcome.reply.body)
        flight.held += size
        self._budget.add(size)
        heapq.heappush(self._work, (0.0, next(self._order), flight, steps))

    def _do_work(self) -> None:
        """Run steps, for a limited time, for the long response that has used the least time."""
        spent, order, flight, steps = heapq.heappop(self._work)
        start = now = time.monotonic()
        while now - start < _TURN:
            try:
                next(steps)
            except StopIteration:
                self._end(flight)
                return
            now = time.monotonic()
        heapq.heappush(self._work, (spent + now - start, order, flight, steps))

    def _end(self, flight: InFlight) -> None:
        self._flights.discard(flight)
        self._budget.remove(flight.held)
        if self._held:
            self._release_held()

    # sending

    def _send(self, flight: InFlight, wanted: Send) -> None:
        flight.wanted = wanted
        route = self._network.route(wanted.call.url)
        flight.request = self._composer.compose(wanted.call, route, wanted.token, inside=wanted.inside)
        channel = self._idle_channel(route)
        if channel is not None:
            self._begin_on(channel, flight)
        else:
            self._queue(route, flight)

    def _idle_channel(self, route: Route) -> ClientConnection | None:
        """Return an idle connection that can be used now, or None if there is none past its grace period."""
        idle = self._idle.get(route)
        while idle:
            index = self._reuse.choice(idle)
            if index is None:
                return None
            channel = idle[index]
            del idle[index]
            if self._reuse.is_fit(channel.connection):
                return channel
            self._drop(channel)
        return None

    def _begin_on(self, channel: ClientConnection, flight: InFlight) -> None:
        assert flight.wanted is not None  # noqa: S101 - it has been set by _send()
        flight.channel = channel
        self._busy[channel] = flight
        channel.begin(flight.wanted.call.method, flight.request, flight.wanted.needs_body)
        self._watch(channel)

    def _queue(self, route: Route, flight: InFlight) -> None:
        """Queue *flight* for the next connection: one that becomes idle or a new one, whichever is available first."""
        self._waiting.setdefault(route, deque()).append(flight)
        self._dial_for_waiting(route)

    def _dial_for_waiting(self, route: Route) -> None:
        """Open a connection for each waiting call, minus the idle connections, which are in their grace periods."""
        in_prospect = len(self._idle.get(route, ()))
        while self._dialling.get(route, 0) + in_prospect < len(self._waiting[route]):
            self._dialling[route] = self._dialling.get(route, 0) + 1
            self._in_thread(lambda: self._network.dial(route), lambda result: self._dialled(route, result))

    def _dialled(self, route: Route, result: "Connection | Exception") -> None:
        self._dialling[route] -= 1
        waiting = self._waiting.get(route)
        if isinstance(result, Exception):
            if waiting:
                self._go_on(waiting.popleft(), result)
            elif not isinstance(result, _OF_ONE_LINE):
                raise result
            return
        channel = ClientConnection(result, self._timeout)
        self._events[channel] = 0
        if waiting:
            self._begin_on(channel, waiting.popleft())
        else:
            self._rest(channel)

    def _rest(self, channel: ClientConnection) -> None:
        """Add *channel* to the idle connections."""
        self._idle.setdefault(channel.route, deque()).append(channel)
        self._watch(channel)

    def _serve_waiting(self) -> None:
        """Assign to waiting calls the connections that became idle or whose grace period is over."""
        for route in [route for route, waiting in self._waiting.items() if waiting]:
            waiting = self._waiting[route]
            while waiting and (channel := self._idle_channel(route)) is not None:
                self._begin_on(channel, waiting.popleft())
            self._dial_for_waiting(route)

    # receiving

    def _poll(self, patience: float) -> None:
        ready = self._selector.select(patience)
        now = time.monotonic()
        for key, events in ready:
            if key.fileobj is self._alarm:
                self._listen()
            elif key.fileobj in self._events:  # an earlier event may have dropped it
                self._attend(key.fileobj, events)
        self._serve_waiting()
        if now >= self._next_look:
            self._next_look = now + _TICK
            self._look_at_the_clock(now)
        while self._paused and self._paused[0][0] <= now:
            self._go_on(heapq.heappop(self._paused)[2], None)
        undecided, self._undecided = self._undecided, []
        for flight, rejected in undecided:
            self._renew(flight, rejected)

    def _patience(self) -> float:
        """Return the maximum time to wait for events, in seconds."""
        ends = [self._paused[0][0]] if self._paused else []
        ends += [self._idle[route][0].idle_since + GRACE for route in self._waiting if self._waits_for_grace(route)]
        if self._rules.deadline is not None:
            ends.append(self._rules.deadline)
        return max(0.0, min([_TICK, *(end - time.monotonic() for end in ends)])) if ends else _TICK

    def _waits_for_grace(self, route: Route) -> bool:
        return bool(self._waiting[route] and self._idle.get(route))

    def _listen(self) -> None:
        with suppress(OSError):
            self._alarm.recv(65_536)
        while True:
            try:
                job = self._from_threads.get_nowait()
            except Empty:
                return
            job()

    def _attend(self, channel: ClientConnection, events: int) -> None:
        flight = self._busy.get(channel)
        if flight is None:
            if not channel.connection.is_silent():
                self._idle[channel.route].remove(channel)
                self._drop(channel)
            return
        if self._is_over_budget(channel, flight):
            return
        reading = channel.reading
        before = reading.memory if reading else 0
        had_head = reading is not None and reading.has_head
        reply: Reply | None = None
        try:
            if events & WRITE:
                reply = channel.send()
            if reply is None and (events & READ or channel.connection.tls):
                reply = channel.receive()
        except NetworkError as error:
            self._budget.remove(before)
            self._failed(channel, flight, error)
            return
        if reply is None:
            if reading is not None and reading.memory != before:
                self._budget.add(reading.memory - before)
            if reading is not None and reading.has_head and not had_head:
                self._heard(flight, reading.status)
            self._watch(channel)
            return
        self._budget.remove(before)
        self._replied(channel, flight, reply)

    def _heard(self, flight: InFlight, status: int | None) -> None:
        """Record early, from the status alone, that the token is valid: the body may take long to arrive."""
        token = flight.wanted.token if flight.wanted is not None else None
        if token is not None and status != 401:
            self._shared.worked(token)

    def _replied(self, channel: ClientConnection, flight: InFlight, reply: Reply) -> None:
        del self._busy[channel]
        flight.channel = None
        if reply.persists and self._reuse.is_allowed(channel.connection):
            self._rest(channel)
        else:
            self._drop(channel)
        self._go_on(flight, reply)

    def _failed(self, channel: ClientConnection, flight: InFlight, error: XapiError) -> None:
        del self._busy[channel]
        flight.channel = None
        self._drop(channel)
        if channel.may_repeat and isinstance(error, NetworkError):
            self._queue(channel.route, flight)
        else:
            self._go_on(flight, error)

    # memory

    def _is_over_budget(self, channel: ClientConnection, flight: InFlight) -> bool:
        """Pause *channel* if the memory budget is exhausted; one call is exempt, so that there is always progress."""
        if self._budget.has_room or channel.reading is None or self._goes_first(flight):
            return False
        self._held.add(channel)
        channel.expires = float("inf")
        self._watch(channel)
        return True

    def _goes_first(self, flight: InFlight) -> bool:
        """Return whether *flight* is the oldest call on a connection or, if results are ordered, the oldest of all."""
        if self._work:
            return False  # finishing the pending steps frees memory
        rivals = self._flights if self._ordered else self._busy.values()
        return flight.entry.number == min(each.entry.number for each in rivals)

    def _release_held(self) -> None:
        """Resume the paused connections; if there is still no room, they are paused again immediately."""
        held, self._held = self._held, set()
        for channel in held:
            channel.expires = time.monotonic() + self._timeout
            self._watch(channel)

    # timeouts

    def _look_at_the_clock(self, now: float) -> None:
        self._release_held()
        late = [channel for channel in self._busy if channel.expires <= now]
        if late:
            self._expire(late)
        for idle in self._idle.values():
            for channel in [each for each in idle if now - each.idle_since > KEEP_ALIVE]:
                idle.remove(channel)
                self._drop(channel)

    def _expire(self, late: list[ClientConnection]) -> None:
        """End the calls on *late*, except those with unread data: a slow reader of stdout may have delayed us."""
        ready = {key.fileobj for key, _ in self._selector.select(0)}
        for channel in late:
            flight = self._busy.get(channel)
            if flight is not None and channel not in ready:
                if channel.reading is not None:
                    self._budget.remove(channel.reading.memory)
                outcome = channel.expire()
                if isinstance(outcome, Reply):
                    self._replied(channel, flight, outcome)
                else:
                    self._failed(channel, flight, outcome)

    def _give_up_pauses(self) -> None:
        """Drop the calls that wait for a retry."""
        for _, _, flight in self._paused:
            self._end(flight)
        self._paused.clear()

    # the token

    def _renew(self, flight: InFlight, rejected: Token | None) -> None:
        known = self._shared.known
        if known is not None and (rejected is None or known.access_token != rejected.access_token):
            self._go_on(flight, known)
            return
        if rejected is not None and self._is_out(rejected) and self._shared.is_doubtful(rejected):
            self._undecided.append((flight, rejected))
            return
        if (failure := self._shared.failure) is not None:
            self._go_on(flight, failure)
            return
        self._for_token.append(flight)
        if self._is_renewing:
            return
        self._is_renewing = True
        self._logging_in(True)

        def get() -> Token | None:
            return self._shared.current() if rejected is None else self._shared.renew(rejected)

        def got(result: Token | Exception | None) -> None:
            self._is_renewing = False
            self._logging_in(False)
            flights, self._for_token = self._for_token, []
            for each in sorted(flights, key=lambda each: each.entry.number):
                self._go_on(each, copy(result) if isinstance(result, Exception) else result)

        if self._interactive:
            got(_result(get))
        else:
            self._in_thread(get, got)

    def _is_out(self, token: Token) -> bool:
        """Return whether a request with *token* is in flight, not counting paused connections."""
        return any(
            flight.wanted is not None and flight.wanted.token is token and flight.channel not in self._held
            for flight in self._flights
        )

    # helpers

    def _watch(self, channel: ClientConnection) -> None:
        """Register *channel* with the selector for the events that it needs."""
        wanted = 0 if channel in self._held else channel.events()
        current = self._events[channel]
        if wanted == current:
            return
        if not current:
            self._selector.register(channel, wanted)
        elif not wanted:
            self._selector.unregister(channel)
        else:
            self._selector.modify(channel, wanted)
        self._events[channel] = wanted

    def _drop(self, channel: ClientConnection) -> None:
        if self._events.pop(channel, 0):
            self._selector.unregister(channel)
        self._held.discard(channel)
        self._reuse.note(channel.connection)
        channel.close()

    def _in_thread(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Run *work*, which blocks, in a thread; call *then* with its result or exception in the engine's thread."""

        def run() -> None:
            result = _result(work)
            self._from_threads.put(lambda: then(result))
            self.wake()

        try:
            Thread(target=run, daemon=True).start()
        except RuntimeError:  # the thread limit is reached
            then(NetworkError("no more threads can be started", hint="use fewer --jobs"))


def _result(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - the caller raises it
        return error

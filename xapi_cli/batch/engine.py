"""Run many calls concurrently in one thread, without blocking on any single call.

Only DNS lookups, connection setup, TLS handshakes and logins block; they run in separate threads, except a login that
may prompt the user. `make bench-batch` measures the throughput.

A request is in `_requests` from when its line is started until its result is complete. Its flow (`http.flow`)
decides what it does next, and each step leads to one place where it waits:

- to be sent: in `_unsent`, until the rate limiter permits it; then with the connections, until there is one, and until
  the requests before it that had to wait for one leave room in the rate
- on a connection, until its response is complete, fails, or times out
- for a login: with the gate, which starts one login for all
- for a retry: in `_retries`, until it is due
- for its output: in `_long_responses`, a few milliseconds at a time, or for memory in `_memory_queue`

New lines are held back while as many requests as *jobs* are in flight, while the rate limiter does not permit them,
while the memory budget has no room, and while the token is about to change. A request that has begun goes on, so that
memory is freed and a rejected token is replaced; only its response waits while the budget has no room. One request is
exempt from the memory budget, or all could wait for room: the one whose end lets others end. While long responses that
have arrived are processed, new lines, and the first 64 KiB of each response, use a reserve: no line waits
for the processing of another.
"""

import heapq
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

from xapi_cli.auth.login_gate import LoginGate
from xapi_cli.auth.token_source import TokenSource
from xapi_cli.batch.composer import Composer
from xapi_cli.batch.exchanges import BlockSize, BufferedExchange
from xapi_cli.batch.in_flight import InFlight, Outcome
from xapi_cli.batch.input.entries import Entry
from xapi_cli.batch.memory_budget import MemoryBudget
from xapi_cli.batch.queues import FairQueue, MemoryQueue, SendQueue
from xapi_cli.batch.rate_limiter import RateLimiter
from xapi_cli.batch.responses import BufferedResponse
from xapi_cli.errors import UNAUTHORIZED, NetworkError, XapiError
from xapi_cli.http import authorization, retry
from xapi_cli.http.connection import BLOCK, Connection
from xapi_cli.http.connections import Connections
from xapi_cli.http.event_loop import EventLoop
from xapi_cli.http.flow import FinalResponse, Login, Policy, Send
from xapi_cli.http.network import Network
from xapi_cli.request.calls import Call
from xapi_cli.tokens import Token

if TYPE_CHECKING:
    from xapi_cli.http.request_log import RequestLog

_TICK = 0.25  # seconds between two timeout checks
_TURN = 0.02  # seconds spent on events before other work continues
_MAX_HANDICAP = 0.2  # seconds by which a response that takes long to process can be postponed
_RESERVED_START = 64 * 1024  # the first bytes of each response, which may use the reserve of the memory budget
# Seconds that a request waits for others, to be sent with them. With ten times as many, the requests to a remote server
# proceed in step, and the connections wait for each other.
_LONGEST_COLLECTION = 0.0002

Steps = Iterator[int | None]
OnDone = Callable[[InFlight, Outcome], Steps | None]


class Engine:
    """Send the entries from *next_entry*, at most *jobs* concurrently, and pass each outcome to *on_done*.

    *next_entry* returns None if there is currently nothing to send; `wake`, which is thread-safe, makes the engine call
    it again. *on_done* returns an iterator over the remaining steps if a response is long, else None; the engine
    interleaves these steps with other work. A step that yields a number waits until *budget* has room for that many
    bytes. With *ordered*, the result of a finished request may stay in the memory budget until all
    earlier requests have finished. *limiter* decides when a request may be sent.

    *on_login* is called with True before a login, which may print messages, and with False after it. With
    *interactive*, a login may prompt the user; it then blocks the engine. *timeout* is in seconds. *log* gets each
    request that is sent. *on_pause* is called with a line about each pause that the API asks for.
    """

    def __init__(
        self,
        network: Network,
        policy: Policy[Call],
        tokens: TokenSource,
        *,
        jobs: int,
        timeout: float,
        budget: MemoryBudget,
        next_entry: Callable[[], Entry | None],
        on_done: OnDone,
        limiter: RateLimiter,
        ordered: bool = False,
        interactive: bool = False,
        on_login: Callable[[bool], None] = lambda begins: None,
        log: "RequestLog | None" = None,
        on_pause: Callable[[str], None] | None = None,
    ) -> None:
        self._on_pause, self._on_login = on_pause or policy.note, on_login
        self._policy, self._tokens = policy, tokens
        self._budget, self._is_ordered = budget, ordered
        self._next_entry, self._on_done = next_entry, on_done
        self._composer = Composer(network)
        self._loop = EventLoop()
        self._connections: Connections[InFlight, BufferedExchange] = Connections(
            network,
            self._loop,
            timeout,
            on_error=self._resume,
            log=log,
            collects=True,
        )
        if limiter.has_rate:
            self._connections.limiter = limiter
        self._gate: LoginGate[InFlight] = LoginGate(
            tokens,
            self._loop,
            resume=self._resume,
            is_in_use=self._is_in_use,
            on_login=self._logging_in,
            is_interactive=interactive,
        )
        self._requests: set[InFlight] = set()
        self._retries: list[tuple[float, int, InFlight]] = []  # heap, by due time
        self._order = count()
        self._limiter, self._unsent = limiter, SendQueue(limiter, self._send)
        self._held: Entry | None = None  # the next entry, if the rate limiter does not permit it yet
        oldest = self._oldest if ordered else None
        self._jobs = jobs
        self._long_responses = FairQueue(self._wait)
        self._memory_queue = MemoryQueue(budget, self._long_responses.add, oldest)
        self._is_stopping = False
        self._is_late = False  # the last turn ended before all events were processed
        self._block = BlockSize()
        self._next_timeout_check = 0.0

    @property
    def in_flight(self) -> int:
        """Return the number of requests that have not ended."""
        return len(self._requests)

    @property
    def delayed(self) -> list[InFlight]:
        """Return the requests in flight that wait for a retry, for the rate limiter or for a first connection.

        These end when the engine stops.
        """
        return [*(each[2] for each in self._retries), *self._unsent.droppable, *self._droppable_on_connections]

    @property
    def holds_line(self) -> bool:
        """Return whether a line that was read from the input waits for the rate limiter."""
        return self._held is not None

    @property
    def is_logging_in(self) -> bool:
        """Return whether a login is in progress."""
        return self._gate.is_logging_in

    @property
    def is_prompting(self) -> bool:
        """Return whether an interactive login, which may prompt the user, blocks the engine."""
        return self._gate.is_prompting

    def record_rejection(self) -> None:
        """Record a final 401, unless another request in flight will show whether the token is valid."""
        self._gate.record_rejection()

    def wake(self) -> None:
        """Make the engine check for new input and results; thread-safe."""
        self._loop.wake()

    def step(self, *, has_more: Callable[[], bool]) -> bool:
        """Process what is ready, or wait briefly for events.

        Return False if no request is in flight and none will follow: the engine is stopping, or
        *has_more* returns False.
        """
        if self._memory_queue.waiting:
            self._memory_queue.run()
        if self._is_stopping:
            self._drop_delayed()
        self._start_requests()
        if not self._requests and (self._is_stopping or not (self._held or has_more())):
            return False
        self._process_events(0.0 if self._long_responses.waiting else self._time_to_next_event())
        if self._long_responses.waiting and (request := self._long_responses.run()) is not None:
            self._memory_queue.remove(request)
            self._end(request)
        return True

    def stop(self) -> None:
        """Start no more requests, and drop those that are `delayed`; the others in flight can finish."""
        self._is_stopping = True

    def cancel(self, error: XapiError) -> None:
        """End all requests in flight with *error*."""
        self._connections.drop(self._connections.unsent_requests())  # the log has only what may have been sent
        for request in sorted(self._requests, key=lambda each: each.number):
            if request.exchange is not None:
                self._connections.release(request.exchange, is_reusable=False)
            self._finish(request, error)
        self._long_responses.clear()
        self._memory_queue.clear()
        self._retries.clear()
        self._unsent.clear()
        self._gate.clear()
        self._connections.stop_waiting()

    def close(self) -> None:
        """Log the requests that are still in flight, and close all connections."""
        self._connections.log_interrupted()
        self._loop.close()

    # the flow of a request

    def _start_requests(self) -> None:
        """Start as many requests as may be in flight, and send them together; none waits long for the others."""
        flush_time = time.monotonic() + _LONGEST_COLLECTION
        jobs = self._jobs
        while len(self._requests) < jobs and not (self._is_stopping or self._gate.is_closed):
            if (now := time.monotonic()) >= flush_time:
                self._connections.flush()
                flush_time = now + _LONGEST_COLLECTION
            if not self._budget.has_room and self._requests and not self._may_use_reserve:
                break
            entry, self._held = self._held or self._next_entry(), None
            if entry is None:
                break
            if self._unsent.waiting or self._limiter.clock() < self._limiter.next_time:
                self._held = entry
                break
            self._start(entry)
        self._connections.flush()

    def _start(self, entry: Entry) -> None:
        assert entry.call is not None  # noqa: S101 - lines that are not valid are not sent
        self._budget.add(entry.size)
        headers = entry.call.headers
        sends_token = not headers or not authorization.is_set_by_user(headers)
        request = InFlight(entry, self._policy.flow(entry.call, authenticated=sends_token))
        self._requests.add(request)
        self._resume(request, None)

    def _resume(self, request: InFlight, result: Any) -> None:
        """Send *result* to the flow of *request*, or raise it there, and perform the next step of the flow."""
        request.step = None
        try:
            step = request.flow.throw(result) if isinstance(result, Exception) else request.flow.send(result)
        except XapiError as error:
            # the traceback refers to this frame, which refers to the error: the cycle would keep the body in memory
            self._finish(request, error.with_traceback(None))
            return
        if isinstance(step, Send):
            if self._unsent.waiting or not self._limiter.try_acquire():
                self._unsent.add(request, step)
            else:
                self._send(request, step)
        elif isinstance(step, FinalResponse):
            self._finish(request, step)
        elif isinstance(step, Login):
            self._gate.enter(request, step)
        else:
            heapq.heappush(self._retries, (time.monotonic() + step.seconds, next(self._order), request))

    def _send(self, request: InFlight, step: Send[Call]) -> None:
        request.step = step
        route, request.data = self._composer.compose(step)
        send = self._connections.resend if request.needs_new_connection else self._connections.send
        request.needs_new_connection = False
        send(request, route)

    def _finish(self, request: InFlight, outcome: Outcome) -> None:
        steps = self._on_done(request, outcome)
        if steps is None:
            self._end(request)
            return
        assert isinstance(outcome, FinalResponse)  # noqa: S101 - an error has no body
        size = len(outcome.response.body)
        request.memory += size
        self._budget.add(size)
        self._long_responses.add(request, steps)

    def _wait(self, request: InFlight, steps: Steps, awaited: int) -> None:
        """Wait for memory; then continue with *steps* of *request*."""
        self._memory_queue.add(request, steps, awaited)

    def _end(self, request: InFlight) -> None:
        self._requests.discard(request)
        self._budget.remove(request.memory)
        if self._connections.paused:
            self._connections.resume_paused()

    def _drop_delayed(self) -> None:
        """End the requests that are `delayed`, without a result."""
        for request in self.delayed:
            self._end(request)
        self._retries.clear()
        self._unsent.drop()
        self._connections.drop(self._droppable_on_connections)

    @property
    def _droppable_on_connections(self) -> list[InFlight]:
        unsent = self._connections.unsent_requests()
        return [each for each in unsent if each.step is None or not each.follows_redirect(each.step)]

    def _logging_in(self, begins: bool) -> None:
        if begins:
            self._connections.flush()  # an interactive login blocks, while a server closes idle connections
            self._connections.close_unused()
        self._on_login(begins)

    def _is_in_use(self, token: Token) -> bool:
        """Return whether a request with *token* is in flight, not counting paused connections."""
        return any(
            each.step is not None and each.step.token is token and not self._connections.is_paused(each.exchange)
            for each in self._requests
        )

    # events

    def _process_events(self, timeout: float) -> None:
        self._process_ready(timeout)
        self._connections.end_turn()
        now = time.monotonic()
        if now >= self._next_timeout_check:
            self._next_timeout_check = now + _TICK
            self._check_timeouts(now)
        while self._retries and self._retries[0][0] <= now:
            self._resume(heapq.heappop(self._retries)[2], None)
        if self._unsent.waiting:
            self._unsent.run()
        if self._gate.undecided:
            self._gate.decide()

    def _time_to_next_event(self) -> float:
        """Return the maximum time to wait for events, in seconds."""
        at = float("inf")
        if len(self._connections.busy) < len(self._requests):  # some may wait for a connection
            at = min(at, self._connections.next_grace_end)
        if self._retries:
            at = min(at, self._retries[0][0])
        if self._held or self._unsent.waiting:
            at = min(at, self._limiter.next_time)
        if self._connections.holds_requests:
            at = min(at, self._limiter.next_send)
        if self._policy.deadline is not None:
            at = min(at, self._policy.deadline)
        return max(0.0, min(_TICK, at - time.monotonic()))

    def _process_ready(self, timeout: float) -> None:
        """Process the events of one turn: if the last did not suffice for all, in the order in which they are due."""
        is_late, self._is_late = self._is_late, False
        start = now = 0.0
        for connection, events in self._loop.ready(timeout, self._due if is_late else None):
            start = start or time.monotonic()
            self._process(connection, events, now or start, is_late=is_late)
            now = time.monotonic()
            if now - start >= _TURN:
                self._is_late = True
                break
        if is_late:
            self._block.end_turn()

    def _due(self, connection: Any) -> float:
        """Return when, on the monotonic clock, the response over *connection* is due; 0 for anything else: it is quick.

        That is when it was first passed over, or up to `_MAX_HANDICAP` later if it has taken long so far. So quick
        responses are processed before long ones, and none waits for those that arrive later, however many they are.
        """
        request = self._connections.busy.get(connection)
        if request is None or request.exchange is None:
            return 0.0
        exchange = request.exchange
        exchange.passed_over = exchange.passed_over or time.monotonic()
        return exchange.passed_over + min(10 * exchange.used, _MAX_HANDICAP)

    def _process(self, connection: Connection, events: int, now: float, *, is_late: bool) -> None:
        request = self._connections.busy.get(connection)
        if request is None or request.exchange is None:
            self._connections.check_idle(connection)
            return
        exchange = request.exchange
        memory = exchange.memory
        if not self._budget.has_room and not self._may_receive(request, memory):
            self._connections.pause(exchange)
            return
        try:
            response = exchange.process(events, self._block.bytes if is_late else BLOCK)
        except NetworkError as error:
            self._budget.remove(memory)
            self._failed(exchange, request, error)
            return
        finally:
            if is_late:
                self._block.took(time.monotonic() - now)
        if response is not None:
            if memory:
                self._budget.remove(memory)
            self._received(exchange, request, response)
            return
        self._budget.add(exchange.memory - memory)
        if exchange.head is not None:
            self._received_status(request, exchange.head.status)
        self._connections.watch(exchange)
        exchange.took(time.monotonic() - now)

    def _received_status(self, request: InFlight, status: int) -> None:
        """Record early, from the status alone, that the token is valid: the body may take long to arrive."""
        token = request.step.token if request.step is not None else None
        if token is not None and status != UNAUTHORIZED:
            self._tokens.accepted(token, status)

    def _received(self, exchange: BufferedExchange, request: InFlight, response: BufferedResponse) -> None:
        if response.status >= 400 and request.step is not None and request.step.to_api:
            self._pause_if_asked(response)
        self._connections.release(exchange, is_reusable=exchange.end(exchange.connection))
        self._resume(request, response)

    def _pause_if_asked(self, response: BufferedResponse) -> None:
        """If the API asks for a pause in *response*, send nothing for that long."""
        seconds = retry.requested_pause(response.status, response.raw_headers)
        if seconds is not None and self._limiter.pause(seconds):
            self._connections.limiter = self._limiter  # some wait for a connection
            self._on_pause(f"the API responded with {response.status}; sending no requests for {seconds:.1f} s")

    def _failed(self, exchange: BufferedExchange, request: InFlight, error: XapiError) -> None:
        step = request.step
        self._connections.release(exchange, is_reusable=False)
        if exchange.may_resend and isinstance(error, NetworkError) and step is not None:
            request.needs_new_connection = True
            self._unsent.add(request, step)
            self._unsent.run()
        else:
            self._resume(request, error)

    # memory

    def _may_receive(self, request: InFlight, memory: int) -> bool:
        """Return whether *request* goes on although the budget has no room; its response uses *memory* bytes so far."""
        return (memory < _RESERVED_START and self._may_use_reserve) or self._is_exempt(request)

    @property
    def _may_use_reserve(self) -> bool:
        """Whether short responses go on although bodies that are processed fill the budget."""
        return bool(self._long_responses.waiting) and self._budget.has_reserve

    def _is_exempt(self, request: InFlight) -> bool:
        """Return whether *request* goes on if the budget is exhausted, so that there is always progress.

        It is the oldest that was sent or, if results are ordered, the oldest of all.
        """
        if self._long_responses.waiting:
            return False  # finishing the pending steps frees memory
        if self._is_ordered:
            return request.number == self._oldest()
        carried = self._connections.busy.values()
        return request.number == min(each.number for each in carried if each.exchange and not each.exchange.is_held)

    def _oldest(self) -> int:
        return min(request.number for request in self._requests)

    # timeouts

    def _check_timeouts(self, now: float) -> None:
        self._connections.resume_paused()  # if there is still no room, they are paused again immediately
        for request, exchange in self._connections.expired(now):
            self._expire(request, exchange)
        self._connections.close_expired()

    def _expire(self, request: InFlight, exchange: BufferedExchange) -> None:
        memory = exchange.memory
        outcome = exchange.time_out()
        if outcome is None:
            self._connections.watch(exchange)
            return
        self._budget.remove(memory)
        if isinstance(outcome, BufferedResponse):
            self._received(exchange, request, outcome)
        else:
            self._failed(exchange, request, outcome)

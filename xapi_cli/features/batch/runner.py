"""Send many requests on threads. This is the part of `batch` that other commands use too, such as `each`.

    with Runner(context, jobs=16, ordered=True) as runner:
        error = runner.consume(tasks, write)  # an iterator of Task, a function that takes a list of Result

*tasks* is consumed lazily, by one of the threads at a time, and may block, for example in a read of stdin: a request
is sent as soon as its task is there. An exception that it raises ends the run: what is in flight finishes first.
*write* gets a list whenever results are complete, and an empty one several times per second, so that it can show the
progress. It is called in the main thread, which also handles signals and performs logins (they may prompt).

Back-pressure: at most 4·N tasks are between taken and consumed, and a result is consumed when *write* has returned. If
results are ordered, task n + 4·N is thus not taken before the result of task n was consumed. A thread that has a task
never waits for the consumption of another one, so there is no deadlock. A body of more than 256 KiB waits in an unnamed
temporary file.

A run stops at a result for which *stops_at* is true, when --max-time expires, on a signal, or when `stop` is called.
Every wait of a thread, for the rate, a retry or a pause of the API, then ends, and its task has no result. Requests in
flight finish, except at --max-time, at the first signal if not *is_one*, and at the second one. The threads are
daemons: one that waits for input does not keep the process from exiting. `unfinished` returns the tasks that were
taken and have no result, `unsent` also those that were not taken.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from xapi_cli import errors
from xapi_cli.auth.token_source import MAX_REPLAYS, TokenSource
from xapi_cli.errors import BodyTooLarge, ClosedPipe, Interrupted, NetworkError, OutputError, TimeoutExpired, XapiError
from xapi_cli.features.batch.rate import RateLimiter
from xapi_cli.features.batch.results import MAX_BODY, Result, Task
from xapi_cli.http import authorization, retry
from xapi_cli.http.send import Outcome, Sender
from xapi_cli.request.body.spool import Spool
from xapi_cli.request.status_errors import status_error
from xapi_cli.system import signals
from xapi_cli.system.render import counted, decimal

if TYPE_CHECKING:
    from xapi_cli.context import Context
    from xapi_cli.http.messages import Request, Response
    from xapi_cli.http.send import Call

_IN_MEMORY = 256 * 1024  # bytes of a body
_TICK = 0.2  # seconds between two empty lists; Windows handles signals only between two waits
_OTHER_DESCRIPTORS = 48  # that this process has open besides two for each request: a connection and a body


class _Stopped(Exception):
    """The run stops; what waits has no result."""


class Runner:
    """Send tasks with the settings and the account of *context*, *jobs* at a time.

    *rate* is in requests per second. With *ordered*, results have the order of the tasks. Nothing more is sent after a
    result for which *stops_at* is true. With *is_one*, the tasks belong together: the requests in flight finish after
    the first signal, and a login that fails ends the run.
    """

    def __init__(
        self,
        context: "Context",
        *,
        jobs: int,
        rate: float | None = None,
        ordered: bool = False,
        stops_at: Callable[[Result], object] | None = None,
        is_one: bool = False,
    ) -> None:
        self._context, self._terminal = context, context.terminal
        self._base_url, self._deadline = context.base_url, context.deadline
        self._retries = context.settings.retry
        self._ordered, self._stops_at, self._is_one = ordered, stops_at, is_one
        self._jobs = jobs
        _raise_descriptor_limit(2 * jobs + _OTHER_DESCRIPTORS)
        self._limiter = RateLimiter(rate)
        context.transport = self._transport = context.open_transport(on_request=self._before, on_response=self._after)
        self.tokens = context.tokens(perform=self.in_main)
        self._main = threading.get_ident()
        self._current = threading.local()  # `begin`: what a thread has to call before it sends
        self._slots = threading.Semaphore(4 * jobs)  # one for each task that may be taken
        # Unlike the locks of other queues, the C methods of these are safe in signal handlers.
        self._results: SimpleQueue[tuple[int, Result | None] | None] = SimpleQueue()  # None wakes the main thread
        self._calls: SimpleQueue[tuple[Callable[[], Any], SimpleQueue[Any]]] = SimpleQueue()  # for the main thread
        self._taking, self._gate = threading.Lock(), threading.Lock()
        self._stopping = threading.Event()
        self._has_ended = False  # no more tasks are taken
        self._open: dict[int, Task] = {}  # taken, by position, and without a result
        self._dropped: list[Task] = []
        self._held: dict[int, Result] = {}  # results that wait for earlier ones
        self._taken = self._next = self._started = 0
        self._signal: int | None = None
        self._is_interruptible = True
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._context.close()  # requests in flight are logged, and fail; nothing waits for them

    def run(self, tasks: Iterator[Task]) -> Iterator[list[Result]]:
        """Yield the results of *tasks*, as the description of the module says.

        At the end, raises the exception that has stopped the run: TimeoutExpired for --max-time, Interrupted after a
        signal, that of *tasks*, or one that is not about a single request, such as StoreError.
        """
        self._tasks = tasks
        with signals.graceful_stop(self._on_signal):
            self._start_thread()
            while self._open or not self._has_ended:
                results = self._collect()
                yield results
                if results:
                    self._slots.release(len(results))
                while not self._calls.empty():  # a login can take long: the results before it are consumed first
                    self._perform(*self._calls.get())
                if self._signal is not None and not isinstance(self._failure, Interrupted):
                    self._failure = Interrupted(self._signal)
                    self.stop()
                    if not self._is_one:
                        break
                    self._note_interruption()
                if self._deadline is not None and time.monotonic() >= self._deadline:
                    self._expire(self._deadline)
                    break
        yield self._rest()
        if self._failure is not None:
            raise self._failure

    def consume(self, tasks: Iterator[Task], write: Callable[[list[Result]], None]) -> XapiError | None:
        """Call *write* with the results of *tasks* as they come; return the error that has ended the run early."""
        try:
            for results in self.run(tasks):
                write(results)
        except (ClosedPipe, OutputError):
            raise
        except (XapiError, signals.Terminated, KeyboardInterrupt) as error:  # the latter two at the second signal
            write(self._rest())
            return error if isinstance(error, XapiError) else getattr(error, "failure", None) or Interrupted()
        return None

    def send(self, call: "Call", note: Callable[[str], None] = lambda text: None) -> "Outcome":
        """Return the final response to *call*, sent in this thread; *note* gets a line about each retry."""
        sender = Sender(
            self._transport,
            self._base_url,
            self._tokens_for(call),
            retries=self._retries,
            replays=MAX_REPLAYS,
            deadline=self._deadline,
            note=note,
            wait=self._wait,
        )
        return sender.send(call)

    def stop(self) -> None:
        """Take no more tasks, and end all waits; requests in flight finish. Not for signal handlers."""
        with self._gate:
            self._has_ended = True
            self._stopping.set()
        self._slots.release(self._jobs)
        self._results.put(None)

    def unfinished(self) -> list[Task]:
        """Return the tasks that were taken and have no result."""
        return [*self._dropped, *self._open.values()]

    def unsent(self) -> Iterator[Task]:
        """Yield all tasks that have no result; those that were not taken only if no thread still waits for one."""
        is_complete = self._taking.acquire(timeout=_TICK)
        yield from sorted(self.unfinished(), key=lambda task: task.number)
        if is_complete:
            yield from self._tasks

    def in_main(self, action: Callable[[], Any]) -> Any:
        """Call *action* in the main thread, and return its value or raise its exception."""
        if threading.get_ident() == self._main:
            return action()
        reply: SimpleQueue[Any] = SimpleQueue()
        self._calls.put((action, reply))
        self._results.put(None)
        value, error = reply.get()
        if error is not None:
            raise error
        return value

    # the main thread

    def _collect(self) -> list[Result]:
        """Wait for results; return those that are complete, in order if that is required."""
        left = _TICK if self._deadline is None else min(_TICK, max(0.0, self._deadline - time.monotonic()))
        results: list[Result] = []
        with suppress(Empty):
            found = self._results.get(timeout=left)
            while True:
                if found is not None:
                    self._add(*found, results)
                if len(results) >= self._jobs:
                    break
                found = self._results.get_nowait()
        return results

    def _add(self, position: int, result: Result | None, results: list[Result]) -> None:
        """Add *result* to *results*, and those that have waited for it; without a result, the run stops."""
        task = self._open.pop(position, None)
        if task is None:  # --max-time has expired
            return
        if result is None:
            self._dropped.append(task)
        elif not self._ordered:
            results.append(result)
        else:
            self._held[position] = result
            while self._next in self._held:
                results.append(self._held.pop(self._next))
                self._next += 1

    def _rest(self) -> list[Result]:
        """Return the results that are complete although `run` has ended early."""
        results: list[Result] = []
        while not self._results.empty():
            if (found := self._results.get()) is not None:
                self._add(*found, results)
        results += (each for _, each in sorted(self._held.items()))
        self._held.clear()
        return results

    def _perform(self, action: Callable[[], Any], reply: "SimpleQueue[Any]") -> None:
        self._is_interruptible = False
        try:
            reply.put((action(), None))
        except Exception as error:  # noqa: BLE001 - the other thread raises it
            reply.put((None, error))
        finally:
            self._is_interruptible = True

    def _on_signal(self, number: int) -> bool:
        """Note the signal for `run`; return False to end the command immediately, during a login."""
        self._signal = number
        self._results.put(None)
        return self._is_interruptible

    def _note_interruption(self) -> None:
        self._terminal.end_interruption()
        if count := len(self._open):
            hint = f"press Ctrl-C again to cancel {'it' if count == 1 else 'them'}"
            self._terminal.note(f"interrupted: finishing {counted(count, 'request')} in flight; {hint}")

    def _expire(self, deadline: float) -> None:
        """Let the tasks that are in flight fail because of --max-time."""
        limit, hint = decimal(deadline - self._context.started), "raise --max-time"
        self._failure = self._failure or TimeoutExpired(f"not everything was sent within {limit} s", hint=hint)
        self.stop()
        for position, task in list(self._open.items()):
            error = TimeoutExpired("no response before --max-time expired", hint=hint)
            self._results.put((position, Result(task, error)))  # after the results that are complete

    # the threads

    def _start_thread(self) -> None:
        self._started += 1  # in the main thread, and then in the one that takes a task
        threading.Thread(target=self._work, name=f"xapi-{self._started}", daemon=True).start()

    def _work(self) -> None:
        try:
            while (taken := self._take()) is not None:
                self._finish(*taken)
                del taken  # nothing of it is kept while the thread waits
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self.stop()

    def _take(self) -> tuple[int, Task] | None:
        """Return the next task and its position, None without one; start another thread if there may be more."""
        self._slots.acquire()
        with self._taking:
            if self._deadline is not None and time.monotonic() >= self._deadline:
                return None  # the main thread ends the run
            task = None if self._stopping.is_set() else next(self._tasks, None)
            with self._gate:
                if task is None or self._stopping.is_set():
                    self._dropped += [] if task is None else [task]
                    self._has_ended = True
                    self._slots.release()  # for the next thread, which ends too
                    self._results.put(None)
                    return None
                position, self._taken = self._taken, self._taken + 1
                self._open[position] = task
            if self._started < self._jobs:
                self._start_thread()
            return position, task

    def _finish(self, position: int, task: Task) -> None:
        """Pass the result of *task* to the main thread, None if it has none."""
        result = None
        try:
            result = self._result(task)
            if self._stops_at is not None and self._stops_at(result):
                self.stop()
        except _Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self._fail(error)  # before the last result, with which the run ends
        finally:
            self._results.put((position, result))

    def _result(self, task: Task) -> Result:
        if task.call is None:
            return Result(task, task.failure)
        retries: list[str] = []
        started, self._current.begin = time.monotonic(), task.begin
        try:
            result = self._exchange(task, task.call, retries.append)
        except XapiError as error:
            failure = None if self._is_one and error.is_of_login else errors.of_line(error)
            if failure is None:
                raise
            failure.__cause__ = failure.__context__ = None  # with the traceback, they would keep frames and bodies
            result = Result(task, failure.with_traceback(None))
        elapsed_ms = round((time.monotonic() - started) * 1000)
        task = task._replace(call=task.call._replace(body=None))
        return result._replace(task=task, elapsed_ms=elapsed_ms, retries=len(retries))

    def _exchange(self, task: Task, call: "Call", note: Callable[[str], None]) -> Result:
        """Send *call* as `request` does, and read the body of its response."""
        outcome = self.send(call, note)
        response = outcome.response
        if outcome.is_rejection:
            start = b""
            with suppress(NetworkError, TimeoutExpired):
                start = next(response.decoded(), b"")
            response.discard()
            if error := status_error(outcome, self._tokens_for(call), body=start):
                raise error
        try:
            body = Spool(_limited(response.decoded()), keep=_IN_MEMORY)
        except BaseException:
            response.close()
            raise
        return Result(task, None, response.status, response.headers, body)

    def _tokens_for(self, call: "Call") -> TokenSource | None:
        return None if authorization.is_set_by_user(call.headers) else self.tokens

    def _before(self, request: "Request") -> None:
        """Wait until *request* may be sent."""
        if request.is_login:
            return
        self._limiter.acquire(self._wait)
        if begin := vars(self._current).pop("begin", None):
            begin()

    def _after(self, response: "Response") -> None:
        """Pause if the API asks for it in *response*."""
        if response.status < 400 or response.request.is_login:
            return
        seconds = retry.requested_pause(response.status, response.headers.get("Retry-After"))
        if seconds and self._limiter.pause(seconds):
            status = f"the API responded with {response.status}"
            self._terminal.note(f"{status}; sending no requests for {seconds:.1f} s")

    def _wait(self, seconds: float) -> None:
        if self._stopping.wait(min(seconds, threading.TIMEOUT_MAX)):
            raise _Stopped


def _raise_descriptor_limit(wanted: int) -> None:
    """Raise the soft limit of open files to *wanted*, as far as the hard one permits; macOS has a soft one of 256."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft not in (resource.RLIM_INFINITY, hard) and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))


def _limited(chunks: Iterator[bytes]) -> Iterator[bytes]:
    received = 0
    for chunk in chunks:
        received += len(chunk)
        if received > MAX_BODY:
            limit, hint = f"{MAX_BODY // 2**20} MiB", "use `xapi request -o FILE`"
            raise BodyTooLarge(f"the body has more than {limit}", hint=hint, sent=True, headers_received=True)
        yield chunk

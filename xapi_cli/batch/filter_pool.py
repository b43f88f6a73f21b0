"""Child processes that apply the filter of --jq to one document each, without blocking the engine."""

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING

from xapi_cli.batch.event_loop import EventLoop
from xapi_cli.batch.filter_job import FilterJob
from xapi_cli.batch.memory_budget import MemoryBudget
from xapi_cli.errors import FilterError
from xapi_cli.system.render import size

if TYPE_CHECKING:
    from xapi_cli.request.filter_engine import FilterEngine

_BLOCK = 64 * 1024  # bytes per read
_MAX_RESULT = 10 * 1024 * 1024  # bytes
_MAX_CHILDREN = 16
_SLOW = 0.05  # seconds with one document, after which another child is started for the documents that wait
_LOW_PRIORITY = 10  # niceness
_MAX_ERRORS = 16 * 1024  # bytes of stderr that are kept
_MAX_WRITES = 16  # parts of a document that are written before other work continues
_EXIT_TIME = 0.1  # seconds between the end of the output of a process and its exit
_FAILURES = (b"jq: ", b"parse error", b"error: ")  # the beginnings of jq's own messages


def line_filter(text: str | None, environ: Mapping[str, str], warn: Callable[[str], None]) -> "FilterEngine | None":
    """Return what runs the jq filter *text*, if there is one; the parameters and errors are those of FilterEngine."""
    if text is None:
        return None
    from xapi_cli.request.filter_engine import FilterEngine

    return FilterEngine(text, environ, warn=warn, by_line=True)


class FilterPool:
    """Run the jobs with *jq*, each for at most *limit* seconds.

    There is one child process as long as no job takes long. If all are slow, their number doubles, up to that of the
    *jobs* that may be in flight, or 16. On Linux, the memory of each is limited. What the results occupy until they are
    complete counts towards *budget*. *note* takes what the filter prints on stderr.
    """

    def __init__(
        self,
        jq: "FilterEngine | None",
        loop: EventLoop,
        budget: MemoryBudget,
        *,
        limit: float,
        jobs: int,
        note: Callable[[str], None],
    ) -> None:
        self.jq, self.loop, self.budget, self.note = jq, loop, budget, note
        self._limit, self._max_children = limit, min(jobs, _MAX_CHILDREN)
        self._waiting: deque[tuple[FilterJob, Callable[[], None]]] = deque()
        self._children: list[_Child] = []

    @property
    def next_check(self) -> float | None:
        """Return when `check` must be called next, on the monotonic clock."""
        busy = [child.job.started for child in self._children if child.job is not None]
        if not busy:
            return None
        can_grow = self._waiting and len(self._children) < self._max_children
        return max(busy) + _SLOW if can_grow else min(busy) + self._limit

    def add(self, job: FilterJob, then: Callable[[], None]) -> None:
        """Run *job*; call *then* when its result is available."""
        self._waiting.append((job, then))
        self.run()

    def run(self) -> None:
        """Start the jobs that wait, as far as a child is idle."""
        self._begin_jobs()
        if self._waiting and self._is_slow():
            self._add_children()
            self._begin_jobs()

    def check(self, now: float) -> None:
        """End the jobs that take too long, and start others; continue to read results if there is room."""
        for child in list(self._children):
            if child.job is not None and now - child.job.started >= self._limit:
                child.expire(f"the filter of --jq did not finish within {self._limit:g} s; raise --timeout")
        for child in self._children:
            child.resume()
        self.run()

    def may_read(self, job: FilterJob) -> bool:
        """Return whether there is room for more of the result of *job*; there always is for that of the first line."""
        if self.budget.has_room:
            return True
        return job.number == min(child.job.number for child in self._children if child.job is not None)

    def remove(self, child: "_Child") -> None:
        """Remove *child*, which has ended."""
        self._children.remove(child)

    def close(self) -> None:
        """End all children; no result follows."""
        self._waiting.clear()
        for child in list(self._children):
            child.end()

    def _begin_jobs(self) -> None:
        for child in list(self._children):
            if self._waiting and child.job is None:
                child.begin(*self._waiting.popleft())

    def _is_slow(self) -> bool:
        """Return whether each child has been running its job for long."""
        now = time.monotonic()
        return all(child.job is not None and now - child.job.started >= _SLOW for child in self._children)

    def _add_children(self) -> None:
        """Double the children, as far as jobs wait for them: the first jobs that wait may be slow, too."""
        for child in self._children:
            child.lower_priority()
        wanted = min(max(1, len(self._children)), len(self._waiting), self._max_children - len(self._children))
        for _ in range(wanted):
            try:
                self._children.insert(0, _Child(self))  # it is preferred to those of low priority
            except FilterError as error:
                if not self._children:
                    self._fail_waiting(str(error))
                return

    def _fail_waiting(self, message: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        for job, then in waiting:
            job.fail(message)
            then()


class _Child:
    """A child process of *pool*; *job* is the job that it runs."""

    def __init__(self, pool: FilterPool) -> None:
        self.job: FilterJob | None = None
        assert pool.jq is not None  # noqa: S101 - there are no jobs without a filter
        self._pool, self._jq, self._process = pool, pool.jq, pool.jq.start()
        self._then: Callable[[], None] = lambda: None
        self._numbers = self._jq.number_check()
        self._unsent = memoryview(b"")
        self._is_sent = self._has_result = self._is_paused = self._has_low_priority = False
        self._errors = self._partial_line = b""
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None  # noqa: S101 - all three are pipes
        assert stdout is not None  # noqa: S101 - see above
        assert stderr is not None  # noqa: S101 - see above
        self._files = (stdin, stdout, stderr)
        self._descriptors = tuple(file.fileno() for file in self._files)
        self._stdin, self._stdout, self._stderr = self._descriptors
        for descriptor in self._descriptors:
            os.set_blocking(descriptor, False)
        pool.loop.watch_pipe(self._stdout, EVENT_READ, self._read)
        pool.loop.watch_pipe(self._stderr, EVENT_READ, self._read_errors)

    def begin(self, job: FilterJob, then: Callable[[], None]) -> None:
        """Run *job*; call *then* when it is done."""
        self.job, self._then, self._is_sent, self._has_result = job, then, False, False
        job.started = time.monotonic()
        self._numbers = self._jq.number_check()
        self._write()

    def lower_priority(self) -> None:
        """Let other processes run first, because the job takes long; there is no way back."""
        if not self._has_low_priority:
            self._has_low_priority = True
            with suppress(OSError):  # it has ended
                os.setpriority(os.PRIO_PGRP, self._process.pid, _LOW_PRIORITY)

    def expire(self, message: str) -> None:
        """End the job with *message*, unless its result can be read now: xapi itself may have been delayed."""
        job = self.job
        self._read()
        if job is not None and self.job is job:
            self.fail(message)

    def fail(self, message: str) -> None:
        """End the child, and its job with *message*."""
        job, then = self.job, self._then
        self.end()
        self._pool.remove(self)
        if job is not None:
            self._pool.budget.remove(job.held)
            job.fail(message)
            then()

    def end(self) -> None:
        """End the child."""
        for descriptor in self._descriptors:
            self._pool.loop.unwatch_pipe(descriptor)
        self._process.end()
        for file in self._files:
            file.close()
        self.job = None

    def resume(self) -> None:
        """Continue to read the result if that was paused, and if there is room."""
        if self._is_paused and (self.job is None or self._pool.may_read(self.job)):
            self._is_paused = False
            if self.job is not None:
                self.job.started = time.monotonic()
            self._pool.loop.watch_pipe(self._stdout, EVENT_READ, self._read)

    def _write(self) -> None:
        """Write the document, as far as the pipe has room and as it does not take long."""
        assert self.job is not None  # noqa: S101 - it ends after the document has been written
        for _ in range(_MAX_WRITES):
            if not self._unsent:
                chunk = next(self.job.chunks, None)
                if chunk is None:
                    self._sent()
                    return
                self._numbers.add(chunk)
                self._unsent = memoryview(chunk)
            try:
                self._unsent = self._unsent[os.write(self._stdin, self._unsent) :]
            except BlockingIOError:
                break
            except BrokenPipeError:  # the end of its output follows
                self._pool.loop.unwatch_pipe(self._stdin)
                return
        self._pool.loop.watch_pipe(self._stdin, EVENT_WRITE, self._write)

    def _sent(self) -> None:
        self._is_sent = True
        self._pool.loop.unwatch_pipe(self._stdin)
        self._end_job()

    def _read(self) -> None:
        """Read a part of the result."""
        job = self.job
        if job is not None and not self._pool.may_read(job):
            self._is_paused = True
            self._pool.loop.unwatch_pipe(self._stdout)
            return
        try:
            data = os.read(self._stdout, _BLOCK)
        except BlockingIOError:
            return
        if not data or job is None:
            self._ended()
            return
        self._pool.budget.add(len(data))
        if job.receive(data):
            self._has_result = True
            self._end_job()
        elif job.held > _MAX_RESULT:
            self.fail(f"the result of the filter of --jq is larger than {size(_MAX_RESULT)}")

    def _end_job(self) -> None:
        """End the job if it is done: the result can precede the end of the line with the document."""
        if self._is_sent and self._has_result:
            self.job = None
            self._then()
            self._pool.run()

    def _ended(self) -> None:
        """End the job, because the process has ended."""
        from subprocess import TimeoutExpired

        from xapi_cli.request.filter_engine import reason_of

        with suppress(TimeoutExpired):
            self._process.wait(_EXIT_TIME)
        self._read_errors()
        reason = reason_of(self._errors, self._process.returncode or 0, memory=self._jq.memory)
        self.fail(f"the filter of --jq failed: {reason}; check the filter")

    def _read_errors(self) -> None:
        """Report what the filter prints on stderr; keep what jq prints there before it ends."""
        try:
            data = os.read(self._stderr, _BLOCK)
        except BlockingIOError:
            return
        if not data:
            self._pool.loop.unwatch_pipe(self._stderr)
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        if not data or len(self._partial_line) > _MAX_ERRORS:
            lines, self._partial_line = [*lines, self._partial_line], b""
        for line in filter(None, lines):
            if line.startswith(_FAILURES):
                self._errors = (self._errors + line + b"\n")[:_MAX_ERRORS]
            else:
                self._pool.note(line.decode("utf-8", "replace"))

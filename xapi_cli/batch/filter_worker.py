"""A child process that applies the filter of --jq to one document after another, without blocking the engine."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING, Protocol

from xapi_cli.batch.event_loop import EventLoop
from xapi_cli.batch.filter_job import FilterJob
from xapi_cli.batch.memory_budget import MemoryBudget
from xapi_cli.system.render import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xapi_cli.request.filter_engine import FilterEngine
    from xapi_cli.request.filter_process import FilterProcess

_BLOCK = 64 * 1024  # bytes per read
_MAX_RESULT = 10 * 1024 * 1024  # bytes
_MAX_ERRORS = 16 * 1024  # bytes of stderr that are kept
_MAX_WRITES = 16  # parts of a document that are written before other work continues
_EXIT_TIME = 0.1  # seconds between the end of the output of a process and its exit
_FAILURES = (b"jq: ", b"parse error", b"error: ")  # the beginnings of jq's own messages

Waiting = tuple[FilterJob, Callable[[], None]]  # what is called when the job is done


class Owner(Protocol):
    """What workers need, and what they tell: a job is done, or the process has ended."""

    loop: EventLoop
    budget: MemoryBudget
    note: Callable[[str], None]

    def may_read(self, job: FilterJob) -> bool:
        """Return whether there is room for more of the result of *job*."""

    def done(self, worker: "FilterWorker", job: FilterJob) -> None:
        """Give *worker*, which has done *job*, another job."""

    def remove(self, worker: "FilterWorker") -> None:
        """Remove *worker*, which has ended."""

    def reap_later(self, process: "FilterProcess") -> None:
        """Wait for the end of *process*, which was killed, without blocking."""


class FilterWorker:
    """A process of *jq*; *job* is the job that it runs, and *level* the lane of *owner* in which it is.

    Raises FilterError if the process cannot be started.
    """

    def __init__(self, jq: "FilterEngine", owner: Owner, level: int) -> None:
        self.job: FilterJob | None = None
        self.level = level
        self.began = 0.0  # when the process was ready for the job, on the monotonic clock
        self.next_look = 0.0  # when to look at the CPU time again, on the monotonic clock
        self.is_warm = self.is_paused = False
        self._owner, self._jq, self._process = owner, jq, jq.start()
        self._then: Callable[[], None] = lambda: None
        self._numbers = jq.number_check()
        self._chunks: Iterator[bytes] = iter(())
        self._unsent = memoryview(b"")
        self._is_sent = self._has_result = False
        self._used_before = 0.0
        self._unread: int | None = None  # bytes that wait for a process that may still be starting
        self._errors = self._partial_line = b""
        self._known_notes = 0
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None  # noqa: S101 - all three are pipes
        assert stdout is not None  # noqa: S101 - see above
        assert stderr is not None  # noqa: S101 - see above
        self._files = (stdin, stdout, stderr)
        self._descriptors = tuple(file.fileno() for file in self._files)
        self._stdin, self._stdout, self._stderr = self._descriptors
        for descriptor in self._descriptors:
            os.set_blocking(descriptor, False)
        owner.loop.watch_pipe(self._stdout, EVENT_READ, self._read)
        owner.loop.watch_pipe(self._stderr, EVENT_READ, self._read_errors)

    def begin(self, job: FilterJob, then: Callable[[], None]) -> None:
        """Run *job*; call *then* when it is done."""
        self.job, self._then, self._is_sent, self._has_result = job, then, False, False
        if job.notes:
            self._read_errors()  # those of the job before
        self._known_notes = job.notes
        self._chunks = job.chunks()
        job.started = self.began = time.monotonic()
        self._used_before = self._time()
        self._unread = None if self.is_warm else 0
        self._numbers = self._jq.number_check()
        self._write()

    def used(self) -> float:
        """Return the CPU time of the job in seconds, without that of the start of the process.

        If the system does not tell, return the time since it began.
        """
        seconds = self._time()
        if self._unread is not None:  # it may still be starting, or was at the last look
            self._used_before, self.began = seconds, time.monotonic()
            if self._process.unread() < self._unread:
                self._unread = None
        return seconds - self._used_before

    def enter(self, level: int, niceness: int) -> None:
        """Continue in lane *level*, with a lower priority; there is no way back."""
        self.level = level
        self._process.lower_priority(niceness)

    def expire(self, message: str) -> None:
        """End the job with *message*, unless its result can be read now: xapi itself may have been delayed."""
        job = self.job
        self._read()
        if job is not None and self.job is job and not self.is_paused:
            self.fail(message)

    def fail(self, message: str) -> None:
        """End the process, and its job with *message*."""
        job, then = self.job, self._then
        self.end()
        self._owner.remove(self)
        if job is not None:
            self._owner.budget.remove(job.held)
            job.fail(message)
            then()

    def read_result(self) -> bool:
        """Read what is there of the result; return whether that was something: xapi itself may have been delayed."""
        job = self.job
        self._read()
        return self.job is not job or self.is_paused or (job is not None and job.held > 0)

    def take_back(self) -> Waiting:
        """End the process, and return its job, of which no result has been read, to run it again."""
        job, then = self.job, self._then
        assert job is not None  # noqa: S101 - the worker is busy
        self._read_errors()
        self.end()
        self._owner.remove(self)
        return job, then

    def end(self) -> None:
        """End the process."""
        for descriptor in self._descriptors:
            self._owner.loop.unwatch_pipe(descriptor)
        self._process.kill()
        for file in self._files:
            with suppress(OSError):
                file.close()
        self._owner.reap_later(self._process)
        self.job = None

    def resume(self) -> None:
        """Continue to read the result if that was paused, and if there is room."""
        if self.is_paused and (self.job is None or self._owner.may_read(self.job)):
            self.is_paused = False
            if self.job is not None:
                self.job.started = time.monotonic()
            self._owner.loop.watch_pipe(self._stdout, EVENT_READ, self._read)

    def _time(self) -> float:
        """Return the CPU time of the process in seconds or, if the system does not tell, the time of a clock."""
        seconds = self._process.cpu_seconds()
        return time.monotonic() if seconds is None else seconds

    def _write(self) -> None:
        """Write the document, as far as the pipe has room and as it does not take long."""
        assert self.job is not None  # noqa: S101 - it ends after the document has been written
        for _ in range(_MAX_WRITES):
            if not self._unsent:
                chunk = next(self._chunks, None)
                if chunk is None:
                    self._sent()
                    return
                self._numbers.add(chunk)
                self._unsent = memoryview(chunk)
            try:
                written = os.write(self._stdin, self._unsent)
            except BlockingIOError:
                break
            except BrokenPipeError:  # the end of its output follows
                self._owner.loop.unwatch_pipe(self._stdin)
                return
            self._unsent = self._unsent[written:]
            if self._unread is not None:
                self._unread += written
        self._owner.loop.watch_pipe(self._stdin, EVENT_WRITE, self._write)

    def _sent(self) -> None:
        self._is_sent = True
        self._owner.loop.unwatch_pipe(self._stdin)
        self._end_job()

    def _read(self) -> None:
        """Read a part of the result."""
        job = self.job
        if job is not None and not self._owner.may_read(job):
            self.is_paused = True
            self._owner.loop.unwatch_pipe(self._stdout)
            return
        try:
            data = os.read(self._stdout, _BLOCK)
        except BlockingIOError:
            return
        if not data or job is None:
            self._ended()
            return
        self._owner.budget.add(len(data))
        if job.receive(data):
            self._has_result = True
            self._end_job()
        elif job.held > _MAX_RESULT:
            self.fail(f"the result of the filter of --jq is larger than {size(_MAX_RESULT)}")

    def _end_job(self) -> None:
        """End the job if it is done: the result can precede the end of the line with the document."""
        job = self.job
        if job is not None and self._is_sent and self._has_result:
            self.job, self.is_warm = None, True
            self._then()
            self._owner.done(self, job)

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
        """Report what the filter prints on stderr, and keep what jq prints there before it ends."""
        try:
            data = os.read(self._stderr, _BLOCK)
        except BlockingIOError:
            return
        if not data:
            self._owner.loop.unwatch_pipe(self._stderr)
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        if not data or len(self._partial_line) > _MAX_ERRORS:
            lines, self._partial_line = [*lines, self._partial_line], b""
        for line in filter(None, lines):
            if line.startswith(_FAILURES):
                self._errors = (self._errors + line + b"\n")[:_MAX_ERRORS]
            else:
                self._note(line)

    def _note(self, line: bytes) -> None:
        """Report *line*, unless it was reported in an earlier run of the job."""
        if self._known_notes:
            self._known_notes -= 1
            return
        if self.job is not None:
            self.job.notes += 1
        self._owner.note(line.decode("utf-8", "replace"))

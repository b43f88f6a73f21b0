"""A child process that applies the filters to one document after another, without blocking the engine."""

import os
import sys
import time
from collections.abc import Iterator
from enum import Enum, auto
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE
from typing import Protocol

from xapi_cli.batch.jq.job import FilterJob
from xapi_cli.batch.memory_budget import MemoryBudget
from xapi_cli.http.event_loop import EventLoop
from xapi_cli.request.jq.child import END, LENGTH, RESULTS, UNMET
from xapi_cli.request.jq.engine import reason_of, unmet_condition
from xapi_cli.request.jq.process import FilterProcess
from xapi_cli.system.render import size

if sys.platform == "win32":
    from xapi_cli.batch.jq.bridge import Bridge

_BLOCK = 64 * 1024  # bytes per read
_MAX_RESULT = 10 * 1024 * 1024  # bytes
_MAX_WRITES = 16  # parts of a document that are written before other work continues


class State(Enum):
    """What a worker does; it passes through the last three for each job."""

    STARTING = auto()
    IDLE = auto()
    SENDING = auto()  # the document
    READING = auto()  # its result


class Owner(Protocol):
    """What workers need from the pool, and what they report to it."""

    loop: EventLoop
    budget: MemoryBudget
    option: str  # that messages name

    def idle(self) -> None:
        """Give a worker that has become idle another job."""

    def ended(self, worker: "FilterWorker", failure: str) -> None:
        """Replace *worker*, whose process has ended with *failure* without a job."""

    def remove(self, worker: "FilterWorker") -> None:
        """Remove *worker*, and wait for the end of its process, which was killed, without blocking."""


class FilterWorker:
    """Run jobs in *process*, one at a time; if *is_ready*, its filter is compiled."""

    def __init__(self, process: FilterProcess, owner: Owner, *, is_ready: bool) -> None:
        self.process = process
        self.state = State.IDLE if is_ready else State.STARTING
        self.job: FilterJob | None = None  # while it is sending or reading
        self.is_lowered = False  # its priority: there is no way back
        self._owner = owner
        self._unsent: Iterator[memoryview] = iter(())
        self._part = memoryview(b"")  # of a block
        self._used_before = 0.0
        assert process.stdin is not None  # noqa: S101 - both are pipes
        assert process.stdout is not None  # noqa: S101 - see above
        if sys.platform == "win32":
            self._bridge = Bridge(process.stdin, process.stdout)
            self._stdin, self._stdout = self._bridge.sink.fileno(), self._bridge.source.fileno()
            self._write_some, self._read_some = self._bridge.sink.send, self._bridge.source.recv
        else:
            self._stdin, self._stdout = process.stdin.fileno(), process.stdout.fileno()
            for descriptor in (self._stdin, self._stdout):
                os.set_blocking(descriptor, False)
            self._write_some, self._read_some = partial(os.write, self._stdin), partial(os.read, self._stdout)
        owner.loop.watch_pipe(self._stdout, EVENT_READ, self.read)

    @property
    def is_idle(self) -> bool:
        """Return whether the worker can begin a job."""
        return self.state is State.IDLE

    def begin(self, job: FilterJob) -> None:
        """Run *job*."""
        self.job, self.state = job, State.SENDING
        job.started, self._used_before = time.monotonic(), self._seconds()
        self._unsent = _blocks(job.chunks())
        self._part = memoryview(b"")
        self._write()

    def used(self) -> float:
        """Return the CPU time of the job in seconds or, if the system does not report it, the time since it began."""
        return self._seconds() - self._used_before

    def lower_priority(self, steps: int) -> None:
        """Let other processes precede this one."""
        if not self.is_lowered:
            self.process.lower_priority(steps)
            self.is_lowered = True

    def fail(self, message: str) -> None:
        """End the process, and its job with *message*."""
        job = self.take_back()
        job.fail(message)
        job.end()

    def take_back(self) -> FilterJob:
        """End the process; return its job, to run it again."""
        job = self.job
        assert job is not None  # noqa: S101 - the worker is busy
        self._owner.budget.remove(job.held)
        job.discard()
        self.end()
        return job

    def end(self) -> None:
        """End the process."""
        self.job = None
        for descriptor in (self._stdin, self._stdout):
            self._owner.loop.unwatch_pipe(descriptor)
        if sys.platform == "win32":
            self._bridge.close()
        self._owner.remove(self)

    def read(self) -> None:
        """Read a part of what the process has written, if there is any."""
        try:
            data = self._read_some(_BLOCK)
        except BlockingIOError:
            return
        except ConnectionError:  # on Windows
            data = b""
        if self.job is not None:
            self._owner.budget.add(len(data))
            self.job.held += len(data)
        for kind, content in self.process.received(data):
            self._receive(kind, content)
        if not data:
            self._ended(self.process.reason_of_end())
        elif self.job is not None and self.job.held > _MAX_RESULT:
            self.fail(f"the result of the --jq filter is larger than {size(_MAX_RESULT)}")

    def _receive(self, kind: bytes, content: bytes) -> None:
        job = self.job
        if job is None and kind != END:  # the filter is not compiled as it was before
            self._ended(reason_of(content))
        elif job is not None and kind == RESULTS:
            job.add(content)
        elif job is not None and kind == UNMET:
            job.unmet = unmet_condition(content)
        else:
            self.job, self.state = None, State.IDLE
            if job is not None:
                if kind != END:
                    self._owner.budget.remove(job.held)
                    job.fail(self._failed(reason_of(content)))
                job.end()
            self._owner.idle()

    def _ended(self, reason: str) -> None:
        if self.job is not None:
            self.fail(self._failed(reason))
        else:
            self._owner.ended(self, self._failed(reason))

    def _failed(self, reason: str) -> str:
        return f"the {self._owner.option} filter failed: {reason}; correct the filter"

    def _write(self) -> None:
        """Write the document, as far as the pipe has room and as it does not take long."""
        for _ in range(_MAX_WRITES):
            if not self._part:
                part = next(self._unsent, None)
                if part is None:
                    self.state = State.READING
                    self._owner.loop.unwatch_pipe(self._stdin)
                    return
                self._part = part
            try:
                self._part = self._part[self._write_some(self._part) :]
            except BlockingIOError:
                break
            except ConnectionError:  # a broken pipe: the end of its output follows
                self._owner.loop.unwatch_pipe(self._stdin)
                return
        self._owner.loop.watch_pipe(self._stdin, EVENT_WRITE, self._write)

    def _seconds(self) -> float:
        """Return the CPU time of the process or, if the system does not report it, the time of a clock."""
        seconds = self.process.cpu_seconds()
        return time.monotonic() if seconds is None else seconds


def _blocks(chunks: Iterator[bytes]) -> Iterator[memoryview]:
    """Yield the document in *chunks* as a body of blocks, the empty one together with the one before."""
    block = b""
    for chunk in chunks:
        if block:
            yield memoryview(block)
        block = len(chunk).to_bytes(LENGTH, "big") + chunk
    yield memoryview(block + bytes(LENGTH))

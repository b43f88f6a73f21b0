"""Apply filters to documents in child processes, so that no line waits for the slow filter of another.

A filter can take any time on a document: only the time that it has used distinguishes a quick one from an endless one.
So each document begins in the quick lane, and leaves it with its process when it has used more CPU time than almost any
filter needs. The quick lane gets another process, and the document continues in the slow lane, where each has its own
process. Two lanes are enough: one would need a process for each line, which takes a hundred times as long to start
as a usual filter to run, and between more than two, documents would only move.

The invariants:

- A line waits in the quick lane only for lines that have used less than `_QUICK` seconds each, and for the start of a
  process. Only CPU time counts, not elapsed time, so a loaded machine does not make a line slow.
- The slow lane has a limited number of processes, because each has its own memory. A line that finds all of them in
  use gets a turn: it runs as soon as another has used `_TURN` seconds. The one that has used the least of them is
  ended, because that loses the least, and runs again when no line is left that had no turn. So an endless line delays
  one of 30 ms for a moment only, and is ended only if others follow.
- Slow jobs have a lower priority, for the rest of the life of their process: a process cannot raise it again. One that
  has moved keeps its priority for `_TURN` seconds, and can return to the quick lane meanwhile: if all filters take a
  little longer than `_QUICK`, a new process for each would take longer than the filters.
- The results in memory are limited: a job begins only if the budget has room, or if its line is the one for which the
  output waits. A job that has begun is always read to its end, so no process waits for room, and that line finds one.

With one line in flight, nothing waits for another, and there is only the quick lane, with one process and no limit.

What was tried: limits that adapt to the filters, a delay before a job is given to a process that is still starting, and
three groups of slow jobs. They saved a few processes, but what they did was hard to predict.
"""

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from xapi_cli.batch.jq.job import FilterJob
from xapi_cli.batch.memory_budget import MemoryBudget
from xapi_cli.errors import FilterError
from xapi_cli.http.event_loop import EventLoop
from xapi_cli.system.render import decimal

if TYPE_CHECKING:
    from xapi_cli.batch.jq.worker import FilterWorker
    from xapi_cli.request.jq.engine import CompiledFilter
    from xapi_cli.request.jq.process import FilterProcess

_QUICK = 0.005  # seconds of CPU time of a job in the quick lane
_PER_BYTE = 2e-7  # seconds that are added to that, to parse the document
_LARGE = 64 * 1024  # bytes of a document that begins in the slow lane
_TURN = 0.05  # seconds of CPU time that each job in the slow lane can use before it may be ended for another
_PAUSE = 0.002  # seconds, at least, between two looks at the processes
_SPARE_AFTER = 16  # jobs, after which the quick lane has a second process: fewer end before it has started
_MAX_SLOW = 1000  # lines that do not count as in flight, because their filter is slow
_QUICK_PROCESSES = 4
_SLOW_PROCESSES = max(6, min(os.cpu_count() or 1, 16))
_NICENESS = 10
_MEMORY = 1024**3  # bytes of a process
FILTER_DESCRIPTORS = 3 * (_QUICK_PROCESSES + _SLOW_PROCESSES)  # of all processes: stdin, stdout and the lifeline


def line_filter(text: str | None, conditions: Sequence[str], environ: Mapping[str, str]) -> "CompiledFilter | None":
    """Return the filters of --jq and --expect, compiled, if there are any; the errors are those of compile_filter."""
    if text is None and not conditions:
        return None
    from xapi_cli.request.jq.engine import compile_filter

    option = "--expect" if text is None else "--jq"
    text = "empty" if text is None else text
    return compile_filter(text, environ, encode="tojson", memory=_MEMORY, option=option, conditions=conditions)


class _Lane:
    """The jobs that wait in a lane, and the workers, at most *max_workers*."""

    def __init__(self, max_workers: int) -> None:
        self.max_workers = max_workers
        self.waiting: deque[FilterJob] = deque()
        self.workers: list[FilterWorker] = []

    @property
    def jobs(self) -> int:
        """Return the number of jobs that wait or run."""
        return len(self.waiting) + sum(worker.job is not None for worker in self.workers)


class FilterPool:
    """Run the jobs with *jq*, each for at most *timeout* seconds.

    What the results occupy until they are complete counts towards *budget*; if it has no room, only the line that
    *oldest* returns begins. Without *oldest*, results do not accumulate, and each line begins. At most *jobs* lines
    are in flight, not counting the `slow_lines`.
    """

    def __init__(
        self,
        jq: "CompiledFilter | None",
        loop: EventLoop,
        budget: MemoryBudget,
        *,
        timeout: float,
        jobs: int,
        oldest: Callable[[], int] | None,
    ) -> None:
        self.loop, self.budget = loop, budget
        self.option = "--jq" if jq is None else jq.engine.option
        self._jq, self._compiled = jq, None if jq is None else jq.process
        self._timeout, self._oldest = timeout, oldest
        self._is_sequential = jobs == 1
        self.quick = _Lane(1 if self._is_sequential else _QUICK_PROCESSES)
        self.slow = _Lane(_SLOW_PROCESSES)
        self._done = 0  # jobs
        self._has_moved = False  # a job was slow
        self._ending: list[FilterProcess] = []
        self.next_check = float("inf")  # when `check` must be called next, on the monotonic clock

    @property
    def has_jobs(self) -> bool:
        """Return whether jobs wait or run."""
        return bool(self.quick.jobs or self.slow.jobs)

    @property
    def slow_lines(self) -> int:
        """Return how many lines do not count as in flight now, because they have slow jobs."""
        return min(self.slow.jobs, _MAX_SLOW)

    def add(self, job: FilterJob, then: Callable[[], None]) -> None:
        """Run *job*; call *then* when its result is available."""
        job.then = then
        if job.size > _LARGE and not self._is_sequential:
            self._wait_for_turn(job)
        else:
            self.quick.waiting.append(job)
        self._run()

    def check(self, now: float) -> None:
        """End the jobs that take too long, move those that are slow, and begin those for which there is room."""
        if now >= self.next_check:
            self._check_all(now)
        elif self.quick.waiting or self.slow.waiting:
            self._run()

    def close(self) -> None:
        """End all processes; no result follows."""
        for lane in (self.quick, self.slow):
            lane.waiting.clear()
        for worker in (*self.quick.workers, *self.slow.workers):
            worker.end()
        if self._compiled is not None:
            self._ending.append(self._compiled)
        for process in self._ending:
            process.end()
        self._ending.clear()

    # called by the workers

    def idle(self) -> None:
        """Give a worker that has become idle another job."""
        self._done += 1
        self._run()

    def ended(self, worker: "FilterWorker", failure: str) -> None:
        """Replace *worker*, whose process has ended with *failure* without a job."""
        lane = self.quick if worker in self.quick.workers else self.slow
        worker.end()
        self._cannot_start(lane, failure)

    def remove(self, worker: "FilterWorker") -> None:
        """Remove *worker*, and wait for the end of its process, which was killed, without blocking."""
        for lane in (self.quick, self.slow):
            if worker in lane.workers:
                lane.workers.remove(worker)
        self._ending.append(worker.process)  # it may take long to free its memory
        self.next_check = 0.0

    # jobs

    def _run(self) -> None:
        """Give the jobs that wait to idle workers, and start processes for the others."""
        for lane in (self.quick, self.slow):
            self._begin(lane)
            while len(lane.workers) < self._wanted(lane) and self._add_worker(lane):
                self._begin(lane)

    def _begin(self, lane: _Lane) -> None:
        """Give the jobs that wait in *lane* to its idle workers."""
        for worker in lane.workers if lane.waiting else ():
            if worker.is_idle and (job := self._next_job(lane)) is not None:
                worker.begin(job)
                self._check_by(job.started + _QUICK)

    def _next_job(self, lane: _Lane) -> FilterJob | None:
        """Remove the first job from those that wait in *lane*; without room, the one of the oldest line."""
        if not lane.waiting or self.budget.has_room or self._oldest is None:
            return lane.waiting.popleft() if lane.waiting else None
        oldest = self._oldest()
        found = next((job for job in lane.waiting if job.number == oldest), None)
        if found is not None:
            lane.waiting.remove(found)
        return found

    def _wanted(self, lane: _Lane) -> int:
        """Return how many processes *lane* should have."""
        if lane is self.slow:
            return min(lane.max_workers, lane.jobs)
        if self._has_moved:
            return lane.max_workers
        return min(lane.max_workers, 2 if self._done >= _SPARE_AFTER else 1)

    def _add_worker(self, lane: _Lane) -> bool:
        """Add a worker to *lane*, of which one in the other lane may be free; return whether that worked."""
        from xapi_cli.batch.jq.worker import FilterWorker

        if lane is self.quick:
            for worker in self.slow.workers:
                if worker.is_idle and not worker.is_lowered:
                    _move(worker, self.slow, self.quick)
                    return True
        assert self._jq is not None  # noqa: S101 - there are no jobs without a filter
        process, self._compiled = self._compiled, None
        try:
            worker = FilterWorker(process or self._jq.engine.start(), self, is_ready=process is not None)
        except FilterError as error:
            self._cannot_start(lane, str(error))
            return False
        if lane is self.slow:
            worker.lower_priority(_NICENESS)
        lane.workers.append(worker)
        return True

    def _cannot_start(self, lane: _Lane, failure: str) -> None:
        """Use the processes that *lane* has; if there are none, fail the jobs that wait."""
        lane.max_workers = max(1, len(lane.workers))
        if not lane.workers:
            waiting, lane.waiting = lane.waiting, deque()
            for job in waiting:
                job.fail(failure)
                job.end()

    # slow jobs

    def _check_all(self, now: float) -> None:
        self._ending = [process for process in self._ending if not process.try_end()]
        self.next_check = now + 10 * _PAUSE if self._ending else float("inf")
        for worker in (*self.quick.workers, *self.slow.workers):
            if worker.job is not None:
                self._check_by(now + max(_PAUSE, self._check(worker, worker.job, now)))
        self._give_turns(now)
        self._run()

    def _check(self, worker: "FilterWorker", job: FilterJob, now: float) -> float:
        """Act if *job* has used its time; return the seconds until it may have done so."""
        is_quick, left = worker in self.quick.workers, job.started + self._timeout - now
        if not (self._is_sequential or worker.is_lowered):
            left = min(left, (_QUICK if is_quick else _TURN) + job.size * _PER_BYTE - worker.used())
        if left > 0:
            return left
        worker.read()  # xapi itself may have been delayed
        if worker.job is not job:
            pass
        elif now >= job.started + self._timeout:
            limit = f"{decimal(self._timeout)} s"
            worker.fail(f"the {self.option} filter did not finish within {limit}; raise --timeout")
        elif is_quick:
            self._has_moved = True
            self._move_to_slow_lane(worker)
        else:
            worker.lower_priority(_NICENESS)
        return 0.0

    def _move_to_slow_lane(self, worker: "FilterWorker") -> None:
        """Move *worker* with its job or, if all processes of the slow lane are in use, only the job."""
        if len(self.slow.workers) >= self.slow.max_workers:
            free = next((each for each in self.slow.workers if each.job is None), None)
            if free is not None:
                free.end()
            elif any(not job.had_turn for job in self.slow.waiting) or not self._end_turns(1):
                self._wait_for_turn(worker.take_back())
                return
        _move(worker, self.quick, self.slow)

    def _wait_for_turn(self, job: FilterJob) -> None:
        """Let *job* wait in the slow lane, before those that had a turn."""
        waiting = self.slow.waiting
        waiting.insert(sum(not each.had_turn for each in waiting), job)
        self._check_by(0.0)

    def _give_turns(self, now: float) -> None:
        """End runs that have used the time of a turn, as many as there are jobs that wait for one."""
        lane = self.slow
        new = sum(not job.had_turn for job in lane.waiting)
        if len(lane.workers) < lane.max_workers or lane.jobs - len(lane.waiting) < len(lane.workers):
            return  # a job can begin without that
        if self._end_turns(new) < new:
            self._check_by(now + max(_PAUSE, *(_TURN - worker.used() for worker in lane.workers)))

    def _end_turns(self, most: int) -> int:
        """End up to *most* runs that have used the time of a turn, those with the least first; return how many."""
        used = sorted((worker.used(), number) for number, worker in enumerate(self.slow.workers))
        ended = [self.slow.workers[number] for seconds, number in used if seconds >= _TURN][:most]
        for worker in ended:
            job = worker.take_back()
            job.had_turn = True
            self.slow.waiting.append(job)
        return len(ended)

    def _check_by(self, moment: float) -> None:
        self.next_check = min(self.next_check, moment)


def _move(worker: "FilterWorker", source: _Lane, target: _Lane) -> None:
    source.workers.remove(worker)
    target.workers.append(worker)

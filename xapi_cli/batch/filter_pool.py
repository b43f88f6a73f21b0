"""Apply the filter of --jq to documents in child processes, so that no document waits for a slow filter."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.batch.event_loop import EventLoop
from xapi_cli.batch.filter_job import FilterJob
from xapi_cli.batch.filter_worker import FilterWorker, Waiting
from xapi_cli.batch.memory_budget import MemoryBudget
from xapi_cli.errors import FilterError

if TYPE_CHECKING:
    from xapi_cli.request.filter_engine import FilterEngine
    from xapi_cli.request.filter_process import FilterProcess

_QUICK = (0.004, 0.02)  # seconds of CPU time after which a job is slow: usually, and if many take just longer
_LARGE = 64 * 1024  # bytes of a document that is slow in any case
_PER_BYTE = 2e-7  # seconds of CPU time that are added to a limit, to parse the document
_HESITATION = 0.003  # seconds before a job is given to a process that may still be starting
_PAUSE = 0.002  # seconds, at least, between two checks of a process
_WALL = 10  # times the limit of CPU time, after which a job is slow in any case: it may use no CPU time itself
_WALL_START = 1.0  # seconds that are added to that, for a machine under load
_SPARE_AFTER = 16  # jobs, after which a spare process is ready: fewer end before it has started
_MAX_SLOW = 1000  # lines that do not count as in flight, because their filter is slow
_AGAIN = 0.02  # seconds before the next check of a slow job that cannot move


class _Class(NamedTuple):
    """Jobs that use up to *seconds* of CPU time run in up to *most* processes, which have *niceness*."""

    seconds: float
    niceness: int
    most: int


def _classes(*, is_sequential: bool) -> tuple[_Class, ...]:
    if is_sequential:  # no document waits for another
        return (_Class(float("inf"), 0, 1),)
    cores = min(os.cpu_count() or 1, 16)
    return (
        _Class(_QUICK[0], 0, 4),
        _Class(0.05, 10, max(4, cores)),
        _Class(0.5, 12, 4),
        _Class(float("inf"), 14, max(6, cores)),
    )


class _Lane:
    """The jobs of a class: those that wait, and the workers of those that run."""

    def __init__(self, limits: _Class) -> None:
        self.seconds, self.niceness, self.most = limits
        self.waiting: deque[Waiting] = deque()
        self.workers: list[FilterWorker] = []

    @property
    def busy(self) -> int:
        """Return the number of jobs that run."""
        return sum(worker.job is not None for worker in self.workers)

    def free_worker(self, now: float) -> FilterWorker | None:
        """Return an idle worker, one that may still be starting only if no other is soon idle."""
        started, idle = 0.0, None
        for worker in self.workers:
            if worker.job is not None:
                started = max(started, worker.job.started)
            elif worker.is_warm:
                return worker
            else:
                idle = worker
        return idle if self.niceness or now - started >= _HESITATION else None

    def is_over(self, worker: FilterWorker, job: FilterJob, now: float) -> bool:
        """Return whether *job* has used too much time for this lane; if not, plan the next look at *worker*."""
        limit = self.seconds + job.size * _PER_BYTE
        rest = limit - worker.used()
        expires = worker.began + _WALL * limit + _WALL_START
        worker.next_look = now + max(_PAUSE, min(rest, expires - now) if worker.is_warm else 0.0)
        return rest <= 0 or now >= expires


def line_filter(text: str | None, environ: Mapping[str, str], warn: Callable[[str], None]) -> "FilterEngine | None":
    """Return what runs the jq filter *text*, if there is one; the parameters and errors are those of FilterEngine."""
    if text is None:
        return None
    from xapi_cli.request.filter_engine import FilterEngine

    return FilterEngine(text, environ, warn=warn, by_line=True)


class FilterPool:
    """Run the jobs with *jq*, each for at most *timeout* seconds.

    There are several lanes, each with processes of its own. A job enters the first, or the second if its document is
    large. If it uses more CPU time than the lane allows, it moves to the next with its process, which gets a lower
    priority. If that lane is full, the process is killed, and the job waits there to run again. Spare processes
    are ready in the first lane. On Linux, the memory of each process is limited.

    What the results occupy until they are complete counts towards *budget*; there is always room for the line that
    *oldest* returns, by default the first one of which a job waits or runs. *note* takes what the filter prints on
    stderr. At most *jobs* lines are in flight, not counting those with slow jobs; if it is one, there is one process.
    """

    def __init__(
        self,
        jq: "FilterEngine | None",
        loop: EventLoop,
        budget: MemoryBudget,
        *,
        timeout: float,
        jobs: int,
        note: Callable[[str], None],
        oldest: Callable[[], int] | None,
    ) -> None:
        self.jq, self.loop, self.budget, self.note = jq, loop, budget, note
        self._timeout, self._jobs = timeout, jobs
        self._oldest = oldest or self._oldest_job
        self.lanes = [_Lane(each) for each in _classes(is_sequential=jobs == 1)]
        self._wanted = 1  # processes in the first lane, with spares
        self._done = 0  # jobs
        self._ending: list[FilterProcess] = []
        self._next_look = float("inf")

    @property
    def next_check(self) -> float | None:
        """Return when `check` must be called next, on the monotonic clock."""
        return None if self._next_look == float("inf") else self._next_look

    @property
    def slow(self) -> int:
        """Return the number of slow jobs, which wait or run."""
        return sum(len(lane.waiting) + lane.busy for lane in self.lanes[1:])

    def has_slot(self, lines: int) -> bool:
        """Return whether another line may be in flight besides *lines*, of which slow ones do not count."""
        return lines < self._jobs or lines < self._jobs + min(self.slow, _MAX_SLOW)

    def add(self, job: FilterJob, then: Callable[[], None]) -> None:
        """Run *job*; call *then* when its result is available."""
        level = 1 if job.size > _LARGE and len(self.lanes) > 1 else 0
        self.lanes[level].waiting.append((job, then))
        self._run()

    def check(self, now: float) -> None:
        """End the jobs that take too long, move those that are slow, and continue to read results if there is room."""
        if now >= self._next_look:
            self._look(now)
        if not self.budget.has_room:
            self._run_oldest()
        for lane in self.lanes:
            for worker in lane.workers:
                if worker.is_paused:
                    worker.resume()
                    self._plan_look(now + self._timeout)

    def close(self) -> None:
        """End all processes; no result follows."""
        for lane in self.lanes:
            lane.waiting.clear()
        for worker in self._workers():
            worker.end()
            self.remove(worker)
        for process in self._ending:
            process.end()
        self._ending.clear()

    # called by the workers

    def may_read(self, job: FilterJob) -> bool:
        """Return whether there is room for more of the result of *job*; there always is for the oldest line."""
        return self.budget.has_room or job.number == self._oldest()

    def done(self, worker: FilterWorker, job: FilterJob) -> None:
        """Record that *worker* has done *job*, adapt the limits to its time, and run the next job."""
        if worker.level == 1 and job.size <= _LARGE and worker.used() <= _QUICK[1]:
            quick = self.lanes[0]  # a higher limit ends fewer processes whose job is almost done
            quick.seconds = min(2 * quick.seconds, _QUICK[1])
        if len(self.lanes[worker.level].workers) > self.lanes[worker.level].most:  # it was started for the oldest line
            worker.end()
            self.remove(worker)
        self._done += 1
        if self._done == _SPARE_AFTER:
            self._wanted = max(self._wanted, min(2, self.lanes[0].most))
        self._run()

    def remove(self, worker: FilterWorker) -> None:
        """Remove *worker*, which has ended."""
        self.lanes[worker.level].workers.remove(worker)
        self._plan_look(0.0)

    def reap_later(self, process: "FilterProcess") -> None:
        """Wait for the end of *process*, which was killed, without blocking: it may take long to free its memory."""
        self._ending.append(process)

    # jobs

    def _run(self) -> None:
        """Start the jobs that wait, and the processes for them."""
        now = time.monotonic()
        for level, lane in enumerate(self.lanes):
            if lane.waiting:
                self._begin(lane, now)
            if lane.waiting or (not level and len(lane.workers) < self._wanted):
                self._start_processes(level)
                self._begin(lane, now)

    def _begin(self, lane: _Lane, now: float) -> None:
        while lane.waiting and (worker := lane.free_worker(now)) is not None:
            self._begin_first(lane, worker, now)
        if lane.waiting and lane is self.lanes[0]:
            self._plan_look(now + _HESITATION)

    def _begin_first(self, lane: _Lane, worker: FilterWorker, now: float) -> None:
        """Give the first job that waits in *lane* to *worker*."""
        worker.next_look = now + (lane.seconds if worker.is_warm else _PAUSE)
        self._plan_look(min(worker.next_look, now + self._timeout))
        worker.begin(*lane.waiting.popleft())

    def _start_processes(self, level: int) -> None:
        lane = self.lanes[level]
        wanted = len(lane.waiting) + lane.busy if level else self._wanted
        while len(lane.workers) < min(wanted, lane.most):
            if not self._start_process(level):
                return

    def _start_process(self, level: int) -> bool:
        """Start a process in the lane *level*; return whether that worked. If none works, fail the jobs that wait."""
        assert self.jq is not None  # noqa: S101 - there are no jobs without a filter
        lane = self.lanes[level]
        try:
            worker = FilterWorker(self.jq, self, level)
        except FilterError as error:
            self._wanted = 1
            waiting: deque[Waiting] = deque()
            if not lane.workers:
                waiting, lane.waiting = lane.waiting, waiting
            for job, then in waiting:
                job.fail(str(error))
                then()
            return False
        if lane.niceness:
            worker.enter(level, lane.niceness)
        lane.workers.append(worker)
        return True

    def _run_oldest(self) -> None:
        """Run the job of the oldest line if it waits, in an additional process: all others may wait for room."""
        oldest = self._oldest()
        for level, lane in enumerate(self.lanes):
            for waiting in lane.waiting:
                if waiting[0].number == oldest:
                    lane.waiting.remove(waiting)
                    lane.waiting.appendleft(waiting)
                    if self._start_process(level):
                        self._begin_first(lane, lane.workers[-1], time.monotonic())
                    return

    # slow jobs

    def _look(self, now: float) -> None:
        self._ending = [process for process in self._ending if not process.try_end()]
        for worker in self._workers():
            job = worker.job
            if job is None or worker.is_paused:
                continue
            if now - job.started >= self._timeout:
                worker.expire(f"the filter of --jq did not finish within {self._timeout:g} s; raise --timeout")
            elif not job.held and worker.level + 1 < len(self.lanes) and now >= worker.next_look:
                self._check_time(worker, job, now)
        self._next_look = self._time_of_next_look(now)
        self._run()

    def _check_time(self, worker: FilterWorker, job: FilterJob, now: float) -> None:
        """Move *job* to the next lane if it is slow; if that is full, only if other jobs need its process."""
        level = worker.level
        lane, following = self.lanes[level], self.lanes[level + 1]
        if not lane.is_over(worker, job, now) or worker.read_result():
            return
        if level:
            self.lanes[0].seconds = max(self.lanes[0].seconds / 2, _QUICK[0])
        else:
            self._wanted = lane.most
        if following.busy < following.most:
            self._make_room(following)
            self.remove(worker)
            following.workers.append(worker)
            worker.enter(level + 1, following.niceness)
            worker.next_look = now + following.seconds
        elif not level or (lane.waiting and lane.busy >= lane.most):
            following.waiting.append(worker.take_back())
        else:
            worker.next_look = now + _AGAIN

    def _make_room(self, lane: _Lane) -> None:
        """End an idle worker of *lane* if it is full."""
        if len(lane.workers) >= lane.most:
            idle = next(worker for worker in lane.workers if worker.job is None)
            idle.end()
            self.remove(idle)

    def _time_of_next_look(self, now: float) -> float:
        times = [now + 10 * _PAUSE] if self._ending else []
        for worker in self._workers():
            if worker.job is not None and not worker.is_paused:
                times.append(worker.job.started + self._timeout)
                if worker.level + 1 < len(self.lanes) and not worker.job.held:
                    times.append(worker.next_look)
        return min(times, default=float("inf"))

    def _plan_look(self, moment: float) -> None:
        self._next_look = min(self._next_look, moment)

    def _oldest_job(self) -> int:
        running = (worker.job.number for worker in self._workers() if worker.job is not None)
        return min((*running, *(job.number for lane in self.lanes for job, _ in lane.waiting)), default=0)

    def _workers(self) -> Iterator[FilterWorker]:
        """Yield the workers as they are now; some may be removed meanwhile."""
        return iter([worker for lane in self.lanes for worker in lane.workers])

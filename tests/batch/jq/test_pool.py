"""The processes of `xapi batch --jq`: which of them run, and which documents wait."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from xapi_cli.batch.jq.job import FilterJob
from xapi_cli.batch.jq.pool import FilterPool, line_filter
from xapi_cli.batch.memory_budget import MemoryBudget
from xapi_cli.errors import FilterError
from xapi_cli.http.event_loop import EventLoop
from xapi_cli.request.jq.engine import FilterEngine

COUNT = 24
ENDLESS = "def f: f; f"
SLOW = "last(range(60000))"  # 20 ms or more


@contextmanager
def filter_pool(text: str, *, jobs: int = 16, **options: Any) -> Iterator[FilterPool]:
    loop = EventLoop()
    settings: dict[str, Any] = {"budget": MemoryBudget(), "timeout": 100, "oldest": None} | options
    pool = FilterPool(line_filter(text, (), os.environ), loop, jobs=jobs, **settings)
    try:
        yield pool
    finally:
        pool.close()
        loop.close()


def add(pool: FilterPool, count: int, done: list[FilterJob], text: bytes = b"null") -> list[FilterJob]:
    """Add jobs with *text*, which are in *done* when they end."""
    jobs = [FilterJob(number, len(text), lambda: iter((text,))) for number in range(1, count + 1)]
    for job in jobs:
        pool.add(job, lambda job=job: done.append(job))  # type: ignore[misc]  # mypy has no type for the lambda
    return jobs


def turn(pool: FilterPool) -> None:
    """Wait for an event, and process it."""
    seconds = min(1.0, pool.next_check - time.monotonic())  # infinite while a process starts
    for _ in pool.loop.ready(max(0.0, seconds)):
        pass
    pool.check(time.monotonic())


def lanes(pool: FilterPool) -> tuple[int, int]:
    """Return the numbers of processes."""
    return len(pool.quick.workers), len(pool.slow.workers)


def test_without_room_for_results_the_lines_end_in_turn() -> None:
    done: list[FilterJob] = []
    budget = MemoryBudget(0)  # no room for anything, except the result of the oldest line
    with filter_pool(SLOW, budget=budget, oldest=lambda: len(done) + 1) as pool:
        add(pool, COUNT, done)
        while len(done) < COUNT:
            turn(pool)

    assert [(job.number, job.result()) for job in done] == [(each, (1, b"59999")) for each in range(1, COUNT + 1)]


@pytest.mark.slow
def test_slow_jobs_take_no_slot_and_are_not_the_only_ones_with_a_process() -> None:
    done: list[FilterJob] = []
    with filter_pool(ENDLESS) as pool:
        add(pool, COUNT, done)
        while pool.slow.jobs < COUNT:  # each has moved: an idle process is left
            turn(pool)
        assert pool.slow_lines == COUNT
        assert len(pool.slow.waiting) >= COUNT - pool.slow.max_workers  # more while a process starts
        assert not pool.quick.jobs
        assert lanes(pool) == (pool.quick.max_workers, pool.slow.max_workers)

    assert not done


@pytest.mark.slow
def test_a_slow_job_gets_a_turn_although_more_endless_ones_run_than_there_are_processes() -> None:
    done: list[FilterJob] = []
    with filter_pool(f"if . == 0 then ({ENDLESS}) else {SLOW} end") as pool:
        add(pool, COUNT, done, b"0")
        slow = pool.slow
        while not all(job.had_turn for job in slow.waiting) or len(slow.waiting) < COUNT - slow.max_workers:
            turn(pool)
        jobs = add(pool, 1, done, b"1")
        while not done:
            turn(pool)
        assert pool.slow.jobs == COUNT

    assert done == jobs


def test_a_process_whose_job_was_slow_for_a_moment_serves_quick_ones_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xapi_cli.batch.jq.pool._TURN", 10.0)  # seconds; the machine may be under load
    done: list[FilterJob] = []
    with filter_pool(f"if . then {SLOW} else . end") as pool:
        while not pool.slow.workers:  # on a busy machine, a job can end before the pool looks at it
            add(pool, 1, done, b"true")
            while pool.has_jobs:
                turn(pool)
        moved = set(pool.slow.workers)
        for worker in list(pool.quick.workers):
            worker.end()
        add(pool, 1, done)
        assert moved <= set(pool.quick.workers)


def test_with_one_job_there_is_one_process_and_no_slow_job() -> None:
    done: list[FilterJob] = []
    with filter_pool(SLOW, jobs=1) as pool:
        add(pool, 3, done)
        while len(done) < 3:
            turn(pool)
            assert (pool.slow.jobs, lanes(pool)) == (0, (1, 0))

    assert [job.number for job in done] == [1, 2, 3]


def test_a_large_document_begins_among_the_slow_ones() -> None:
    done: list[FilterJob] = []
    with filter_pool("length") as pool:
        jobs = add(pool, 1, done, b'"' + b"x" * 100_000 + b'"')
        assert pool.slow.jobs == 1
        while not done:
            turn(pool)

    assert jobs[0].result() == (1, b"100000")


def test_if_no_process_can_be_started_each_job_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: FilterEngine) -> None:
        raise FilterError("the process of --jq cannot be started: no memory")

    done: list[FilterJob] = []
    with filter_pool(".") as pool, monkeypatch.context() as patch:
        patch.setattr(FilterEngine, "start", start)
        jobs = add(pool, 3, done, b'"' + b"x" * 100_000 + b'"')  # the quick lane has a process already

    assert done == jobs
    for job in jobs:
        with pytest.raises(FilterError, match="the process of --jq cannot be started: no memory"):
            job.result()


def test_a_process_that_is_killed_is_replaced() -> None:
    done: list[FilterJob] = []
    with filter_pool(ENDLESS) as pool:
        jobs = add(pool, 1, done)
        pool.quick.workers[0].process.kill()
        while not done:
            turn(pool)
        with pytest.raises(FilterError, match="jq was killed"):
            jobs[0].result()
        add(pool, 1, done)
        assert pool.quick.jobs == 1

"""The processes of `xapi batch --jq`: which of them run, and which documents wait."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from xapi_cli.batch.event_loop import EventLoop
from xapi_cli.batch.filter_job import FilterJob
from xapi_cli.batch.filter_pool import FilterPool
from xapi_cli.batch.memory_budget import MemoryBudget
from xapi_cli.errors import FilterError
from xapi_cli.request.filter_engine import FilterEngine

COUNT = 24
SLOW = "last(range(60000))"  # 20 ms or more


@contextmanager
def filter_pool(text: str, *, budget: MemoryBudget | None = None, jobs: int = 16) -> Iterator[FilterPool]:
    engine = FilterEngine(text, dict(os.environ), warn=pytest.fail, by_line=True)
    loop = EventLoop()
    pool = FilterPool(engine, loop, budget or MemoryBudget(), timeout=100, jobs=jobs, note=pytest.fail, oldest=None)
    try:
        yield pool
    finally:
        pool.close()
        loop.close()
        engine.close()


def add(pool: FilterPool, count: int, done: list[FilterJob], text: bytes = b"null\n") -> list[FilterJob]:
    """Add jobs with *text*, which are in *done* when they end."""
    jobs = [FilterJob(number, len(text), lambda: iter((text,))) for number in range(1, count + 1)]
    for job in jobs:
        pool.add(job, lambda job=job: done.append(job))  # type: ignore[misc]  # mypy has no type for the lambda
    return jobs


def turn(pool: FilterPool) -> None:
    """Wait for an event, and process it."""
    assert pool.next_check is not None
    for _ in pool.loop.ready(max(0.0, pool.next_check - time.monotonic())):
        pass
    pool.check(time.monotonic())


def test_without_room_for_results_the_lines_end_in_turn_with_one_more_process() -> None:
    budget = MemoryBudget(0)  # no room for anything, except the result of the oldest line
    done: list[FilterJob] = []
    with filter_pool(SLOW, budget=budget) as pool:
        most = sum(lane.most for lane in pool.lanes)
        add(pool, COUNT, done)
        while len(done) < COUNT:
            turn(pool)
            assert sum(len(lane.workers) for lane in pool.lanes) <= most + len(pool.lanes)

    assert [job.result() for job in sorted(done, key=lambda job: job.number)] == [(1, b"59999")] * COUNT


def test_slow_jobs_take_no_slot_and_are_not_the_only_ones_with_a_process() -> None:
    done: list[FilterJob] = []
    with filter_pool("def f: f; f") as pool:
        add(pool, COUNT, done)
        while pool.slow < COUNT:  # each has moved: an idle process is left
            turn(pool)
        assert pool.has_slot(COUNT + 15)
        assert not pool.has_slot(COUNT + 16)
        assert sum(worker.job is not None for lane in pool.lanes[1:] for worker in lane.workers) < COUNT
        assert all(worker.job is None for worker in pool.lanes[0].workers)

    assert not done


def test_with_one_job_there_is_one_process_and_no_slow_job() -> None:
    done: list[FilterJob] = []
    with filter_pool(SLOW, jobs=1) as pool:
        add(pool, 3, done)
        while len(done) < 3:
            turn(pool)
            assert (pool.slow, len(pool.lanes), len(pool.lanes[0].workers)) == (0, 1, 1)

    assert [job.number for job in done] == [1, 2, 3]


def test_a_large_document_begins_among_the_slow_ones() -> None:
    done: list[FilterJob] = []
    text = b'"' + b"x" * 100_000 + b'"\n'
    with filter_pool("length") as pool:
        jobs = add(pool, 1, done, text)
        assert pool.slow == 1
        while not done:
            turn(pool)

    assert jobs[0].result() == (1, b"100000")


def test_if_no_process_can_be_started_each_job_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: FilterEngine) -> None:
        raise FilterError("jq cannot be run: no memory")

    done: list[FilterJob] = []
    with filter_pool(".") as pool, monkeypatch.context() as patch:
        patch.setattr(FilterEngine, "start", start)
        jobs = add(pool, 3, done)

    assert done == jobs
    for job in jobs:
        with pytest.raises(FilterError, match="jq cannot be run: no memory"):
            job.result()

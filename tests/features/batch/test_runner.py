"""The runner: order, back-pressure, ends, and that each task has its own result, against a real server."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.features.batch.server import Api, ReceivedRequest, Reply
from xapi_cli.context import Context
from xapi_cli.errors import InvalidLine, StoreError, TimeoutExpired
from xapi_cli.features.batch.results import Result, Task
from xapi_cli.features.batch.runner import Runner
from xapi_cli.http.send import Call
from xapi_cli.system.terminal import Terminal


class Gate:
    """Responses that wait until the test opens the gate for their path."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self._open: set[str] | None = set()
        self._changed = threading.Condition()

    def __call__(self, received: ReceivedRequest) -> Reply:
        with self._changed:
            self.arrived.append(received.path)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._open is None or received.path in self._open)
        return Reply(f'"{received.path}"'.encode())

    def wait_for(self, count: int) -> list[str]:
        with self._changed:
            self._changed.wait_for(lambda: len(self.arrived) >= count)
            return list(self.arrived)

    def open(self, *paths: str) -> None:
        """Open the gate for *paths*, for all without any."""
        with self._changed:
            self._open = {*self._open, *paths} if paths and self._open is not None else None
            self._changed.notify_all()


@pytest.fixture
def gate() -> Gate:
    return Gate()


def _context(api: Api, tmp_path: Path, **variables: str) -> Context:
    directories = {"XAPI_CONFIG_DIR": str(tmp_path), "XAPI_STATE_DIR": str(tmp_path), "HOME": str(tmp_path)}
    environ = {**directories, "XAPI_BASE_URL": api.url, "XAPI_TOKEN": "abcdefgh", **variables}
    return Context(environ, terminal=Terminal(environ, has_streams=False))


def _tasks(api: Api, count: int, taken: list[int] | None = None) -> Iterator[Task]:
    for number in range(count):
        if taken is not None:
            taken.append(number)
        yield Task(number, Call("GET", f"{api.url}/{number}"))


def _consume(run: Iterator[list[Result]], results: list[Result]) -> None:
    for found in run:
        results += found


def _numbers(results: list[Result]) -> list[int]:
    return [result.task.number for result in results]


def test_each_task_has_the_response_to_its_own_request(tmp_path: Path) -> None:
    def response(received: ReceivedRequest) -> Reply:
        return Reply(f'"{received.path}"'.encode(), status=404 if received.path.endswith("7") else 200)

    with Api(response, open_to_all=True) as api, Runner(_context(api, tmp_path), jobs=8) as runner:
        results = [result for found in runner.run(_tasks(api, 200)) for result in found]

    assert sorted(result.task.number for result in results) == list(range(200))
    for result in results:
        number = result.task.number
        assert (result.status, result.read()) == (404 if number % 10 == 7 else 200, f'"/{number}"'.encode())


def test_ordered_results_wait_for_earlier_ones_and_hold_back_later_tasks(tmp_path: Path, gate: Gate) -> None:
    taken: list[int] = []
    with Api(gate, open_to_all=True) as api, Runner(_context(api, tmp_path), jobs=2, ordered=True) as runner:
        run = runner.run(_tasks(api, 30, taken))
        assert next(run) == []
        gate.open(*(f"/{number}" for number in range(1, 30)))
        results: list[Result] = []
        gate.wait_for(8)
        for _ in range(3):
            results += next(run)
        assert (results, taken, len(gate.arrived)) == ([], list(range(8)), 8)  # 4 · 2 tasks
        gate.open()
        results += [result for found in run for result in found]

    assert _numbers(results) == list(range(30))


def test_nothing_is_taken_while_the_results_are_not_consumed(tmp_path: Path, gate: Gate) -> None:
    taken: list[int] = []
    gate.open()
    with Api(gate, open_to_all=True) as api, Runner(_context(api, tmp_path), jobs=3) as runner:
        run = runner.run(_tasks(api, 100, taken))
        results = list(next(run))
        gate.wait_for(12)
        assert len(taken) == 12  # the tasks of the list count until the next one is asked for
        results += [result for found in run for result in found]
    assert sorted(_numbers(results)) == list(range(100))


def test_a_request_is_sent_while_the_next_task_is_awaited(tmp_path: Path) -> None:
    go_on = threading.Event()

    def tasks(api: Api) -> Iterator[Task]:
        yield from _tasks(api, 1)
        go_on.wait()

    with Api(open_to_all=True) as api, Runner(_context(api, tmp_path), jobs=4) as runner:
        found = next(results for results in runner.run(tasks(api)) if results)
        assert _numbers(found) == [0]
        go_on.set()


def test_a_failure_stops_the_run_with_fail_fast(tmp_path: Path, gate: Gate) -> None:
    def response(received: ReceivedRequest) -> Reply:
        return Reply(status=500) if received.path == "/1" else gate(received)

    taken: list[int] = []
    with (
        Api(response, open_to_all=True) as api,
        Runner(_context(api, tmp_path), jobs=2, stops_at=lambda result: result.code) as runner,
    ):
        run = runner.run(_tasks(api, 30, taken))
        first = next(found for found in run if found)
        gate.open()
        rest = [result for found in run for result in found]

    assert (_numbers(first), _numbers(rest), taken[:2]) == ([1], [0], [0, 1])
    assert len(api.requests) == 2


def test_no_task_is_lost_that_is_awaited_when_the_run_stops(tmp_path: Path) -> None:
    is_awaited, go_on = threading.Event(), threading.Event()
    others = threading.enumerate()

    def tasks(api: Api) -> Iterator[Task]:
        for task in _tasks(api, 4):
            if task.number == 1:
                is_awaited.set()
                go_on.wait()
            yield task

    with Api(open_to_all=True) as api, Runner(_context(api, tmp_path), jobs=1) as runner:
        for found in runner.run(tasks(api)):
            if found:
                is_awaited.wait()
                runner.stop()
        go_on.set()
        for thread in threading.enumerate():
            if thread.name.startswith("xapi-") and thread not in others:
                thread.join()
        unsent = [task.number for task in runner.unsent()]

    assert (_numbers(found), unsent, len(api.requests)) == ([], [1, 2, 3], 1)


def test_a_task_with_a_failure_or_a_known_result_is_not_sent(tmp_path: Path) -> None:
    tasks = [Task(1, failure=InvalidLine("no")), Task(2, code=4)]
    with Api(open_to_all=True) as api, Runner(_context(api, tmp_path), jobs=2, ordered=True) as runner:
        results = [result for found in runner.run(iter(tasks)) for result in found]

    assert [(result.task.number, result.code) for result in results] == [(1, 2), (2, 4)]
    assert not api.requests


def test_an_exception_of_the_tasks_is_raised_when_those_in_flight_have_finished(tmp_path: Path, gate: Gate) -> None:
    is_raised = threading.Event()

    def tasks(api: Api) -> Iterator[Task]:
        yield from _tasks(api, 2)
        gate.wait_for(2)
        is_raised.set()
        raise InvalidLine("broken")

    def run(api: Api) -> Iterator[list[Result]]:
        for found in runner.run(tasks(api)):
            yield found
            if is_raised.is_set():
                gate.open()

    results: list[Result] = []
    with (
        Api(gate, open_to_all=True) as api,
        Runner(_context(api, tmp_path), jobs=3) as runner,
        pytest.raises(InvalidLine, match="broken"),
    ):
        _consume(run(api), results)
    assert sorted(_numbers(results)) == [0, 1]


def test_a_failure_that_is_not_about_a_request_ends_the_run(tmp_path: Path) -> None:
    def begin() -> None:
        raise StoreError("the store is gone")

    with Api(open_to_all=True) as api, Runner(_context(api, tmp_path), jobs=1) as runner:
        tasks = [task._replace(begin=begin if task.number == 2 else None) for task in _tasks(api, 9)]
        results: list[Result] = []
        with pytest.raises(StoreError):
            _consume(runner.run(iter(tasks)), results)

    assert (_numbers(results), [task.number for task in runner.unfinished()]) == ([0, 1], [2])


def test_a_task_begins_once_before_it_is_sent(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with Api(open_to_all=True) as api, Runner(_context(api, tmp_path), jobs=2) as runner:

        def begun(task: Task) -> Task:
            def begin() -> None:
                seen.append((task.number, sum(each.path == f"/{task.number}" for each in api.requests)))

            return task._replace(begin=begin)

        _consume(runner.run(map(begun, _tasks(api, 10))), [])
    assert sorted(seen) == [(number, 0) for number in range(10)]


@pytest.mark.parametrize("wait", ["retry", "rate", "pause"])
def test_stopping_ends_all_waits_and_names_what_is_unfinished(tmp_path: Path, wait: str) -> None:
    def response(received: ReceivedRequest) -> Reply:
        retry_after = "200" if wait == "pause" else "100"
        return Reply() if wait == "rate" else Reply(status=503, headers=(("Retry-After", retry_after),))

    variables = {"XAPI_RETRY": "3"} if wait == "retry" else {}
    with Api(response, open_to_all=True) as api:
        context = _context(api, tmp_path, **variables)
        with Runner(context, jobs=4, rate=0.001 if wait == "rate" else None) as runner:
            results: list[Result] = []
            for found in runner.run(_tasks(api, 4)):
                results += found
                if api.requests and (wait == "retry" or results) and len(runner.unfinished()) + len(results) == 4:
                    runner.stop()
    unfinished = [task.number for task in runner.unfinished()]
    assert sorted(_numbers(results) + unfinished) == list(range(4))
    assert unfinished or wait == "pause"  # all may have been sent before the first response


def test_leaving_a_run_waits_for_no_response(tmp_path: Path, gate: Gate) -> None:
    gate.open("/0", "/1", "/2")
    with Api(gate, open_to_all=True) as api:
        with Runner(_context(api, tmp_path), jobs=64) as runner:
            results: list[Result] = []
            for found in runner.run(_tasks(api, 64)):
                results += found
                if len(gate.arrived) == 64 and len(results) == 3:
                    break
        assert sorted(_numbers(results)) == [0, 1, 2]
        assert len(runner.unfinished()) == 61
        gate.open()


def test_what_is_in_flight_at_max_time_is_a_timeout(tmp_path: Path, gate: Gate) -> None:
    with Api(gate, open_to_all=True) as api:
        context = _context(api, tmp_path, XAPI_MAX_TIME="1.5")
        with Runner(context, jobs=3) as runner:
            results: list[Result] = []
            with pytest.raises(TimeoutExpired, match=r"not everything was sent within 1.5 s; raise --max-time"):
                _consume(runner.run(_tasks(api, 9)), results)
        gate.open()
    assert len(results) <= 3  # less only if the machine is very slow
    assert {result.kind for result in results} <= {"timeout"}


@pytest.mark.parametrize(
    ("size", "coding", "kind"),
    [
        (0, "", "200"),
        (300_000, "", "200"),
        (10 * 2**20, "", "200"),
        (10 * 2**20 + 1, "", "size"),
        (10 * 2**20 + 1, "gzip", "size"),
        (100, "gzip", "200"),
    ],
)
def test_a_body_has_at_most_10_mib_also_when_it_is_decoded(tmp_path: Path, size: int, coding: str, kind: str) -> None:
    import gzip

    body = gzip.compress(b"x" * size) if coding else b"x" * size
    headers = (("Content-Type", "text/plain"), *((("Content-Encoding", coding),) if coding else ()))
    with (
        Api(lambda received: Reply(body, headers=headers), open_to_all=True) as api,
        Runner(_context(api, tmp_path), jobs=1) as runner,
    ):
        [result] = [result for found in runner.run(_tasks(api, 1)) for result in found]

    assert result.kind == kind
    assert kind == "size" or result.read() == b"x" * size

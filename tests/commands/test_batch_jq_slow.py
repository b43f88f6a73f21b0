"""`xapi batch --jq` with filters that are slow on some lines: they delay no other line."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.batch.server import MEASURED, Api, ReceivedRequest, Reply, batch, out_lines, paths
from tests.commands.jq_processes import ENDLESS
from tests.support.program import PROGRAM, Xapi

COUNT = 40  # slow lines, more than there are --jobs or processes
FILTER = f"if .n < {COUNT} then ({ENDLESS}) else .n end"
SLOW = "last(range(60000))"  # 20 ms or more


def numbered(received: ReceivedRequest) -> Reply:
    """Respond with the number at the end of the path."""
    return Reply(b'{"n": %d}' % int(received.path.rpartition("/")[2]))


@contextmanager
def endless_filters(xapi: Xapi, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a batch with COUNT lines whose filters do not end."""
    with Api(numbered) as api:
        args = ("batch", "--timeout", "100", "--jq", FILTER, *options)
        process = xapi.start(*args, stdin=subprocess.PIPE, env=api.settings)
        assert process.stdin is not None
        try:
            process.stdin.write(paths(COUNT).encode())
            yield process
        finally:
            process.kill()
            process.communicate()


def _read_one(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdout is not None
    result: int = json.loads(process.stdout.readline())["json"]
    return result


def _send(process: "subprocess.Popen[bytes]", number: int, count: int = 1) -> None:
    assert process.stdin is not None
    process.stdin.write(paths(count, number).encode())
    process.stdin.flush()


@pytest.mark.slow  # burns CPU time, as test_an_endless_filter_delays_no_other_line does with one filter
def test_any_number_of_endless_filters_delays_no_other_line(xapi: Xapi) -> None:
    """On an idle machine, a line is complete within 0.3 s, however many filters are running or waiting."""
    waits = []
    with endless_filters(xapi) as process:
        _send(process, COUNT, 60)  # all in one write
        numbers = {_read_one(process) for _ in range(60)}
        for number in range(100, 120):  # one at a time
            start = time.monotonic()
            _send(process, number)
            assert _read_one(process) == number
            waits.append(time.monotonic() - start)

    assert numbers == set(range(COUNT, 100))
    assert min(waits) < 0.3


def test_long_documents_of_endless_filters_delay_no_other_line(xapi: Xapi) -> None:
    """Three of them take all of the memory for bodies; other lines use the reserve while the filters run."""

    def long_ones(received: ReceivedRequest) -> Reply:
        reply = numbered(received)
        padding = b"x" * 9_000_000 if int(received.path.rpartition("/")[2]) < 3 else b""
        return Reply(reply.body[:-1] + b', "padding": "' + padding + b'"}')

    with Api(long_ones) as api:
        args = ("batch", "--timeout", "100", "--jq", FILTER)
        process = xapi.start(*args, stdin=subprocess.PIPE, env=api.settings)
        try:
            _send(process, 0, 3)
            for number in range(COUNT, COUNT + 100):
                _send(process, number)
                assert _read_one(process) == number
        finally:
            process.kill()
            process.communicate()


def test_with_one_job_each_line_waits_for_the_one_before(xapi: Xapi) -> None:
    with Api(numbered) as api:
        text = f"if .n % 2 == 0 then {SLOW} else .n end"
        code, lines, _ = batch(xapi, api, "-j", "1", "--jq", text, input=paths(6))

    assert (code, [line["id"] for line in lines]) == (0, [0, 1, 2, 3, 4, 5])
    assert api.most_under_way == 1


@pytest.mark.parametrize("options", [(), pytest.param(("--ordered",), marks=pytest.mark.slow)])
@pytest.mark.slow
def test_all_slow_lines_end_with_their_results(xapi: Xapi, options: tuple[str, ...]) -> None:
    with Api(numbered) as api:
        args = (*options, "--timeout", "100", "--jq", f'[.n, ({SLOW}), "x" * 1000]')
        code, lines, err = batch(xapi, api, *args, input=paths(COUNT), timeout=100)

    assert code == 0, err
    results = {line["id"]: line["json"] for line in lines}
    assert results == {number: [number, 59_999, "x" * 1000] for number in range(COUNT)}


@pytest.mark.slow
def test_large_results_wait_in_bounded_memory_for_a_slow_first_line(xapi: Xapi) -> None:
    peak, out = xapi.home / "peak", xapi.home / "out"
    (xapi.home / "in").write_text(paths(60))
    text = 'if .n == 0 then last(range(2000000)) else "x" * 2000000 end'
    command = (sys.executable, "-c", MEASURED, str(peak), str(PROGRAM), "batch", str(xapi.home / "in"))
    with Api(numbered) as api, out.open("wb") as file:
        args = ("--ordered", "-j", "32", "--timeout", "100", "--jq", text)
        process = xapi.start(*args, stdout=file, env=api.settings, argv=command)
        _, err = process.communicate(timeout=100)

    assert process.returncode == 0, err
    assert [len(str(line["json"])) for line in out_lines(out.read_text())] == [7, *[2_000_000] * 59]
    assert int(peak.read_text()) / 1024 < 150

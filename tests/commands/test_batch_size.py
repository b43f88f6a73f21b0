"""`xapi batch` in bounded memory, however many lines and however large."""

import sys
import time
from pathlib import Path

import pytest

from tests.batch.server import MEASURED, Api, Asked, Reply, answer_all, measured
from tests.program import PROGRAM, Xapi
from tests.servers import Server, serve

TEXT = (("Content-Type", "text/plain; charset=iso-8859-1"),)


def _memory(xapi: Xapi, tmp_path: Path, count: int, timeout: float) -> None:
    words = ("-j", "32", "--ordered", "--journal", str(tmp_path / "j"))
    with Server([answer_all]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        first, again = (measured(xapi, count, *words, env=env, timeout=timeout) for _ in range(2))

    assert (first[0], first[2], again[0], again[2]) == (0, count, 0, count)
    assert max(first[1], again[1]) < 120


@pytest.mark.slow
def test_50_000_lines_with_order_and_journal_need_less_than_120_mib(xapi: Xapi, tmp_path: Path) -> None:
    _memory(xapi, tmp_path, 50_000, 60)


@pytest.mark.soak
def test_a_million_lines_with_order_and_journal_need_less_than_120_mib(xapi: Xapi, tmp_path: Path) -> None:
    _memory(xapi, tmp_path, 1_000_000, 1800)


@pytest.mark.slow
def test_large_bodies_in_flight_share_one_budget(xapi: Xapi) -> None:
    with Api(lambda asked: Reply(b"x" * (9 * 2**20), headers=TEXT)) as api:
        code, peak, lines = measured(xapi, 40, "-j", "32", env=api.settings)

    assert (code, lines) == (0, 40)
    assert peak < 160


@pytest.mark.slow
def test_ordered_output_waits_in_bounded_memory_for_a_slow_first_line(xapi: Xapi) -> None:
    sent = []

    def answer(asked: Asked) -> Reply:
        if asked.path == "/n/0":
            time.sleep(3)
            sent.append(len(api.asked))
        return Reply(b"x" * 1_000_000, headers=TEXT)

    with Api(answer) as api:
        code, peak, lines = measured(xapi, 300, "--ordered", "-j", "8", env=api.settings)

    assert (code, lines) == (0, 300)
    assert sent[0] < 60
    assert peak < 120


@pytest.mark.slow
def test_large_bodies_on_their_way_up_share_the_budget_too(xapi: Xapi, tmp_path: Path) -> None:
    with (tmp_path / "in").open("w") as file:
        for number in range(30):
            file.write(f'{{"path":"/n/{number}","data":"{"x" * 6_000_000}"}}\n')
    with Server([serve()]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        command = (sys.executable, "-c", MEASURED, str(tmp_path / "peak"), str(PROGRAM), "batch")
        process = xapi.start("-j", "32", str(tmp_path / "in"), env=env, argv=command)
        out, err = process.communicate(timeout=60)

    assert (process.returncode, len(out.splitlines())) == (0, 30), err
    assert int((tmp_path / "peak").read_text()) / 1024 < 200

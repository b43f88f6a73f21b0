"""`request -o FILE --continue`: other processes, signals and time limits."""

import os
import random
import re
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.commands.api import bearing, response
from tests.commands.downloads import BODY, HALF, Files, assert_complete, download, part_of, record_of, stopped
from tests.support.program import Outcome, Xapi
from tests.support.servers import Server, Step, forever, hang, request, send


def test_two_processes_do_not_write_the_same_part(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        with stopped(xapi, files, out) as process:
            outcome = download(xapi, files, out)
        assert process.wait(30) == 0

    assert outcome == Outcome(
        2, "", f"xapi: error: another process is downloading {out}; wait for it, or choose another file\n"
    )
    assert_complete(out)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupted_download_is_kept_and_silent(xapi: Xapi, out: Path, number: int, code: int) -> None:
    with Files() as files:
        with stopped(xapi, files, out) as process:
            process.send_signal(number)
            _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (code, b"")
        assert download(xapi, files, out) == Outcome(0)

    kept = int((files.ranges[1] or "").removeprefix("bytes=").removesuffix("-"))
    assert 0 < kept <= HALF  # what was written when the signal arrived may not be counted yet
    assert_complete(out)


def test_an_interrupted_download_states_on_a_terminal_what_is_kept(xapi: Xapi, out: Path) -> None:
    head = response("200 OK", BODY[:1024], "Content-Length: 2048", 'ETag: "v1"')
    with (
        Server([request(), send(head), hang()]) as server,
        xapi.on_terminal("request", "/", "-o", str(out), "--continue", env=bearing(server)) as terminal,
    ):
        terminal.expect("received 1.0 of ")
        terminal.interrupt()
        assert terminal.wait() == 130

    kept = rf"interrupted: 1\.0 of 2\.0 KiB kept in {out}\.part; run the same command again to resume"
    assert re.search(kept, re.sub(r"\s+", " ", terminal.text))


def test_an_interrupted_download_states_on_a_terminal_what_is_dropped(xapi: Xapi, out: Path) -> None:
    sent = threading.Event()
    steps: list[Step] = [request(), send(response("200 OK", BODY[:1024], "Content-Length: 9999")), hang()]
    with (
        Server(steps) as server,
        xapi.on_terminal("request", "/", "-o", str(out), env=bearing(server)) as terminal,
    ):
        terminal.expect("received 1.0 of ")
        terminal.interrupt()
        assert terminal.wait() == 130
        sent.set()

    assert re.search(
        r"\^C.*\r\x1b\[Kxapi: interrupted: 1\.0 KiB discarded; use --continue to keep partial downloads", terminal.text
    )
    assert os.listdir(out.parent) == []


def test_a_time_limit_states_what_is_kept(xapi: Xapi, out: Path) -> None:
    steps: list[Step] = [request(), send(response("200 OK", b"x" * 1024, "Content-Length: 9999", 'ETag: "a"')), hang()]
    with Server(steps) as server:
        outcome = download(xapi, server, out, "--timeout", "2.2")

    assert outcome.code == 12
    again = f", and run the same command again to resume (1.0 of 9.8 KiB kept in {out}.part)\n"
    assert outcome.err.endswith(again)


def test_an_endless_body_is_kept_until_it_is_interrupted(xapi: Xapi, out: Path) -> None:
    endless: list[Step] = [request(), send(b'HTTP/1.1 200 OK\r\nETag: "v1"\r\n\r\n'), forever(b"x" * 65536)]
    with Server(endless) as server:
        process = xapi.start("request", "/data", "-o", str(out), "--continue", env=bearing(server))
        while not part_of(out).exists() or part_of(out).stat().st_size < 10_000_000:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)

    assert process.returncode == 130
    assert err == b""
    assert part_of(out).stat().st_size >= 10_000_000


@pytest.mark.slow
def test_a_download_that_is_killed_at_random_moments_is_resumed(xapi: Xapi, out: Path) -> None:
    rng, kills = random.Random(7), 0
    with Files() as files:
        files.body = rng.randbytes(30_000_000)
        files.block = 100_000
        files.before_block = lambda sent: threading.Event().wait(0.01)
        while not out.exists():
            process = xapi.start("request", "/data", "-o", str(out), "--continue", env=files.settings)
            with suppress(Exception):
                process.wait(rng.uniform(0.3, 2.2))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                kills += 1
            process.wait(30)
            assert kills < 60
        assert download(xapi, files, out).code == 0  # removes what a kill after the move has left

    assert kills > 0
    assert any(files.ranges)
    assert_complete(out, files.body)


def test_a_part_that_another_process_has_replaced_is_left_alone(xapi: Xapi, out: Path) -> None:
    with Files() as files:
        with stopped(xapi, files, out) as process:
            for path in (part_of(out), record_of(out)):
                path.unlink()
                path.write_text("precious")
        _, err = process.communicate(timeout=30)

    assert process.returncode == 14
    assert err.decode() == (
        f"xapi: error: {out} cannot be written: out.part was replaced by another process; choose another file\n"
    )
    assert [path.read_text() for path in (part_of(out), record_of(out))] == ["precious"] * 2
    assert not out.exists()

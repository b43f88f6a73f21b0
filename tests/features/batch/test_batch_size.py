"""`xapi batch` in bounded memory, for any number and size of lines."""

import gzip
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.features.batch.server import MEASURED, Api, ReceivedRequest, Reply, jsonl, measured, paths, respond_to_all
from tests.support.program import PROGRAM, Xapi
from tests.support.servers import Server, Step, close, free_port, request, reset, send, serve, wait_for

TEXT = (("Content-Type", "text/plain; charset=iso-8859-1"),)


def _memory(xapi: Xapi, tmp_path: Path, count: int, timeout: float) -> None:
    args = ("-j", "32", "--ordered", "--journal", str(tmp_path / "j"))
    with Server([respond_to_all]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        first, again = (measured(xapi, count, *args, env=env, timeout=timeout) for _ in range(2))

    assert (first[0], first[2], again[0], again[2]) == (0, count, 0, count)
    assert max(first[1], again[1]) < 120


@pytest.mark.slow
def test_20_000_lines_with_order_and_journal_need_less_than_120_mib(xapi: Xapi, tmp_path: Path) -> None:
    _memory(xapi, tmp_path, 20_000, 60)


@pytest.mark.slow
def test_large_bodies_in_flight_share_one_budget(xapi: Xapi) -> None:
    with Api(lambda received: Reply(b"x" * (9 * 2**20), headers=TEXT)) as api:
        code, peak, lines = measured(xapi, 40, "-j", "32", env=api.settings)

    assert (code, lines) == (0, 40)
    assert peak < 160


@pytest.mark.slow
def test_ordered_output_waits_in_bounded_memory_for_a_slow_first_line(xapi: Xapi) -> None:
    sent = []

    def response(received: ReceivedRequest) -> Reply:
        if received.path == "/n/0":
            time.sleep(3)
            sent.append(len(api.requests))
        return Reply(b"x" * 1_000_000, headers=TEXT)

    with Api(response) as api:
        code, peak, lines = measured(xapi, 300, "--ordered", "-j", "8", env=api.settings)

    assert (code, lines) == (0, 300)
    assert sent[0] < 60
    assert peak < 120


@pytest.mark.slow
def test_large_request_bodies_share_the_budget(xapi: Xapi, tmp_path: Path) -> None:
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


MIB = 2**20
BODIES = {  # the type, the beginning, what is repeated up to 10 MiB, and the end
    "control characters": ("text/plain", b"", b"\x01", b""),
    "JSON": ("application/json", b"[", b"1,", b"1]"),
    "wide characters": ("text/plain", "😀".encode(), b"a", b""),
    "binary": ("application/octet-stream", b"", b"\xff", b""),
}


def _body(kind: str) -> bytes:
    _, start, repeated, end = BODIES[kind]
    return start + repeated * ((10 * MIB - len(start) - len(end)) // len(repeated)) + end


def _coded(kind: str) -> Reply:
    body = gzip.compress(_body(kind), 6)
    return Reply(body, headers=(("Content-Type", BODIES[kind][0]), ("Content-Encoding", "gzip")))


def _peak(xapi: Xapi, count: int, *args: str, env: Any) -> tuple[bytes, float]:
    """Send *count* lines and discard the output; return stderr and the peak in MiB."""
    peak = xapi.home / "peak"
    (xapi.home / "in").write_text(paths(count))
    command = (sys.executable, "-c", MEASURED, str(peak), str(PROGRAM), "batch", str(xapi.home / "in"))
    process = xapi.start(*args, stdout=subprocess.DEVNULL, env=env, argv=command)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    return err, int(peak.read_text()) / 1024


@pytest.mark.parametrize(
    "kind, args",
    [  # the cases that are not slow have each option; JSON takes longest
        pytest.param(kind, args, marks=pytest.mark.slow if (row + column) % 3 or kind in {"JSON", "binary"} else ())
        for row, kind in enumerate(BODIES)
        for column, args in enumerate(
            [("-j", "16"), ("-j", "64", "--ordered", "--journal", "j"), ("-j", "64", "--ordered")]
        )
    ],
)
def test_small_compressed_responses_with_large_bodies_need_less_than_100_mib(
    xapi: Xapi, kind: str, args: tuple[str, ...]
) -> None:
    reply = _coded(kind)
    with Api(lambda received: reply) as api:
        err, peak = _peak(xapi, 2 if kind == "JSON" else 5, *args, env=api.settings)

    assert b" lines in " in err
    assert peak < 100


_START = b"HTTP/1.1 200 OK\r\n"
_BODY = b"x" * (9 * MIB)
FAILING = {
    "too large": [send(_START + b"\r\n" + b"x" * (10 * MIB + 2)), close()],
    "truncated": [send(_START + b"Content-Length: 9999999\r\n\r\n" + _BODY), close()],
    "truncated chunks": [send(_START + b"Transfer-Encoding: chunked\r\n\r\n900000\r\n" + _BODY), close()],
    "invalid trailer": [
        send(_START + b"Transfer-Encoding: chunked\r\n\r\n900000\r\n" + _BODY + b"\r\n0\r\nX y: 1\r\n\r\n"),
        close(),
    ],
    "reset": [send(_START + b"Content-Length: 9999999\r\n\r\n" + _BODY), reset()],
}


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(FAILING[name], id=name, marks=pytest.mark.slow if name != "truncated chunks" else ())
        for name in FAILING
    ],
)
def test_the_bodies_of_lines_that_failed_are_freed(xapi: Xapi, steps: list[Step]) -> None:
    with Server(*[[request(), *steps]] * 25) as server:
        code, peak, lines = measured(xapi, 25, "-j", "1", env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"})

    assert (code, lines) == (11, 25)
    assert peak < 120


@pytest.mark.parametrize(
    "location", ["/elsewhere\r\nLocation: /twice", pytest.param("http://[::1/", marks=pytest.mark.slow)]
)
def test_the_bodies_of_redirects_that_are_not_followed_are_freed(xapi: Xapi, location: str) -> None:
    head = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: {len(_BODY)}\r\n\r\n"
    with Server([serve(head.encode() + _BODY)]) as server:
        _, peak, lines = measured(xapi, 25, "-j", "1", env={"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"})

    assert lines == 25
    assert peak < 120


def test_the_bodies_of_lines_that_were_sent_again_are_freed(xapi: Xapi) -> None:
    whole = b"%sContent-Length: %d\r\n\r\n%s" % (_START, len(_BODY), _BODY)
    connections = [[request(), close()], *[[request(), send(whole), request(), close()]] * 25]
    with Server(*connections) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        code, peak, lines = measured(xapi, 25, "-j", "1", "--retry", "1", env=env)

    assert (code, lines) == (0, 25)
    assert peak < 120


@pytest.mark.parametrize("is_refused", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_requests_of_lines_that_failed_are_freed(xapi: Xapi, tmp_path: Path, is_refused: bool) -> None:
    line = f'{{"path":"/n","data":"{"x" * 4 * MIB}"}}\n'
    (tmp_path / "in").write_text(line * 30)
    command = (sys.executable, "-c", MEASURED, str(tmp_path / "peak"), str(PROGRAM), "batch")
    with Server(*[[request(), reset()]] * 30) as server:
        url = f"http://127.0.0.1:{free_port()}" if is_refused else server.url
        env = {"XAPI_BASE_URL": url, "XAPI_TOKEN": "t"}
        process = xapi.start("-j", "2", str(tmp_path / "in"), env=env, argv=command)
        out, err = process.communicate(timeout=60)

    assert (process.returncode, len(out.splitlines())) == (11, 30), err
    assert int((tmp_path / "peak").read_text()) / 1024 < 120


@pytest.mark.slow
def test_the_budget_holds_while_the_first_line_in_order_waits_for_its_retry(xapi: Xapi) -> None:
    body = Reply(b"x" * (9 * MIB), headers=TEXT)
    tries: list[ReceivedRequest] = []

    def response(received: ReceivedRequest) -> Reply:
        if received.path != "/n/0":
            return body
        tries.append(received)
        return Reply() if len(tries) > 1 else Reply(status=503, headers=(("Retry-After", "1"),))

    with Api(response) as api:
        err, peak = _peak(xapi, 40, "-j", "32", "--ordered", "--retry", "1", env=api.settings)

    assert b"xapi: 40 lines in" in err
    assert peak < 115


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.slow
def test_no_line_waits_for_the_large_body_of_another(xapi: Xapi, tmp_path: Path, kind: str) -> None:
    """On an idle machine, a short line is complete within 0.3 s, regardless of a long one."""
    reply = _coded(kind)
    waits: list[float] = []
    with Api(lambda received: reply if received.path == "/long" else Reply()) as api:
        process = xapi.start(
            "batch",
            "--journal",
            str(tmp_path / "j"),
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=api.settings,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"path": "/short"}\n')
        process.stdin.flush()
        process.stdout.readline()  # it has started
        process.stdin.write(b'{"path": "/long"}\n')
        is_over = False
        while not is_over:
            start = time.monotonic()
            process.stdin.write(b'{"path": "/short"}\n')
            process.stdin.flush()
            is_short = False
            while not is_short:
                first = process.stdout.read(1)  # ends a wait: reading the rest of a long line takes the test's time
                waits.append(time.monotonic() - start)
                is_short = len(first + process.stdout.readline()) < MIB
                is_over = is_over or not is_short
                start = time.monotonic()
        process.stdin.close()

    assert max(waits) < 1.5


@pytest.mark.parametrize("size", [10, 2_000_000])
def test_with_one_job_a_response_is_processed_before_the_next_line_is_sent(xapi: Xapi, size: int) -> None:
    missing = Reply(f"[{'1,' * size}1]".encode(), status=404, headers=(("Content-Type", "application/json"),))
    (xapi.home / "in").write_text(paths(20))
    with Api(lambda received: missing) as api:
        outcome = xapi("batch", "-j", "1", "--fail-fast", str(xapi.home / "in"), env=api.settings)
        assert len(api.requests) == 1

    assert (outcome.code, outcome.out.count("\n")) == (4, 1)


@pytest.mark.slow
def test_short_responses_do_not_wait_until_there_is_room_for_long_ones(xapi: Xapi, tmp_path: Path) -> None:
    members = ",".join(f'"k{number}":{{"a":[1.5e3,null]}}' for number in range(300_000))  # takes a second to validate
    reply = Reply(f"{{{members}}}".encode(), headers=(("Content-Type", "application/json"),))
    targets = ["/long"] * 4 + ["/late"] * 5 + ["/short"] * 100
    (tmp_path / "in").write_text(jsonl(*({"path": path} for path in targets)))

    def response(received: ReceivedRequest) -> Reply:
        if received.path == "/late":
            time.sleep(0.6)
        return reply if received.path == "/long" else Reply()

    with Api(response) as api, (tmp_path / "out").open("wb") as out:
        assert xapi.start("batch", str(tmp_path / "in"), stdout=out, env=api.settings).wait(100) == 0

    with (tmp_path / "out").open("rb") as lines:
        is_long = [len(line) > MIB for line in lines]
    assert is_long == [False] * 105 + [True] * 4


@pytest.mark.slow
def test_headers_count_towards_the_budget(xapi: Xapi) -> None:
    headers = b"".join(b"x%d:y\r\n" % number for number in range(11_000))
    begun = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n" + headers + b"\r\n12345"
    is_time = threading.Event()
    with Server([request(), send(begun), wait_for(is_time), send(b"67890"), close()]) as server:
        timer = threading.Timer(4, is_time.set)
        timer.start()
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        code, peak, lines = measured(xapi, 100, "-j", "100", env=env)
        timer.join()

    assert (code, lines) == (0, 100)
    assert peak < 150  # without, it is 390

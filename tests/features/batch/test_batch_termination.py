"""However `xapi batch` ends, the responses received so far are printed."""

import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.commands.api import bearing
from tests.features.batch.server import Api, ReceivedRequest, Reply, batch, out_lines, paths, slowly
from tests.support.program import PROGRAM, Xapi
from tests.support.servers import Server, drip, request, send


def test_a_closed_stdout_ends_the_batch_without_a_message(xapi: Xapi) -> None:
    with Api() as api:
        process = xapi.start("batch", stdin=subprocess.PIPE, env=api.settings)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(paths(2000).encode())
        process.stdin.close()
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 141
        assert "error" not in process.stderr.read().decode()
        assert len(api.requests) < 2000


def test_max_time_limits_the_batch(xapi: Xapi) -> None:
    with Api(slowly(0.2)) as api:
        code, lines, err = batch(xapi, api, "-j", "1", "--max-time", "4", input=paths(100))

    assert code == 12
    assert 0 < len(lines) <= 21
    assert "--max-time" in err


@pytest.mark.parametrize(
    "number, code, note",
    [
        (signal.SIGINT, 130, "interrupted: finishing 4 requests in flight; press Ctrl-C again to cancel them"),
        (signal.SIGTERM, 143, "terminated: finishing 4 requests in flight for at most 8 s"),
        (signal.SIGHUP, 129, "terminated: finishing 4 requests in flight for at most 8 s"),
    ],
)
def test_after_a_signal_the_requests_in_flight_finish_and_a_hint_explains_how_to_resume(
    xapi: Xapi, tmp_path: Path, number: signal.Signals, code: int, note: str
) -> None:
    (tmp_path / "in").write_text(paths(100))
    is_sent = threading.Event()

    def response(received: ReceivedRequest) -> Reply:
        if received.path not in {"/n/0", "/n/1"}:
            is_sent.wait(20)
        return Reply()

    with Api(response) as api:
        args = ("batch", "-j", "4", "--journal", str(tmp_path / "j"), str(tmp_path / "in"))
        process = xapi.start(*args, env=api.settings)
        assert process.stderr is not None
        while len(api.requests) < 6:
            time.sleep(0.01)
        process.send_signal(number)
        err = b""
        while f"xapi: {note}\n".encode() not in err:
            assert process.poll() is None
            err += process.stderr.readline()
        is_sent.set()
        out, more = process.communicate(timeout=20)
        sent = len(api.requests)
        rest = xapi(*args, env=api.settings)

        assert process.returncode == code
        assert len(out_lines(out.decode())) == sent == 6
        assert b"xapi: stopped early: 6 lines in " in more
        assert b"; the remaining lines were not sent; run the same command again to resume\n" in more
        assert (rest.code, len(out_lines(rest.out)), len(api.requests)) == (0, 100, 100)


@pytest.mark.parametrize(
    "count, shard, stops_early, term, begin",
    [
        (4, "1/1", False, "dumb", "^C\r\n"),
        (5, "1/1", True, "xterm", "\r\x1b[K"),
        (9, "2/2", False, "dumb", "^C\r\n"),  # the last line is in the other shard
        (10, "2/2", True, "dumb", "^C\r\n"),
    ],
)
def test_the_summary_after_ctrl_c_says_whether_lines_were_not_sent(
    xapi: Xapi, tmp_path: Path, count: int, shard: str, stops_early: bool, term: str, begin: str
) -> None:
    (tmp_path / "in").write_text(paths(count))
    is_sent = threading.Event()

    def response(received: ReceivedRequest) -> Reply:
        is_sent.wait(20)
        return Reply()

    args = ("batch", "-j", "4", "--shard", shard, str(tmp_path / "in"))
    with Api(response) as api, xapi.on_terminal(*args, env={**api.settings, "TERM": term}, columns=200) as terminal:
        while len(api.requests) < 4:
            time.sleep(0.01)
        terminal.interrupt()
        terminal.expect(f"{begin}xapi: interrupted: finishing 4 requests in flight")
        is_sent.set()
        assert terminal.wait() == 130

    summary = terminal.text.splitlines()[-1]
    assert ("xapi: stopped early: 4 lines in " in summary) is stops_early
    assert ("; the remaining lines were not sent; the lines on stdout are complete" in summary) is stops_early
    assert " 4 lines in " in summary


@pytest.mark.slow
def test_a_sigterm_does_not_wait_for_a_response_that_never_ends(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(paths(1))
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
    with Server([request(), send(head), drip(b"x" * 1000, every=0.2)]) as server:
        process = xapi.start("batch", "--timeout", "60", str(tmp_path / "in"), env=bearing(server))
        while not any(b"/n/0" in each for each in server.received):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)

        assert process.wait(40) == 143


def test_a_second_signal_ends_the_batch_immediately(xapi: Xapi) -> None:
    with Api(slowly(30)) as api:
        process = xapi.start("batch", stdin=subprocess.PIPE, env=api.settings)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(paths(10).encode())
        process.stdin.flush()
        while len(api.requests) < 10:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        stderr = b""
        while b"press Ctrl-C again" not in stderr:
            stderr += process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


@pytest.mark.slow
def test_requests_in_flight_when_max_time_expires_are_timeouts(xapi: Xapi) -> None:
    with Api(lambda received: slowly(20)(received) if received.path == "/n/2" else Reply()) as api:
        env = api.settings
        outcome = xapi("batch", "-j", "1", "--max-time", "5", input=paths(9), env=env)
    lines = out_lines(outcome.out)

    assert outcome.code == 12
    assert [each["line"] for each in lines] == [1, 2, 3]
    assert lines[2]["error"]["kind"] == "timeout"
    assert "--max-time" in lines[2]["error"]["message"]
    assert outcome.err.rstrip().rpartition("\n")[2].startswith("xapi: error: the batch did not finish within 5 s")


def test_a_signal_cancels_pending_retries(xapi: Xapi, tmp_path: Path) -> None:
    with Api(lambda received: Reply(status=503, headers=(("Retry-After", "200"),))) as api:
        log = tmp_path / "requests.log"
        process = xapi.start("batch", "--retry", "5", "--log", str(log), stdin=subprocess.PIPE, env=api.settings)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(paths(3).encode())
        process.stdin.flush()
        while not log.exists() or log.read_text().count('"status": 503') < 3:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert b"xapi: stopped early: 0 lines in " in (rest := process.stderr.read())
        assert b"; 3 lines have no result; " in rest


@pytest.mark.parametrize(
    "redirection, code, message",
    [
        (">&-", 14, "stdout is closed"),
        (">/dev/full", 14, "No space left"),
        (">>in", 2, "stdout is redirected to in, the input file"),
    ],
)
def test_an_unusable_stdout_ends_the_batch_early(
    xapi: Xapi, tmp_path: Path, redirection: str, code: int, message: str
) -> None:
    (tmp_path / "in").write_text(paths(2000))
    with Api() as api:
        argv = ("bash", "-c", f'exec "$@" {redirection}', "-", str(PROGRAM))
        process = xapi.start("batch", "in", env=api.settings, cwd=tmp_path, argv=argv)
        _, err = process.communicate(timeout=30)

        assert process.returncode == code
        assert len(api.requests) < 2000
    last = err.decode().rstrip().rpartition("\n")[2]
    assert last.startswith("xapi: error: ")
    assert message in last


@pytest.mark.parametrize("args", [["-j", "0"], ["-j", "501"], ["--retry", "-1"], ["--jobs", "x"], ["a", "b"]])
def test_invalid_arguments_are_usage_errors(xapi: Xapi, args: list[str]) -> None:
    outcome = xapi("batch", *args, env={"XAPI_BASE_URL": "http://127.0.0.1:1", "XAPI_TOKEN": "t"})

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)


def test_a_closed_stdin_is_a_usage_error(xapi: Xapi) -> None:
    env = {"XAPI_BASE_URL": "http://127.0.0.1:1", "XAPI_TOKEN": "t"}
    process = xapi.start("batch", env=env, argv=("bash", "-c", 'exec "$@" <&-', "-", str(PROGRAM)))
    _, err = process.communicate(timeout=30)

    assert process.returncode == 2
    assert b"stdin is closed" in err


def test_an_unusable_store_ends_the_batch(xapi: Xapi) -> None:
    with Api() as api:
        env = api.settings | {"XAPI_STORAGE": "file", "XAPI_STATE_DIR": "/proc/nowhere"}
        outcome = xapi("batch", input=paths(50), env=env)

        assert (outcome.code, outcome.out, api.requests) == (13, "", [])
    assert outcome.err.rstrip().startswith("xapi: error: ")


def test_a_line_that_the_rate_has_not_permitted_yet_is_reported_as_not_sent(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(paths(100))
    with Api() as api:
        process = xapi.start("batch", str(tmp_path / "in"), "--rate", "1/m", env=api.settings)
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=20)[1]

    assert process.returncode == 130
    assert b"no result" not in err
    assert b"the remaining lines were not sent" in err

"""`xapi batch`: its lines, its exit code, its files, and how it ends."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.features.batch.server import Api, ReceivedRequest, Reply, batch, jsonl, out_lines, paths
from tests.support.program import PROGRAM, Xapi, measured
from tests.support.servers import Server, close, free_port, hang, request, send, serve
from xapi_cli.features.batch.command import Lines
from xapi_cli.features.batch.lines import KEYS
from xapi_cli.features.batch.results import Tally

BUSY = Reply(b'{"message": "too\\nbusy"}', 503, (("Retry-After", "0"), ("Content-Type", "application/json")))


def numbers(lines: list[dict[str, Any]]) -> list[int]:
    return sorted(line["line"] for line in lines)


def half(received: ReceivedRequest) -> Reply:
    """Respond with 404 to every other line."""
    return Reply(status=404 if received.path[-1] in "13579" else 200)


# lines


def test_a_line_is_sent_and_its_response_is_a_line(xapi: Xapi) -> None:
    line = {"id": "x", "method": "put", "path": "/a", "query": {"q": 1}, "headers": {"X-Run": "1"}, "json": [1.5]}
    with Api(lambda received: Reply(b'{"n":\r\n 1.10}', 201)) as api:
        outcome = xapi("batch", input=json.dumps(line), env=api.settings)
        [received] = api.requests

    assert (received.method, received.path, received.body) == ("PUT", "/a?q=1", b"[1.5]")
    assert (received.headers["x-run"], received.headers["authorization"]) == ("1", "Bearer token-1")
    shown = re.sub(r'"elapsed_ms": \d+', '"elapsed_ms": 0', outcome.out)
    assert shown == (
        '{"id": "x", "line": 1, "status": 201, "headers": {"content-type": "application/json", "content-length": "13"},'
        ' "json": {"n":   1.10}, "elapsed_ms": 0}\n'
    )
    login, summary = outcome.err.splitlines()
    assert login.startswith("xapi: logged in as ")
    assert re.fullmatch(r"xapi: 1 line in \d+\.\d s \([\d,]+/s\)", summary)


def test_an_invalid_line_is_an_error_and_does_not_stop_the_rest(xapi: Xapi) -> None:
    text = '{"path":"/1"}\n\n{"pth": "secret"}\n\xff\n{"id":"last","path":"/2"}'
    with Api() as api:
        code, lines, err = batch(xapi, api, "--ordered", input=text.encode("latin-1"))

    assert (code, numbers(lines), len(api.requests)) == (2, [1, 3, 4, 5], 2)
    assert [line.get("error", {}).get("kind") for line in lines] == [None, "input", "input", None]
    assert "secret" not in err + json.dumps(lines)
    assert err.endswith(": 2 × input; see the lines with an error or a status above 399\n")


def test_a_json_array_or_nothing_at_all_is_one_error_and_nothing_is_sent(xapi: Xapi) -> None:
    array = '[\n{"path": "/1", "method": "DELETE"},\n{"path": "/2", "method": "DELETE"}\n]\n'
    with Api() as api:
        outcomes = [batch(xapi, api, input=text) for text in (array, "")]
        blank = batch(xapi, api, input="\n")

        assert (api.requests, api.logins) == ([], 0)
    assert [outcome[:2] for outcome in (*outcomes, blank)] == [(2, []), (2, []), (0, [])]
    assert "xapi: error: the input is a JSON array, not one object per line; use `jq -c '.[]'`" in outcomes[0][2]
    assert outcomes[1][2].startswith("xapi: error: the input is empty; the command before the pipe has failed")


def test_lines_can_be_in_a_file(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(paths(3))
    with Api() as api:
        assert len(batch(xapi, api, str(tmp_path / "in"))[1]) == 3
        assert len(batch(xapi, api, "-", input=paths(2))[1]) == 2
        missing = batch(xapi, api, str(tmp_path / "missing"))
        directory = batch(xapi, api, str(tmp_path))

    assert (missing[0], directory[0]) == (2, 2)
    assert "missing cannot be read: No such file" in missing[2]
    assert "cannot be read: Is a directory" in directory[2]


@pytest.mark.parametrize("args", [["-j", "0"], ["-j", "501"], ["--retry", "-1"], ["--rate", "0"], ["--shard", "4/3"]])
def test_invalid_arguments_are_usage_errors(xapi: Xapi, args: list[str]) -> None:
    outcome = xapi("batch", *args, input=paths(1), env={"XAPI_BASE_URL": "http://127.0.0.1:1", "XAPI_TOKEN": "t"})

    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)


def test_each_line_is_sent_when_it_arrives_and_its_result_is_printed_immediately(xapi: Xapi) -> None:
    with Api() as api:
        process = xapi.start("batch", "-j", "1", stdin=subprocess.PIPE, env=api.settings)
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            process.stdin.write(paths(1, number).encode())
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == number
        process.stdin.close()
        assert process.wait() == 0


def test_a_non_blocking_stdin_without_data_is_not_the_end_of_the_input(xapi: Xapi) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with Api() as api, open(writer, "wb") as pipe:
        process = xapi.start("batch", stdin=reader, env=api.settings)
        os.close(reader)
        assert process.stdout is not None
        for number in range(2):
            pipe.write(paths(1, number).encode())
            pipe.flush()
            assert json.loads(process.stdout.readline())["id"] == number
        pipe.close()
        assert process.wait() == 0


# the exit code


def test_the_exit_code_is_the_highest_of_all_lines(xapi: Xapi) -> None:
    with Api(lambda received: Reply(status=int(received.path[1:]))) as api:
        for expected, statuses in ((0, [200, 304, 204]), (4, [200, 404]), (5, [404, 503, 200])):
            assert batch(xapi, api, input=jsonl(*({"path": f"/{each}"} for each in statuses)))[0] == expected
        assert batch(xapi, api, input=jsonl({"path": "/404"}, {"pth": 1}))[0] == 4


def test_failures_have_kinds(xapi: Xapi) -> None:
    env: dict[str, str | None] = {"XAPI_TOKEN": "t"}
    with Api(lambda received: None if received.path == "/n/0" else Reply(b"x" * 11_000_000), open_to_all=True) as api:
        lines = batch(xapi, api, "--ordered", input=paths(2), env=env)[1]
    with Server([request(), hang()]) as server:
        silent = xapi("batch", input=paths(1), env=env | {"XAPI_BASE_URL": server.url, "XAPI_TIMEOUT": "1"})
    gone = xapi("batch", input=paths(2), env=env | {"XAPI_BASE_URL": f"http://127.0.0.1:{free_port()}"})

    assert [line["error"]["kind"] for line in lines] == ["network", "size"]
    assert "use `xapi request -o FILE`" in lines[1]["error"]["message"]
    assert (silent.code, out_lines(silent.out)[0]["error"]["kind"]) == (12, "timeout")
    assert (gone.code, "connection refused" in gone.out) == (11, True)
    assert "within 1 s" in silent.out


# requests


def test_requests_share_connections_also_over_tls(xapi: Xapi, tmp_path: Path) -> None:
    import ssl

    ca, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with Server([serve()]) as plain, Server([serve()], tls=context) as secure:
        for server in (plain, secure):
            env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t", "SSL_CERT_FILE": str(tmp_path / "ca.pem")}
            outcome = xapi("batch", "-j", "4", input=paths(100), env=env)
            assert (outcome.code, len(out_lines(outcome.out))) == (0, 100), outcome
            assert len(server.received) <= 4


def test_redirects_are_followed_as_in_request(xapi: Xapi) -> None:
    with Api(open_to_all=True) as elsewhere:
        targets = {"/a": "/end", "/loop": "/loop", "/away": f"{elsewhere.url}/there", "/body": f"{elsewhere.url}/no"}

        def response(received: ReceivedRequest) -> Reply:
            target = targets.get(received.path)
            return Reply(status=307, headers=(("Location", target),)) if target else Reply()

        with Api(response) as api:
            away, body = {"path": "/away", "headers": {"X-Mine": "1"}}, {"path": "/body", "json": 1}
            code, out, err = batch(xapi, api, "--ordered", input=jsonl({"path": "/a"}, {"path": "/loop"}, away, body))

    assert (code, [each["status"] for each in out]) == (0, [200, 307, 200, 307])
    assert [each.path for each in elsewhere.requests] == ["/there"]
    assert not {"authorization", "x-mine"} & set(elsewhere.requests[0].headers)
    assert "2 × 307" in err


def test_transient_failures_are_retried_but_no_post(xapi: Xapi) -> None:
    failing: dict[str, int] = {}

    def response(received: ReceivedRequest) -> Reply | None:
        failing[received.path] = failing.get(received.path, 0) + 1
        return None if failing[received.path] == 1 else BUSY if failing[received.path] == 2 else Reply()

    with Api(response, open_to_all=True) as api:
        env = {"XAPI_TOKEN": "abc"}
        lines = jsonl({"path": "/b"}, {"path": "/c", "method": "POST"})
        tried = batch(xapi, api, "--retry", "2", input=lines, env=env)
        plain = batch(xapi, api, input=jsonl({"path": "/a"}), env=env)

    assert (plain[0], tried[0]) == (11, 11)
    results = {each["line"]: each.get("status") or each["error"]["message"] for each in tried[1]}
    assert results[1] == 200
    assert "may have been processed" in results[2]
    assert failing["/c"] == 1
    assert ", 2 retries): 1 × network" in tried[2]


@pytest.mark.parametrize("status", [429, 503])
def test_a_response_with_retry_after_pauses_all_requests(xapi: Xapi, status: int) -> None:
    times: list[float] = []

    def response(received: ReceivedRequest) -> Reply:
        times.append(time.monotonic())
        return Reply(status=status, headers=(("Retry-After", "1"),)) if len(times) == 1 else Reply()

    with Api(response) as api:
        code, lines, err = batch(xapi, api, "--retry", "1", "-j", "1", input=paths(5))

    assert (code, len(lines)) == (0, 5), err
    assert times[1] - times[0] >= 1
    assert f"xapi: the API responded with {status}; sending no requests for 1.0 s" in err


def test_the_rate_includes_retries_and_the_end_of_the_input_does_not_wait(xapi: Xapi) -> None:
    failed: set[str] = set()

    def response(received: ReceivedRequest) -> Reply:
        is_first = received.path not in failed
        failed.add(received.path)
        return BUSY if is_first else Reply()

    with Api(response) as api:
        started = time.monotonic()
        code, lines, err = batch(xapi, api, "--rate", "10", "--retry", "1", input=paths(5) + "bad\n")

    assert time.monotonic() - started >= 0.9  # ten requests
    assert (code, len(lines)) == (2, 6), err


def test_the_shards_send_each_line_exactly_once(xapi: Xapi, tmp_path: Path) -> None:
    text = "\n" + paths(20) + "not json\n\n" + paths(10, 20)
    (tmp_path / "in").write_text(text)
    sent = []
    with Api() as api:
        for shard in ("1/3", "2/3", "3/3"):
            code, lines, err = batch(xapi, api, "--shard", shard, str(tmp_path / "in"))
            sent.append(numbers(lines))
            assert code == (2 if 22 in sent[-1] else 0), err
        assert sorted(api.counts.values()) == [1] * 30
        assert batch(xapi, api, "--shard", "99/99", str(tmp_path / "in"))[:2] == (0, [])

    assert sent[0] == [4, 7, 10, 13, 16, 19, 22, 25, 28, 31]  # line 1 is blank
    assert sorted(chain(*sent)) == [*range(2, 23), *range(24, 34)]


# --failed


def test_the_lines_that_failed_are_written_verbatim(xapi: Xapi, tmp_path: Path) -> None:
    failed = tmp_path / "failed"
    failed.write_text("old\n")
    failed.chmod(0o640)
    bad = '{"path": "/n/1",  "id": 1.50}\r\n\n{"pth": 1}\n {"id": "ü\\u00fc", "path": "/n/3"}\n'
    with Api(half) as api:
        text = paths(1) + bad + '{"path": "/n/5"}'
        code, _, err = batch(xapi, api, "--ordered", "--failed", str(failed), input=text)
        wanted = '{"path": "/n/1",  "id": 1.50}\r\n{"pth": 1}\n {"id": "ü\\u00fc", "path": "/n/3"}\n{"path": "/n/5"}\n'
        assert (code, failed.read_bytes().decode()) == (4, wanted)
        assert failed.stat().st_mode & 0o777 == 0o640
        assert f"; send {failed} again\n" in err

        assert batch(xapi, api, "--failed", str(failed), input=paths(1))[0] == 0
    assert failed.read_text() == ""


def test_the_file_of_failed_lines_is_complete_although_the_batch_was_interrupted(xapi: Xapi, tmp_path: Path) -> None:
    failed = tmp_path / "failed"
    with Api(half) as api:
        process = xapi.start("batch", "--failed", str(failed), stdin=subprocess.PIPE, env=api.settings)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(paths(2).encode())
        process.stdin.flush()
        for _ in range(2):
            process.stdout.readline()
        assert not failed.exists()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130

    assert failed.read_text() == paths(1, 1)


def test_a_file_of_failed_lines_that_cannot_be_written_is_an_output_error(xapi: Xapi, tmp_path: Path) -> None:
    with Api(half) as api:
        nowhere = batch(xapi, api, "--failed", str(tmp_path / "none" / "failed"), input=paths(3))
        assert not api.requests
        full = batch(xapi, api, "--failed", "/dev/full", input=paths(8))

    assert (nowhere[0], full[0]) == (14, 14)
    assert full[2].endswith("xapi: error: /dev/full cannot be written: No space left on device; choose another file\n")


# how it ends


@pytest.mark.parametrize(
    ("redirection", "code", "message"),
    [
        (">&-", 14, "stdout cannot be written: it is closed"),
        (">/dev/full", 14, "No space left"),
        ("<&-", 2, "stdin is closed"),
    ],
)
def test_unusable_streams_end_the_batch_early(
    xapi: Xapi, tmp_path: Path, redirection: str, code: int, message: str
) -> None:
    (tmp_path / "in").write_text(paths(2000))
    with Api() as api:
        argv = ("bash", "-c", f'exec "$@" {redirection}', "-", str(PROGRAM))
        args = () if "<" in redirection else ("in",)
        process = xapi.start("batch", *args, env=api.settings, cwd=tmp_path, argv=argv)
        _, err = process.communicate()
        assert len(api.requests) < 2000

    assert process.returncode == code
    last = err.decode().rstrip().rpartition("\n")[2]
    assert last.startswith("xapi: error: ")
    assert message in last


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
        assert process.wait() == 141
        assert "error" not in process.stderr.read().decode()
        assert len(api.requests) < 2000


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_batch_and_what_is_complete_is_kept(
    xapi: Xapi, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    (tmp_path / "in").write_text(paths(200))
    all_are_sent, done = threading.Event(), threading.Event()

    def response(received: ReceivedRequest) -> Reply:
        if len(api.requests) >= 130:
            all_are_sent.set()
        if received.path not in {"/n/0", "/n/1"}:
            done.wait()
        return Reply()

    with Api(response) as api:
        args = ("batch", "-j", "128", "--journal", str(tmp_path / "j"), str(tmp_path / "in"))
        process = xapi.start(*args, env=api.settings)
        all_are_sent.wait()
        process.send_signal(number)
        out, err = process.communicate()  # waits for no response
        done.set()
        api.requests.clear()
        rest = xapi(*args, env=api.settings)

        assert process.returncode == code
        assert sorted(line["id"] for line in out_lines(out.decode())) == [0, 1]
        assert b"; 128 lines have no result; run the same command again to resume\n" in err
        assert (rest.code, len(out_lines(rest.out)), len(api.requests)) == (0, 200, 198)


def test_a_signal_ends_a_batch_that_waits_for_input(xapi: Xapi) -> None:
    with Api() as api:
        process = xapi.start("batch", stdin=subprocess.PIPE, env=api.settings)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(paths(1).encode())
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130


def test_max_time_limits_the_batch(xapi: Xapi) -> None:
    with Server([request(), hang()]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        outcome = xapi("batch", "-j", "1", "--max-time", "3", input=paths(9), env=env)

    assert outcome.code == 12
    assert re.fullmatch(r"xapi: error: .* within 3 s.*; raise --max-time\n", outcome.err)
    assert len(out_lines(outcome.out)) >= len(server.received)  # at most one
    for line in out_lines(outcome.out):
        assert line["error"]["kind"] == "timeout"
        assert "--max-time" in line["error"]["message"]


# a terminal


def _rows(text: str) -> list[str]:
    shown = re.sub(r"\r[^\n]*\x1b\[K", "", text)  # the progress of a slow batch
    return re.sub(r" +\d+ ms\b", " N ms", shown).splitlines()


def test_a_terminal_gets_a_table_with_the_reason_of_the_api(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(
        jsonl({"path": "/a"}, {"path": "/busy", "method": "delete"}, {"path": "/moved", "json": 1}, {"no path": 1})
    )
    replies = {"/busy": BUSY, "/moved": Reply(b"", 304)}
    args = ("batch", "--ordered", "--journal", str(tmp_path / "j"), str(tmp_path / "in"))
    with Api(lambda received: replies.get(received.path, Reply())) as api:
        with xapi.on_terminal(*args, env=api.settings, columns=120) as first:
            assert first.wait() == 5
        with xapi.on_terminal(*args, env=api.settings, columns=50) as second:
            assert second.wait() == 5

    table = [row for row in _rows(first.text) if row[:5].strip().isdigit() or "LINE" in row]
    assert table == [
        " LINE  STATUS       TIME  METHOD  PATH",
        "    1  200 N ms  GET     /a",
        "    2  503 N ms  DELETE  /busy  too busy",
        "    3  304 N ms  POST    /moved",
        f"    4  input N ms  -       -  unknown field 'no path'; known fields: {', '.join(KEYS)}",
    ]
    for color, status in (("32", "200"), ("31", "503"), ("33", "304"), ("31", "input")):
        assert f"\x1b[{color}m{status:<7}\x1b[0m".encode() in first.seen
    narrow = _rows(second.text)
    assert any(row.startswith("    1  200       journal  GET     /a") for row in narrow)
    assert max(map(len, narrow)) <= 50


def test_a_terminal_shows_the_progress(xapi: Xapi, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(paths(4))
    shown = threading.Event()

    def response(received: ReceivedRequest) -> Reply:
        if received.path == "/n/1" and sum(each.path == "/n/1" for each in api.requests) == 1:
            return BUSY
        if received.path == "/n/3":
            shown.wait()
        return Reply()

    with (
        Api(response) as api,
        (tmp_path / "out").open("wb") as out,
        xapi.on_terminal(
            "batch", "-j", "1", "--retry", "1", str(tmp_path / "in"), stdout=out, env=api.settings
        ) as terminal,
    ):
        terminal.expect("3 lines, ")
        terminal.expect("0 failed, 1 retried")
        shown.set()
        terminal.expect("4 lines in")
        assert terminal.wait() == 0
    assert len((tmp_path / "out").read_text().splitlines()) == 4


def test_lines_typed_on_a_terminal_are_sent_one_by_one(xapi: Xapi) -> None:
    with Api() as api, xapi.on_terminal("batch", columns=300, env=api.settings) as terminal:
        terminal.expect("reading lines from the terminal; press Ctrl-D to end the input")
        terminal.type('{"path":"/typed"}\n')
        terminal.expect("1  200 ")
        terminal.type("\x04")
        assert terminal.wait() == 0


# memory

_MIB = 2**20
_TEXT = (("Content-Type", "text/plain; charset=iso-8859-1"),)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reply", "count", "args", "limit"),
    [
        (Reply(), 3000, ("-j", "32"), 32),
        (Reply(b"x" * 65_536, headers=_TEXT), 1000, (), 45),
        (Reply(b"x" * 65_536, headers=_TEXT), 1000, ("--ordered",), 45),
        (Reply(b"\1" * 10 * _MIB, headers=_TEXT), 6, ("--ordered", "--journal", "j"), 400),
        (Reply(b"[" + b"[]," * 3_400_000 + b"1]"), 4, (), 400),
    ],
    ids=["small", "64 KiB", "64 KiB in order", "control characters", "lists"],
)
def test_memory_does_not_grow_with_the_input(
    xapi: Xapi, reply: Reply, count: int, args: tuple[str, ...], limit: int
) -> None:
    (xapi.home / "in").write_text(paths(count))
    with Api(lambda received: reply, open_to_all=True) as api:
        env = api.settings | {"XAPI_TOKEN": "abcdefgh"}
        command = measured(xapi.home / "peak", "batch", "in")
        process = xapi.start(*args, stdout=subprocess.DEVNULL, env=env, argv=command)
        _, err = process.communicate()

    assert process.returncode == 0, err
    assert int((xapi.home / "peak").read_text()) <= limit * _MIB


def test_a_post_is_sent_once_if_its_connection_is_lost(xapi: Xapi) -> None:
    with Server([request(), send(b"HTTP/1.1 200 OK\r\n"), close()]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "t"}
        outcome = xapi("batch", "--retry", "3", input='{"path":"/","json":1}', env=env)

    assert (outcome.code, len(server.received)) == (11, 1)


def test_the_progress_shows_the_numbers_of_lines_and_the_remaining_time() -> None:
    tally = Tally()
    tally.lines, tally.failed = 12_000, 3
    lines = Lines(1000, tally)
    lines.done = 500
    assert lines.text(lines.started + 10) == "12,000 lines, 1,200/s, 3 failed, 0:10 left"

"""However a command ends, it is quick, quiet where it should be, and leaves nothing behind."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands.api import ME, answer, bearing
from tests.program import PROGRAM, REAL, Outcome, Xapi
from tests.servers import (
    OK,
    Server,
    Step,
    Stopwatch,
    drip,
    forever,
    free_port,
    full_backlog,
    hang,
    head,
    request,
    send,
    serve,
)
from xapi_cli.sandbox import Sandbox

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
PHASES = ["stdin", "connect", "head", "body", "file", "upload", "stdout", "retry", "login", "lock", "-o fifo"]
BEGUN = answer("200 OK", b"begin", "Content-Length: 1000000")


@contextmanager
def _stuck(xapi: Xapi, phase: str, *more: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a request that gets no further than *phase*."""
    words: dict[str, list[str]] = {
        "stdin": ["-d", "@-"],
        "file": ["-o", str(xapi.home / "out")],
        "upload": ["-d", f"@{xapi.home / 'large'}"],
        "retry": ["--retry", "1"],
        "-o fifo": ["-o", str(xapi.home / "fifo")],
    }
    scripts = {
        "head": [head(), hang()],
        "body": [request(), send(BEGUN), hang()],
        "file": [request(), send(BEGUN), hang()],
        "upload": [head(), hang()],
        "stdout": [request(), forever(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 65536)],
        "retry": [request(), send(answer("503 Busy", b"", "Retry-After: 60")), hang()],
        "login": [head(), hang()],
    }
    (xapi.home / "large").write_bytes(b"x" * 20_000_000)
    os.mkfifo(xapi.home / "fifo")
    with Server(scripts.get(phase, [serve(OK)])) as server, full_backlog() as dead:
        env = bearing(server)
        if phase == "connect":
            env["XAPI_BASE_URL"] = f"http://127.0.0.1:{dead}"
        if phase in {"login", "lock"}:
            env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "secret"}
        if phase == "lock":
            env |= {"XAPI_BASE_URL": server.url}
            server._scripts = ([head(), hang()],)  # noqa: SLF001 - the other process never gets its token
            other = xapi.start("request", "/", env=env)
            _until(lambda: bool(server.received and b"\r\n\r\n" in server.received[0]))
            assert other.poll() is None
        process = xapi.start("request", "/", *words.get(phase, []), *more, stdin=subprocess.PIPE, env=env)
        try:
            yield process
        finally:
            process.kill()


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def _heeds_signals(pid: int) -> bool:
    """Tell whether the process handles signals itself by now: SIGHUP comes last."""
    caught = Path(f"/proc/{pid}/status").read_text().partition("SigCgt:")[2].split()[0]
    return bool(int(caught, 16) & 1 << (signal.SIGHUP - 1))


def _left_behind(xapi: Xapi) -> list[str]:
    new = [path.name for path in xapi.home.iterdir() if path.name.startswith(".xapi") or path.name == "out"]
    return new + [path.name for path in xapi.temporary.iterdir()]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("number, code", SIGNALS)
def test_a_signal_ends_it_quietly_at_once(xapi: Xapi, phase: str, number: int, code: int) -> None:
    with _stuck(xapi, phase) as process:
        _until(lambda: _heeds_signals(process.pid))
        time.sleep(0.5)  # nearly always enough to get to the phase, and earlier it has to end as well
        assert process.poll() is None
        with Stopwatch() as watch:
            process.send_signal(number)
            process.wait(30)
        assert process.stderr
        err = process.stderr.read().decode()

    assert process.returncode == code
    assert watch.seconds < 3
    assert [line for line in err.splitlines() if "trying again in 60.0 s" not in line] == []
    assert _left_behind(xapi) == []


@pytest.mark.parametrize("phase", PHASES)
def test_max_time_ends_it_whatever_it_is_doing(xapi: Xapi, phase: str) -> None:
    limit = 20 if phase == "retry" else 1
    with Stopwatch() as watch, _stuck(xapi, phase, "--max-time", f"{limit}") as process:
        process.wait(20)
        assert process.stderr
        line = process.stderr.read().decode().splitlines()[-1]

    if phase == "retry":  # a wait that cannot end in time is not begun
        assert (process.returncode, watch.seconds < limit) == (5, True)
        return
    assert process.returncode == 12
    assert 0.9 < watch.seconds < 10
    assert line.startswith("xapi: error: ")
    assert _left_behind(xapi) == []


@pytest.mark.parametrize("setting", ["environment", "profile"])
def test_max_time_may_be_set_for_good(xapi: Xapi, setting: str) -> None:
    env = {"XAPI_MAX_TIME": "1.5"} if setting == "environment" else {}
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("[profiles.default]\nmax_time = 1.5\n" if setting == "profile" else "")
    with Server([head(), hang()]) as server:
        outcome = xapi("request", "/", env=bearing(server) | env)

    assert (outcome.code, outcome.out) == (12, "")
    assert "; raise --max-time" in outcome.err  # whether it was waiting for the server by then or still being loaded


def test_a_command_that_is_quick_enough_does_not_notice_max_time(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = xapi("request", "/x-api/me", "--max-time", "20", env=bearing(sandbox))

    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.slow
def test_the_alarm_of_max_time_does_not_reach_the_command_of_exec(xapi: Xapi, sandbox: Sandbox) -> None:
    words = ["exec", "--max-time", "5", "--", "sh", "-c", "sleep 5.5; echo done"]

    assert xapi(*words, env=bearing(sandbox)) == Outcome(0, "done\n")


@pytest.mark.parametrize(
    "steps",
    [
        [hang()],
        [head(), hang()],
        [head(), drip(b"HTTP/1.1 200 OK\r\n" + b"X-Slow: x\r\n" * 100, 0.1)],
        [head(), forever(b"HTTP/1.1 103 Early Hints\r\n\r\n"), hang()],
        [head(), send(BEGUN), hang()],
    ],
)
def test_timeout_bounds_each_wait(xapi: Xapi, steps: Sequence[Step]) -> None:
    with Server(steps) as server, Stopwatch() as watch:
        outcome = xapi("request", "/", "--timeout", "0.5", env=bearing(server))

    assert outcome.code in {11, 12}
    assert watch.seconds < 10
    assert outcome.err.count("\n") == 1
    assert server.name in outcome.err


def test_a_body_that_keeps_coming_is_not_a_timeout(xapi: Xapi) -> None:
    sent = answer("200 OK", b"x" * 10)
    with Server([request(), send(sent[:-10]), drip(sent[-10:], 0.4)]) as server:
        assert xapi("request", "/", "--timeout", "3", env=bearing(server)) == Outcome(0, "x" * 10)


@pytest.mark.slow
def test_a_slow_reader_of_stdout_is_no_timeout(xapi: Xapi) -> None:
    body = b"x" * 3_000_000
    with Server([request(), send(answer("200 OK", body))]) as server:
        process = xapi.start("request", "/", "--timeout", "3", env=bearing(server))
        time.sleep(4.5)
        out, err = process.communicate(timeout=30)

    assert (process.returncode, len(out), err) == (0, len(body), b"")


# descriptors


def _shell(xapi: Xapi, command: str, env: dict[str, str]) -> Outcome:
    process = xapi.start("-c", command, "sh", str(PROGRAM), env=env, argv=("bash",))
    out, err = process.communicate(timeout=30)
    return Outcome(process.returncode, out.decode(), err.decode())


@pytest.mark.parametrize(
    "words",
    ["--help", "--version", "", "request --help", "request /x-api/me", "request --curl /x-api/me", "token show",
     "token show --json", "token status", "profile show"],
)  # fmt: skip
@pytest.mark.parametrize("where", [">&-", ">/dev/full"])
def test_a_stdout_that_takes_nothing_is_exit_14(xapi: Xapi, sandbox: Sandbox, words: str, where: str) -> None:
    assert xapi("login", env=sandbox.settings).code == 0

    outcome = _shell(xapi, f'"$1" {words} {where}', sandbox.settings)

    reason = {">&-": ("stdout is closed", "stdout cannot be written: Bad file descriptor"), ">/dev/full": ("No space",)}
    assert outcome.code == 14, outcome
    assert outcome.err.count("\n") == 1
    assert any(text in outcome.err for text in reason[where])


@pytest.mark.parametrize(
    "words", ["--help", "--version", "request --help", "request /x-api/me", "request -i /x-api/me"]
)
def test_a_reader_that_has_gone_is_exit_141_without_a_word(xapi: Xapi, sandbox: Sandbox, words: str) -> None:
    outcome = _shell(xapi, f'"$1" {words} | true; exit ${{PIPESTATUS[0]}}', bearing(sandbox))

    assert outcome in {Outcome(141), Outcome(0)}  # 0 where it was done before its reader went
    assert _without_a_reader(xapi, words.split(), bearing(sandbox)) == Outcome(141)


def _without_a_reader(xapi: Xapi, words: Sequence[str], env: dict[str, str]) -> Outcome:
    reader, writer = os.pipe()
    os.close(reader)
    process = xapi.start(*words, stdout=writer, env=env)
    os.close(writer)
    _, err = process.communicate(timeout=30)
    return Outcome(process.returncode, "", err.decode())


def test_a_reader_that_takes_a_line_of_an_endless_body_gets_it(xapi: Xapi) -> None:
    with Server([request(), send(b"HTTP/1.1 200 OK\r\n\r\n"), forever(b"line\n" * 100)]) as server:
        outcome = _shell(xapi, '"$1" request / | head -1; exit ${PIPESTATUS[0]}', bearing(server))

    assert outcome == Outcome(141, "line\n")


@pytest.mark.parametrize(
    "where, code, out",
    [("2>&-", 0, True), ("<&-", 0, True), ("<&- 2>&-", 0, True), (">&- 2>&- <&-", 14, False), ("2>/dev/full", 0, True)],
)
def test_closed_streams_change_nothing_else(xapi: Xapi, sandbox: Sandbox, where: str, code: int, out: bool) -> None:
    outcome = _shell(xapi, f'"$1" request /x-api/me {where}', sandbox.settings)

    assert (outcome.code, outcome.out.startswith('{"id":1')) == (code, out)


@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full", ">&- 2>&- <&-", "<&- 2>/dev/full"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("/x-api/me --meta - -o body", 14),
        ("/x-api/nothing --error-body stderr", 14),
        ("/x-api/nothing --error-body none --meta -", 14),
        ("/x-api/me -v -o body", 0),
        ("/x-api/me --meta meta -o body", 0),
        ("http://127.0.0.1:{port}/ --base-url http://127.0.0.1:{port} --meta -", 11),
    ],
)
def test_what_is_asked_for_on_stderr_and_cannot_be_written_there_is_exit_14(
    xapi: Xapi, sandbox: Sandbox, where: str, words: str, code: int
) -> None:
    outcome = _shell(xapi, f'"$1" request {words.format(port=free_port())} {where}', bearing(sandbox))

    assert (outcome.code, outcome.out, outcome.err) == (code, "", "")


@pytest.mark.parametrize("where", [">&-", ">/dev/full", "2>&- >/dev/full"])
@pytest.mark.parametrize("file", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_a_file_that_is_a_stdout_which_takes_nothing_is_exit_14(
    xapi: Xapi, sandbox: Sandbox, file: str, where: str
) -> None:
    outcome = _shell(xapi, f'"$1" request /x-api/me -o {file} {where}', bearing(sandbox))

    assert (outcome.code, outcome.out) == (14, "")


def test_a_file_that_is_stdout_goes_on_where_stdout_is(xapi: Xapi, sandbox: Sandbox) -> None:
    command = '{ echo before; "$1" request /x-api/me -o /dev/stdout; echo after; } >both; cat both'

    assert _shell(xapi, command, bearing(sandbox)) == Outcome(0, f"before\n{ME}after\n")


@pytest.mark.parametrize("words", ["/x-api/me --meta - -o body", "/x-api/nothing --error-body stderr"])
def test_a_reader_of_stderr_that_has_gone_is_exit_141_when_it_had_asked(
    xapi: Xapi, sandbox: Sandbox, words: str
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = xapi.start("request", *words.split(), stderr=writer, env=bearing(sandbox))
    os.close(writer)

    assert (process.wait(30), process.stdout and process.stdout.read()) == (141, b"")


@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full"])
def test_without_a_stderr_the_exit_code_still_tells(xapi: Xapi, sandbox: Sandbox, where: str) -> None:
    outcome = _shell(xapi, f'"$1" request /x-api/nothing {where}', bearing(sandbox))

    assert (outcome.code, outcome.err) == (4, "")


def test_a_closed_stdin_that_is_asked_for_is_wrong_usage(xapi: Xapi, sandbox: Sandbox) -> None:
    outcome = _shell(xapi, '"$1" request /x-api/echo -d @- <&-', bearing(sandbox))

    assert outcome == Outcome(2, "", "xapi: error: stdin is closed; give it a file or a pipe, or leave @- out\n")
    assert sandbox.requests == 0


def test_no_secret_is_in_the_arguments_of_any_process(xapi: Xapi, sandbox: Sandbox) -> None:
    with Server([head(), hang()]) as server:
        process = xapi.start("request", "/", env=bearing(server), argv=REAL)
        _until(lambda: bool(server.received))
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert b"/xapi\0request\0" in arguments

    assert b"canary" not in arguments


def test_a_signal_while_it_is_being_loaded_ends_it_quietly(xapi: Xapi, sandbox: Sandbox) -> None:
    outcomes = set()
    for wait in range(2, 26, 2):
        process = xapi.start("request", "/x-api/me", env=bearing(sandbox), argv=REAL)
        time.sleep(wait / 100)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        if err and b"xapi_cli/cli/main.py" not in err:
            continue  # Python had not come to the line that takes care of signals
        outcomes.add((process.returncode, err))

    assert outcomes <= {(-2, b""), (130, b""), (0, b"")}
    assert outcomes - {(0, b"")}

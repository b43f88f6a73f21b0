"""How a command ends: promptly, silently where specified, and without temporary files."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands.api import ME, bearing, response
from tests.support.combinations import combined
from tests.support.program import PROGRAM, PYTHON, Outcome, Process, Xapi
from tests.support.servers import (
    OK,
    Server,
    Step,
    Stopwatch,
    drip,
    forever,
    full_backlog,
    hang,
    head,
    request,
    send,
    serve,
)
from tests.support.threads import wait_until
from xapi_cli.features.sandbox import Sandbox

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
_SEEN_BY_SERVER = {"head", "body", "file", "upload", "stdout", "retry", "login", "lock"}
_EACH_WAY_TO_WAIT = {"stdin", "connect", "body", "retry", "lock"}
PHASES = ["stdin", "connect", "head", "body", "file", "upload", "stdout", "retry", "login", "lock", "-o fifo"]
TRUNCATED = response("200 OK", b"begin", "Content-Length: 1000000")


@contextmanager
def _blocked(xapi: Xapi, phase: str, *more: str) -> Iterator[tuple[Process, Server]]:
    """Start a request that blocks in *phase*; yield its process and the server."""
    args: dict[str, list[str]] = {
        "stdin": ["-d", "@-"],
        "file": ["-o", str(xapi.home / "out")],
        "upload": ["-d", f"@{xapi.home / 'large'}"],
        "retry": ["--retry", "1"],
        "-o fifo": ["-o", str(xapi.home / "fifo")],
    }
    scripts = {
        "head": [head(), hang()],
        "body": [request(), send(TRUNCATED), hang()],
        "file": [request(), send(TRUNCATED), hang()],
        "upload": [head(), hang()],
        "stdout": [request(), forever(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 65536)],
        "retry": [request(), send(response("503 Busy", b"", "Retry-After: 60")), hang()],
        "login": [head(), hang()],
    }
    (xapi.home / "large").write_bytes(b"x" * 20_000_000 if phase == "upload" else b"")
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
            wait_until(lambda: bool(server.received and b"\r\n\r\n" in server.received[0]))
            assert other.poll() is None
        process = xapi.start("request", "/", *args.get(phase, []), *more, stdin=subprocess.PIPE, env=env)
        try:
            yield process, server
        finally:
            process.kill()


def _handles_signals(pid: int) -> bool:
    """Return whether the process has installed its signal handlers; the one for SIGHUP is the last."""
    caught = Path(f"/proc/{pid}/status").read_text().partition("SigCgt:")[2].split()[0]
    return bool(int(caught, 16) & 1 << (signal.SIGHUP - 1))


def _temporary_files(xapi: Xapi) -> list[str]:
    new = [path.name for path in xapi.home.iterdir() if path.name.startswith(".xapi") or path.name == "out"]
    return new + [path.name for path in xapi.temporary.iterdir()]


@pytest.mark.parametrize("phase, number, code", combined(PHASES, SIGNALS))
def test_a_signal_terminates_a_request_silently_and_immediately(xapi: Xapi, phase: str, number: int, code: int) -> None:
    with _blocked(xapi, phase) as (process, server):
        wait_until(lambda: _handles_signals(process.pid))
        if phase in _SEEN_BY_SERVER:
            wait_until(lambda: any(b"\r\n\r\n" in each for each in server.received))
        time.sleep(0.1)  # usually enough to reach the phase; an earlier signal must have the same effect
        assert process.poll() is None
        process.send_signal(number)
        process.wait(25)  # less than any timeout
        assert process.stderr
        err = process.stderr.read().decode()

    assert process.returncode == code
    assert [line for line in err.splitlines() if "retrying in 60.0 s" not in line] == []
    assert _temporary_files(xapi) == []


@pytest.mark.parametrize(
    "phase", [pytest.param(each, marks=() if each in _EACH_WAY_TO_WAIT else pytest.mark.slow) for each in PHASES]
)
def test_max_time_ends_a_request_in_any_phase(xapi: Xapi, phase: str) -> None:
    limit = 20 if phase == "retry" else 0.5
    with Stopwatch() as watch, _blocked(xapi, phase, "--max-time", f"{limit}") as (process, _):
        process.wait()
        assert process.stderr
        line = process.stderr.read().decode().splitlines()[-1]

    if phase == "retry":  # a wait that cannot end in time is not started
        assert (process.returncode, watch.seconds < limit) == (5, True)
        return
    assert process.returncode == 12
    assert watch.seconds > 0.45
    assert line.startswith("xapi: error: ")
    assert _temporary_files(xapi) == []


def test_max_time_can_be_set_in_the_profile(xapi: Xapi) -> None:
    xapi.config.mkdir()
    (xapi.config / "config.toml").write_text("[profiles.default]\nmax_time = 0.5\n")
    with Server([head(), hang()]) as server:
        outcome = xapi("request", "/", env=bearing(server))
        reading = xapi.start("request", "/", "-d", "@-", stdin=subprocess.PIPE, env=bearing(server))

    assert (outcome.code, outcome.out, reading.wait()) == (12, "", 12)
    assert "; raise --max-time" in outcome.err  # whether it was waiting for the server or still starting


@pytest.mark.parametrize(
    "steps",
    [
        [hang()],
        [head(), hang()],
        [head(), drip(b"HTTP/1.1 200 OK\r\n" + b"X-Slow: x\r\n" * 100, 0.1)],
        [head(), forever(b"HTTP/1.1 103 Early Hints\r\n\r\n"), hang()],
        [head(), send(TRUNCATED), hang()],
    ],
)
def test_timeout_limits_each_wait(xapi: Xapi, steps: Sequence[Step]) -> None:
    with Server(steps) as server, Stopwatch() as watch:
        outcome = xapi("request", "/", "--timeout", "0.5", env=bearing(server))

    assert outcome.code in {11, 12}
    assert watch.seconds < 30  # the default
    assert outcome.err.count("\n") == 1
    assert server.name in outcome.err


def test_a_body_that_keeps_coming_is_not_a_timeout(xapi: Xapi) -> None:
    sent = response("200 OK", b"x" * 10)
    with Server([request(), send(sent[:-10]), drip(sent[-10:], 0.25)]) as server:
        assert xapi("request", "/", "--timeout", "2", env=bearing(server)) == Outcome(0, "x" * 10)


# descriptors


def _shell(xapi: Xapi, command: str, env: dict[str, str]) -> Outcome:
    process = xapi.start("-c", command, "sh", str(PROGRAM), env=env, argv=("bash",))
    return _ended(process)


def _ended(process: Process) -> Outcome:
    out, err = process.communicate()
    return Outcome(process.returncode, (out or b"").decode(), err.decode())


_PRINTING = ["--help", "--version", "", "request --help", "request /x-api/me", "request --curl /x-api/me", "token show",
             "token show --json", "profile show"]  # fmt: skip


@pytest.mark.parametrize("is_closed, args", combined([True, False], _PRINTING))
def test_an_unwritable_stdout_exits_with_14(xapi: Xapi, sandbox: Sandbox, args: str, is_closed: bool) -> None:
    if is_closed:
        outcome = _shell(xapi, f'"$1" {args} >&-', bearing(sandbox))
        reason = "it is closed|Bad file descriptor"
    else:
        with open("/dev/full", "wb") as full:
            process = xapi.start(*args.split(), stdout=full, env=bearing(sandbox))
        outcome = _ended(process)
        reason = "No space"

    assert (outcome.code, outcome.err.count("\n")) == (14, 1), outcome
    assert re.search(reason, outcome.err)


@pytest.mark.parametrize("args", ["--help", "--version", "request --help", "request /x-api/me", "request -i /x-api/me"])
def test_a_closed_stdout_exits_with_141_silently(xapi: Xapi, sandbox: Sandbox, args: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = xapi.start(*args.split(), stdout=writer, env=bearing(sandbox))
    os.close(writer)

    assert _ended(process) == Outcome(141)


def test_head_gets_the_first_line_of_an_endless_body(xapi: Xapi) -> None:
    with Server([request(), send(b"HTTP/1.1 200 OK\r\n\r\n"), forever(b"line\n" * 100)]) as server:
        outcome = _shell(xapi, '"$1" request / | head -1; exit ${PIPESTATUS[0]}', bearing(server))

    assert outcome == Outcome(141, "line\n")


def test_a_pipe_that_does_not_block_gets_the_whole_body(xapi: Xapi) -> None:
    shared = f'{PYTHON} -c "import os; os.set_blocking(1, False)"'  # as Node.js does
    with Server([request(), send(response("200 OK", bytes(200_000)))]) as server:
        outcome = _shell(xapi, f'{{ {shared}; "$1" request /; }} | {{ sleep 0.3; wc -c; }}', bearing(server))

    assert outcome == Outcome(0, "200000\n")


def test_output_to_dev_stdout_appends_at_the_current_position(xapi: Xapi, sandbox: Sandbox) -> None:
    command = '{ echo before; "$1" request /x-api/me -o /dev/stdout; echo after; } >both; cat both'

    assert _shell(xapi, command, bearing(sandbox)) == Outcome(0, f"before\n{ME}after\n")


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_body_from_a_closed_stdin_exits_with_2(xapi: Xapi, sandbox: Sandbox, tmp_path: Path, is_taken: bool) -> None:
    env = bearing(sandbox)
    if is_taken:  # as by libffi, which opens its own file when it is loaded
        (tmp_path / "sitecustomize.py").write_text("import os; os.open(__file__, os.O_RDONLY)")
        env["PYTHONPATH"] = str(tmp_path)

    outcome = _shell(xapi, '"$1" request /x-api/echo -d @- <&-', env)

    assert outcome == Outcome(2, "", "xapi: error: stdin is closed; redirect it from a file or a pipe, or omit @-\n")
    assert sandbox.requests == 0


def test_no_secret_is_in_the_arguments_of_any_process(xapi: Xapi, sandbox: Sandbox) -> None:
    with Server([head(), hang()]) as server:
        process = xapi.start("request", "/", env=bearing(server), argv=(str(PROGRAM),))
        wait_until(lambda: bool(server.received))
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert b"/xapi\0request\0" in arguments

    assert b"canary" not in arguments


def test_a_signal_during_startup_terminates_silently(xapi: Xapi, sandbox: Sandbox) -> None:
    outcomes = set()
    for wait in range(2, 26, 4):
        process = xapi.start("request", "/x-api/me", env=bearing(sandbox), argv=(str(PROGRAM),))
        time.sleep(wait / 100)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
        if err and b"xapi_cli/cli/main.py" not in err:
            continue  # Python had not installed its handlers yet
        outcomes.add((process.returncode, err))

    assert outcomes <= {(-2, b""), (130, b""), (0, b"")}
    assert outcomes - {(0, b"")}

"""Signals that the caller ignores or blocks, and its timer: xapi works with them, and passes them on to programs."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.credential_helpers import install
from tests.support.library_program import Program
from tests.support.program import PROGRAM, Environ, Outcome, Xapi
from tests.support.servers import Server, Stopwatch, serve
from xapi_cli.sandbox import MASTER, Sandbox
from xapi_cli.system.programs import UNKNOWN_EXIT, ChildProcess, describe_failure

TOKEN: Environ = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": "http://127.0.0.1:9"}
IGNORED_CHILDREN = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
BLOCKED_ALARM = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])"
PENDING_ALARM = f"{BLOCKED_ALARM}; os.kill(os.getpid(), signal.SIGALRM)"
IGNORED_ALARM = "signal.signal(signal.SIGALRM, signal.SIG_IGN)"
SHOW_SIGNALS = ("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
SHOW_TIMER = "import signal; print(*signal.getitimer(signal.ITIMER_REAL), int(signal.SIGALRM in signal.sigpending()))"
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
IGNORED_BY_PYTHON = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1
REAPING_HOST = """
import os, signal
def reap(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
signal.signal(signal.SIGCHLD, reap)
"""
HOSTS = {"ignores": f"import signal\n{IGNORED_CHILDREN}\n", "reaps": REAPING_HOST, "default": ""}

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def _run(xapi: Xapi, state: str, *args: str, env: Environ, data: bytes | None = None, wait: bool = False) -> Outcome:
    """Run xapi with *args* in a process with *state*; with *wait*, its stdin stays open until it has ended."""
    code = f"import os, signal, sys; {state}; os.execv(sys.argv[1], sys.argv[1:])"
    source, sink = os.pipe()
    try:
        os.write(sink, data or b"")
        process = xapi.start(*args, argv=(sys.executable, "-ISc", code, str(PROGRAM)), stdin=source, env=env)
        os.close(source)
        if not wait:
            os.close(sink)
            sink = -1
        out, err = process.communicate(timeout=30)
    finally:
        if sink >= 0:
            os.close(sink)
    return Outcome(process.returncode, out.decode(), err.decode())


def _signals(text: str) -> tuple[set[int], ...]:
    """Return the signals that are blocked and ignored, except by Python, according to *text*: `/proc/PID/status`."""
    masks = dict(line.split(":\t") for line in text.splitlines() if line.startswith("Sig"))
    blocked, ignored = int(masks["SigBlk"], 16), int(masks["SigIgn"], 16) & ~IGNORED_BY_PYTHON
    return tuple({number for number in range(1, 32) if mask >> number - 1 & 1} for mask in (blocked, ignored))


def _script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def _with_command(xapi: Xapi, command: str) -> None:
    assert xapi("profile", "set", "password_command", command).code == 0


@pytest.mark.parametrize("how", ["exit 3", "kill -KILL $$"])
def test_a_failed_password_command_fails_if_the_caller_ignores_sigchld(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path, how: str
) -> None:
    _with_command(xapi, _script(tmp_path / "command", f"echo partial; {how}"))
    env = {**sandbox.settings, "XAPI_PASSWORD": None}

    outcome = _run(xapi, IGNORED_CHILDREN, "login", env=env)

    assert (outcome.code, sandbox.login_attempts) == (10, 0)
    assert f"password_command 'command' {'failed' if '3' in how else 'was terminated'}" in outcome.err


def test_a_password_command_works_if_the_caller_ignores_sigchld(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    _with_command(xapi, _script(tmp_path / "command", f"echo '{MASTER.password}'"))

    assert _run(xapi, IGNORED_CHILDREN, "login", env={**sandbox.settings, "XAPI_PASSWORD": None}).code == 0


def test_a_failed_helper_fails_if_the_caller_ignores_sigchld(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    helper = install(tmp_path / "docker-credential-broken", "print('{}')\nraise SystemExit(7)")
    env = {**sandbox.settings, "XAPI_STORAGE": "helper", "XAPI_CREDENTIAL_HELPER": str(helper)}

    assert "failed with exit code 7" in _run(xapi, IGNORED_CHILDREN, "request", "/x-api/me", env=env).err


def test_a_failed_filter_fails_if_the_caller_ignores_sigchld(xapi: Xapi) -> None:
    with Server([serve(JSON)]) as server:
        env = {**TOKEN, "XAPI_BASE_URL": server.url}
        outcome = _run(xapi, IGNORED_CHILDREN, "request", "/x", "--jq", 'error("broken")', env=env)
        good = _run(xapi, IGNORED_CHILDREN, "request", "/x", "--jq", "1", env=env)

    assert (outcome.code, outcome.err) == (
        1,
        "xapi: error: the --jq filter failed: broken; correct the filter\n",
    )
    assert (good.code, good.out) == (0, "1\n"), good


@needs_proc
def test_programs_have_the_signals_of_the_caller(xapi: Xapi, sandbox: Sandbox, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    command = tmp_path / "command"
    command.write_text(
        f"#!{sys.executable} -IS\nopen({str(shown)!r}, 'w').write(open('/proc/self/status').read())\n"
        f"print({MASTER.password!r})\n"
    )
    command.chmod(0o755)
    _with_command(xapi, str(command))
    state = (
        f"{IGNORED_CHILDREN}; {IGNORED_ALARM}; "
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGTERM])"
    )
    login = _run(xapi, state, "login", "--max-time", "30", env={**sandbox.settings, "XAPI_PASSWORD": None})
    executed = _run(xapi, state, "exec", "--max-time", "30", "--", *SHOW_SIGNALS, env=TOKEN)

    expected = ({signal.SIGALRM, signal.SIGTERM}, {signal.SIGCHLD, signal.SIGALRM})
    assert (login.code, _signals(shown.read_text()), _signals(executed.out)) == (0, expected, expected)


@pytest.mark.parametrize("state", [BLOCKED_ALARM, PENDING_ALARM, IGNORED_ALARM])
def test_max_time_ends_a_wait_for_stdin_if_the_caller_blocks_or_ignores_sigalrm(xapi: Xapi, state: str) -> None:
    with Stopwatch() as watch:
        outcome = _run(xapi, state, "request", "/x", "-d", "@-", "--max-time", "0.5", env=TOKEN, wait=True)

    assert (outcome.code, outcome.err) == (
        12,
        "xapi: error: the command did not finish within 0.5 s; raise --max-time\n",
    )
    assert watch.seconds < 10


def test_an_alarm_of_the_caller_terminates_a_command(xapi: Xapi) -> None:
    timer = "signal.setitimer(signal.ITIMER_REAL, 1)"

    for options in ([], ["--max-time", "30"]):
        assert _run(xapi, timer, "request", "/x", "-d", "@-", *options, env=TOKEN, wait=True).code == -signal.SIGALRM


def test_a_limit_that_expires_before_the_alarm_of_the_caller_is_reported(xapi: Xapi) -> None:
    timer = "signal.setitimer(signal.ITIMER_REAL, 30)"

    assert _run(xapi, timer, "request", "/x", "-d", "@-", "--max-time", "0.5", env=TOKEN, wait=True).code == 12


@pytest.mark.parametrize(("options", "seconds"), [([], 1.5), (["--max-time", "2.2"], 2.8), (["--max-time", "60"], 1.5)])
def test_an_alarm_of_the_caller_terminates_the_command_of_exec(xapi: Xapi, options: list[str], seconds: float) -> None:
    timer = f"signal.setitimer(signal.ITIMER_REAL, {seconds})"

    with Stopwatch() as watch:
        outcome = _run(xapi, timer, "exec", *options, "--", "sleep", "20", env=TOKEN)

    assert outcome.code == -signal.SIGALRM
    assert seconds - 0.1 < watch.seconds < 15


@pytest.mark.parametrize("options", [[], ["--max-time", "30"]])
def test_a_timer_of_the_caller_continues_in_the_command_of_exec(xapi: Xapi, options: list[str]) -> None:
    timer = f"{PENDING_ALARM}; signal.setitimer(signal.ITIMER_REAL, 40, 50)"

    out = _run(xapi, timer, "exec", *options, "--", sys.executable, "-c", SHOW_TIMER, env=TOKEN).out

    left, interval, is_pending = map(float, out.split())
    assert 10 < left < 40
    assert (interval, is_pending) == (50, 1)


def test_an_exit_status_that_other_code_has_read_is_not_that_of_a_success() -> None:
    waited, polled = ChildProcess(["true"]), ChildProcess(["true"])
    for process in (waited, polled):
        os.waitpid(process.pid, 0)

    assert (waited.wait(), polled.poll()) == (UNKNOWN_EXIT, UNKNOWN_EXIT)
    assert describe_failure(UNKNOWN_EXIT) == "has ended, but its exit status is unknown"


@pytest.mark.parametrize(
    "host, thread",
    [  # the cases that are not slow have each program
        pytest.param(host, thread, marks=pytest.mark.slow if (row + column) % 2 else ())
        for row, host in enumerate(HOSTS)
        for column, thread in enumerate([False, True])
    ],
)
def test_the_library_reads_exit_statuses_in_any_program(
    xapi: Xapi, sandbox: Sandbox, tmp_path: Path, host: str, thread: bool
) -> None:
    script = _script(tmp_path / "command", f"echo '{MASTER.password}'; exit $CODE")
    _with_command(xapi, script)
    code = f"""
    import os, signal
    before = signal.getsignal(signal.SIGCHLD)
    def work():
        for code in "30":
            os.environ["CODE"] = code
            try:
                with xapi_cli.open_client() as client:
                    print(client.get("/x-api/me").status_code)
            except XapiError as error:
                print(error.message)
    if {thread}:
        each = threading.Thread(target=work)
        each.start()
        each.join()
    else:
        work()
    print(signal.getsignal(signal.SIGCHLD) == before)
    """
    env = {**sandbox.settings, "XAPI_PASSWORD": None}

    ran = Program(xapi)(code, env, prelude=HOSTS[host])

    assert ran == Outcome(0, "password_command 'command' failed with exit code 3\n200\nTrue\n")
    assert sandbox.login_attempts == 1

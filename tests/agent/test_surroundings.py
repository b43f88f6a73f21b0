"""Commands in unusual surroundings have the same effects with the agent as without it."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.api_server import ApiServer
from tests.agent.conftest import use_patiently, wait_for_workers
from tests.agent.running import RunningAgent, running_agent
from tests.support.program import PYTHON, Xapi

pytestmark = pytest.mark.slow  # makes each call twice

# Replaces itself by the program in the arguments, in a state that shells cannot set: `$START STATE PROGRAM…`.
_START = """
import os, signal, socket, sys
state, *program = sys.argv[1:]
if state == "blocked":
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
elif state == "ignored":
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, 32, 33, 34}:
        signal.signal(number, signal.SIG_IGN)
elif state == "default":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
elif state == "pending":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    os.kill(os.getpid(), signal.SIGTERM)
elif state == "large":
    os.environ.update({f"V{number}": "x" * 100_000 for number in range(15)})
elif state == "many":
    os.environ.update({f"V{number}": "x" for number in range(15_000)})
elif state == "socket":
    ours, theirs = socket.socketpair()
    ours.send(b"sent")
    ours.close()
    os.dup2(theirs.fileno(), 0)
os.execvp(program[0], program)
"""
# Runs the program in the arguments with non-blocking streams, and writes whether they still are to stderr.
_CHECK = """
import os, subprocess, sys
for number in range(2):
    os.set_blocking(number, False)
code = subprocess.call(sys.argv[1:])
print(code, [os.get_blocking(number) for number in range(2)], file=sys.stderr)
"""
_OWN_PATH = {"argument under /dev/fd or /proc": 1}
_OWN_DIRECTORY = {"working directory /dev or /proc": 1}
_WARM = [
    "xapi token show >/dev/full",
    "xapi request /large >/dev/full",
    "xapi request /large -o /dev/full",
    "xapi requst 2>/dev/full",
    "cd /sys; xapi request /echo -o file",
    "mkdir gone; cd gone; rmdir ../gone; xapi request /echo -o file",
    "mkdir gone; cd gone; rmdir ../gone; xapi request /echo -d @file",
    "mkdir real; ln -s real link; cd link; PWD=/other xapi request /echo -o file; ls ../real",
    "mkdir $'a\\nb\\xff'; cd $'a\\nb\\xff'; xapi request /echo -o file; cat file; xapi profile show $'\\xff'",
    "xapi request /echo a=$'\\xff\\xe4'",
    "A=$'\\xff' XAPI_PROFILE=$'\\xe4' xapi token show",
    "XAPI_CONFIG_DIR=c XAPI_STATE_DIR=c xapi profile set timeout 5; find . -type f | sort",
    "unset HOME; xapi token status",
    "HOME=relative xapi token status",
    "ulimit -f 1; xapi request /large -o file; ls",
    "(ulimit -f 1; xapi request /large >file); wc -c <file",
    "ulimit -n 200; ulimit -l 64; ulimit -q 1000; xapi request /echo",
    "ulimit -Hn 500; ulimit -Hf 100; xapi request /echo",
    "xapi request /large | head -c 1; echo ${PIPESTATUS[0]}",
    "trap '' PIPE; xapi request /large | head -c 1; echo ${PIPESTATUS[0]}",
    "start default xapi request /large | head -c 1; echo ${PIPESTATUS[0]}",
    "start blocked xapi request /echo --jq .path",
    "start blocked xapi request /never --max-time 0.3 2>/dev/null",
    "start ignored xapi request /echo",
    "start ignored xapi request /never --max-time 0.3 2>/dev/null",
    "start pending xapi token show; echo $?",
    "start large xapi token show",
    "start many xapi token show",
    "start socket xapi request /echo -d @-",
    "true | check xapi request /large | md5sum",
    "exec 3>file; xapi token show; echo end >&3; cat file",
    "(echo one; xapi token show; echo two) >file; cat file",
    "echo one >file; xapi token show 1<>file; cat file",
    "touch file; xapi token show 1<file; echo $?",
    "xapi request /echo -d @- 0>file",
    "(flock 9; xapi token show; flock -n 9 && echo locked) 9>file",
    "(exec -a other xapi token show)",
    "setsid -w xapi token show",
    "coproc xapi token show; cat <&${COPROC[0]}",
    "mkfifo pipe; (echo body >pipe &); xapi request /echo -d @pipe",
    "TERMINAL_WIDTH=40 GITHUB_ACTIONS=1 PY_COLORS=1 FORCE_COLOR=1 xapi request --help",
    "COLUMNS=abc LINES=-1 TERM=dumb xapi --help",
    "http_proxy=http://127.0.0.1:9 xapi request /echo --base-url http://api.test",
]
_COLD = {
    "xapi request /echo -d @/dev/fd/9 9<<<body": _OWN_PATH,
    "xapi request /echo -d @/dev/./fd//9 9<<<body": _OWN_PATH,
    "xapi request /echo -d @/dev//fd/9 9<<<body": _OWN_PATH,
    "exec 9<<<body; cd /; xapi request /echo -d @dev/fd/9": _OWN_PATH,
    "exec 9<<<body; cd /; xapi request /echo -d @proc/self/fd/9": _OWN_PATH,
    "exec 9<<<body; cd /dev; xapi request /echo -d @fd/9": _OWN_DIRECTORY,
    "exec 9<<<body; cd /proc; xapi request /echo -d @self/fd/9": _OWN_DIRECTORY,
    "xapi request /echo -d @<(echo body)": _OWN_PATH,
    "xapi request /large -o >(md5sum)": _OWN_PATH,
    "PYTHONUNBUFFERED=1 xapi request /large | md5sum": {"different environment variables": 1},
}


@pytest.fixture(scope="module")
def shared_agent() -> Iterator[RunningAgent]:
    with running_agent() as agent:
        yield agent


@pytest.fixture(scope="module")
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def _run(xapi: Xapi, api: ApiServer, line: str, directory: Path, **environ: str) -> tuple[object, ...]:
    """Run *line* of shell in the new *directory*; return the exit code, the streams and the number of requests.

    A busy machine may not send a request to /never in time.
    """
    directory.mkdir()
    before = len(api.requests)
    settings = {"XAPI_TOKEN": "t0ken", "XAPI_BASE_URL": api.url, "XAPI_TOKEN_BASE_URL": api.url}
    functions = "".join(
        f"{name}() {{ {PYTHON} -c '{code}' \"$@\"; }}\n" for name, code in (("start", _START), ("check", _CHECK))
    )
    ended = subprocess.run(
        ["bash", "-c", functions + line], env=xapi.environment({**settings, **environ}), cwd=directory,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    requests = -1 if "/never" in line else len(api.requests) - before
    return ended.returncode, ended.stdout, re.sub(rb"line \d+: +\d+", b"line", ended.stderr), requests


@pytest.mark.parametrize(("line", "cold"), [*((line, {}) for line in _WARM), *_COLD.items()])
def test_a_command_has_the_same_effects_as_without_the_agent(
    xapi: Xapi, shared_agent: RunningAgent, api: ApiServer, tmp_path: Path, line: str, cold: dict[str, int]
) -> None:
    runtime = shared_agent.environ["XDG_RUNTIME_DIR"]
    use_patiently(xapi, runtime)
    without = _run(xapi, api, line, tmp_path / "1", XAPI_AGENT="off")
    before = shared_agent.status()
    through = _run(xapi, api, line, tmp_path / "2")

    assert through == without
    wait_for_workers(Path(runtime) / "xapi", 2)  # they have read why a command was cold
    after = shared_agent.status()
    reasons = {name: count - before["cold"].get(name, 0) for name, count in after["cold"].items()}
    assert {name: count for name, count in reasons.items() if count} == cold
    assert (after["warm"] > before["warm"]) == (not cold)

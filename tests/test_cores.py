"""A core dump holds what the process knew: there is none of xapi, and one of COMMAND where the person allows it."""

import resource
import signal
from pathlib import Path

import pytest

from tests.census import IMPOSSIBLE
from tests.program import PROGRAM, Outcome, Xapi
from tests.servers import Server, hang, request
from tests.threads import Gate
from xapi_cli.sandbox import MASTER, Sandbox

ALLOWED = 4096 * 1024  # bytes, as `ulimit -c` counts them in blocks


@pytest.fixture(autouse=True)
def allowed() -> None:
    """Cores are allowed here, as far as whoever runs the tests lets them be."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard != resource.RLIM_INFINITY and hard < ALLOWED:
        pytest.skip(f"{IMPOSSIBLE}its hard limit allows no cores")


# A shell in which cores are allowed becomes the program.
ALLOWING = ("bash", "-c", f'ulimit -S -c {ALLOWED // 1024}; exec "$@"', "bash", str(PROGRAM))


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGABRT, signal.SIGSEGV])
def test_a_process_that_is_shot_dead_leaves_no_core(xapi: Xapi, number: signal.Signals) -> None:
    gate = Gate()
    with Server([request(), gate.reached, hang()]) as server:
        env = {"XAPI_BASE_URL": server.url, "XAPI_TOKEN": "canary"}
        process = xapi.start("request", "/x", env=env, argv=ALLOWING)
        gate.wait()
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        process.send_signal(number)
        process.wait(10)

    (line,) = (line for line in limits.splitlines() if line.startswith("Max core file size"))
    assert line.split()[4] == "0"
    assert process.returncode == -number
    assert [path for path in xapi.home.iterdir() if path.name.startswith("core")] == []


def test_the_command_of_exec_may_dump_what_the_person_allows(xapi: Xapi, sandbox: Sandbox) -> None:
    told = _told(xapi, "exec", "--", "bash", "-c", "ulimit -S -c", env=sandbox.settings)

    assert told == Outcome(0, f"{ALLOWED // 1024}\n", told.err)


def test_the_password_command_leaves_no_core_either(xapi: Xapi, sandbox: Sandbox) -> None:
    xapi.config.mkdir()
    (xapi.home / "password").write_text(MASTER.password)
    command = "ulimit -S -c >limit; cat password"
    (xapi.config / "config.toml").write_text(f"[profiles.default]\npassword_command = ['bash', '-c', '{command}']\n")
    told = _told(xapi, "token", "show", env={**sandbox.settings, "XAPI_PASSWORD": ""})

    assert told.code == 0
    assert (xapi.home / "limit").read_text() == "0\n"


def _told(xapi: Xapi, *words: str, env: dict[str, str]) -> Outcome:
    process = xapi.start(*words, env=env, argv=ALLOWING)
    out, err = process.communicate(timeout=30)
    return Outcome(process.returncode, out.decode(), err.decode())

"""Many processes at once: one login for all, no account locked out, and nobody held up by one that was killed."""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from tests.keyring_session import KeyringSession
from tests.program import PROGRAM, Xapi
from tests.servers import Server, Stopwatch, hang, request
from tests.threads import Gate
from xapi_cli.sandbox import MASTER, Sandbox

if TYPE_CHECKING:
    import subprocess

Env = dict[str, str | None]
MANY = 64


@pytest.fixture
def stored(request: pytest.FixtureRequest) -> Env:
    """An environment with the storage to test, the keyring being a real one."""
    if request.param == "file":  # parametrized indirectly
        return {"XAPI_STORAGE": "file"}
    session: KeyringSession = request.getfixturevalue("shared_gnome_keyring")
    session.clear()
    return {**session.environ, "XAPI_STORAGE": "keyring"}


def _together(xapi: Xapi, env: Mapping[str, str | None], *words: str, count: int = MANY) -> "list[Ended]":
    """Run the program *count* times at once and return how each run ended."""
    running = [xapi.start(*words, env=env) for _ in range(count)]
    return [Ended(process) for process in running]


class Ended:
    """A process that has ended."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        out, err = process.communicate(timeout=100)
        self.code, self.out, self.err = process.returncode, out.decode(), err.decode()


def _codes(ended: list[Ended]) -> dict[int, int]:
    return dict(Counter(each.code for each in ended))


@pytest.mark.slow
@pytest.mark.parametrize(
    "stored, before",
    [("file", "dead"), ("file", "none"), ("file", "expired"), ("keyring", "dead"), ("keyring", "none")],
    indirect=["stored"],
)
def test_64_processes_that_need_a_token_make_one_login_and_all_succeed(
    xapi: Xapi, sandbox: Sandbox, stored: Env, before: str
) -> None:
    env = {**stored, **sandbox.settings}
    if before == "expired":
        sandbox.expires_in = 1
    if before != "none":
        assert xapi("login", env=env).code == 0
        sandbox.kill_tokens()
    sandbox.expires_in = 3600
    logins = sandbox.logins
    if before == "expired":
        time.sleep(1)

    ended = _together(xapi, env, "request", "/x-api/me")

    assert _codes(ended) == {0: MANY}, [each.err for each in ended if each.code][:3]
    assert {json.loads(each.out)["email"] for each in ended} == {MASTER.email}
    assert sandbox.logins == sandbox.login_attempts == logins + 1
    assert sum("logged in as" in each.err for each in ended) == 1


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["file", "none"])
def test_64_processes_with_a_wrong_password_try_it_once_and_the_right_one_works_at_once(
    xapi: Xapi, sandbox: Sandbox, storage: str
) -> None:
    env: Env = {**sandbox.settings, "XAPI_STORAGE": storage, "XAPI_PASSWORD": "wrong"}

    ended = _together(xapi, env, "request", "/x-api/me")

    assert _codes(ended) == {10: MANY}
    assert {each.out for each in ended} == {""}
    assert sandbox.login_attempts == 1
    assert xapi("request", "/x-api/me", env={**env, **sandbox.settings}).code == 0


def test_two_wrong_passwords_in_turns_are_each_tried_once(xapi: Xapi, sandbox: Sandbox) -> None:
    running = [
        xapi.start("token", "show", env={**sandbox.settings, "XAPI_PASSWORD": f"wrong{number % 2}"})
        for number in range(12)
    ]

    assert _codes([Ended(process) for process in running]) == {10: 12}
    assert sandbox.login_attempts == 2


def test_a_right_password_is_not_held_up_by_wrong_ones(xapi: Xapi, sandbox: Sandbox) -> None:
    wrong = [xapi.start("token", "show", env={**sandbox.settings, "XAPI_PASSWORD": "wrong"}) for _ in range(6)]
    right = [xapi.start(*words, env=sandbox.settings) for words in (("login",), ("token", "show")) for _ in range(3)]

    assert {Ended(process).code for process in right} == {0}
    assert {Ended(process).code for process in wrong} <= {0, 10}  # who came later found the token
    assert xapi("token", "show", "--no-login", env=sandbox.settings).code == 0


@pytest.mark.parametrize("storage", ["file", "none"])
def test_8_processes_and_a_token_endpoint_that_hangs_all_end_in_time(xapi: Xapi, storage: str) -> None:
    with Server([hang()]) as server, Stopwatch() as watch:
        env: Env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x", "XAPI_STORAGE": storage}
        ended = _together(xapi, env, "request", "/x-api/me", "--timeout", "2", count=8)

    assert _codes(ended) == {12: 8}, [each.err for each in ended]
    assert watch.seconds < 20
    assert len(server.received) <= 3


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_nobody_is_held_up_for_long_by_a_holder_that_died_or_stands_still(
    xapi: Xapi, sandbox: Sandbox, how: str
) -> None:
    gate = Gate()
    with Server([request(), gate.reached, hang()]) as server:
        env: Env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x", "XAPI_TIMEOUT": "1"}
        holder = xapi.start("token", "show", "--timeout", "60", env=env)
        gate.wait()
        holder.send_signal(signal.Signals[how])
        with Stopwatch() as watch:
            outcome = xapi("token", "show", env=env, timeout=30)

    assert outcome.code == 12
    if how == "SIGKILL":
        assert watch.seconds < 6
        assert len(server.received) == 2
    else:
        assert "another xapi has been logging in as me" in outcome.err
        assert watch.seconds < 15
        holder.kill()


def test_max_time_ends_the_wait_for_another_login(xapi: Xapi) -> None:
    gate = Gate()
    with Server([request(), gate.reached, hang()]) as server:
        env: Env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x"}
        xapi.start("token", "show", env=env)
        gate.wait()
        with Stopwatch() as watch:
            assert xapi("token", "show", "--max-time", "1", env=env).code == 12
    assert watch.seconds < 4


def test_a_keyring_that_stands_still_is_exit_13_in_time(xapi: Xapi, gnome_keyring: KeyringSession) -> None:
    env: Env = {**gnome_keyring.environ, "XAPI_STORAGE": "keyring", "XAPI_BASE_URL": "api.test", "XAPI_USERNAME": "me"}
    assert xapi("token", "status", env=env).code == 10
    gnome_keyring.freeze()
    for words in (("token", "show"), ("login",), ("logout",)):
        took: list[float] = []
        while len(took) < 3 and min(took, default=9) >= 4.5:  # the machine may have other things to do
            with Stopwatch() as watch:
                outcome = xapi(*words, env={**env, "XAPI_PASSWORD": "x"})
            took.append(watch.seconds)
            assert (outcome.code, outcome.out, outcome.err.count("\n")) == (13, "", 1)
            assert "XAPI_STORAGE=file" in outcome.err
        assert min(took) < 4.5
    gnome_keyring.thaw()


# killed at chosen system calls


@pytest.fixture(scope="module")
def strace() -> str:
    if not os.path.exists("/usr/bin/strace"):
        pytest.skip("needs strace")
    return "/usr/bin/strace"


def _killed_at(xapi: Xapi, strace: str, call: str, number: int, words: tuple[str, ...], env: Env) -> int:
    """Run the program and kill it at its *number*th *call*; return how it ended."""
    trace = (
        strace,
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        f"trace={call}",
        "-e",
        f"inject={call}:signal=KILL:when={number}",
    )
    process = xapi.start(*words, env=env, argv=(*trace, str(PROGRAM)))
    process.communicate(timeout=60)
    return process.returncode


@pytest.mark.slow
@pytest.mark.parametrize("call", ["rename", "fsync", "flock", "fchmod", "unlink"])
def test_kill_9_at_a_step_of_a_login_leaves_the_old_token_or_the_new_one(
    xapi: Xapi, sandbox: Sandbox, strace: str, call: str
) -> None:
    env: Env = {**sandbox.settings, "PYTHONDONTWRITEBYTECODE": "1"}
    assert xapi("login", env=env).code == 0
    killed = 0
    for number in range(1, 20):
        ended = _killed_at(xapi, strace, call, number, ("login",), env)
        assert xapi("token", "show", "--no-login").code == 0  # the profile is there, too
        if ended == 0:
            break
        killed += 1
    else:
        raise AssertionError("it never came to an end")
    with Stopwatch() as watch:
        assert xapi("login", env=env).code == 0
    assert watch.seconds < 5
    if call in {"rename", "fsync", "flock"}:
        assert killed > 1
    assert [path.name for path in xapi.home.rglob("*.new")] == []
    assert len(list((xapi.state / "tokens").iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("call", ["rename", "fsync", "openat"])
def test_kill_9_while_the_config_is_written_leaves_the_old_file_or_the_new_one(
    xapi: Xapi, strace: str, call: str
) -> None:
    before = "# mine\n[profiles.default]\ntimeout = 1\n"
    xapi.config.mkdir()
    path = xapi.config / "config.toml"
    seen = set()
    for number in range(1, 8):
        path.write_text(before)
        if call == "openat":  # the last ones are those that write
            total = _calls(xapi, strace)
            number = total - number  # noqa: PLW2901  # counted from the end
        _killed_at(xapi, strace, call, number, ("profile", "set", "timeout", "2"), {"PYTHONDONTWRITEBYTECODE": "1"})
        seen.add(path.read_text())
        assert xapi("profile", "show").code == 0

    assert seen <= {before, before.replace("= 1", "= 2")}
    assert before in seen
    assert xapi("profile", "set", "timeout", "3").code == 0
    assert os.listdir(xapi.config) == ["config.toml"]


def _calls(xapi: Xapi, strace: str) -> int:
    log = xapi.home / "log"
    process = xapi.start(
        *("profile", "set", "timeout", "1"),
        env={"PYTHONDONTWRITEBYTECODE": "1"},
        argv=(strace, "-qq", "-o", str(log), "-e", "trace=openat", str(PROGRAM)),
    )
    process.communicate(timeout=60)
    return len(log.read_text().splitlines())


@pytest.mark.soak
def test_kill_9_at_500_random_moments_never_stands_in_the_way_of_the_next_command(xapi: Xapi, sandbox: Sandbox) -> None:
    import random

    assert xapi("login", env=sandbox.settings).code == 0
    for _ in range(500):
        process = xapi.start("login", env=sandbox.settings)
        time.sleep(random.uniform(0.05, 0.4))
        process.kill()
        process.communicate()
        assert xapi("token", "show", "--no-login").code == 0
    assert xapi("login", env=sandbox.settings).code == 0
    assert len([path for path in xapi.home.rglob("*") if path.is_file()]) < 12


@pytest.mark.soak
def test_logouts_and_requests_at_the_same_time_never_resurrect_an_account(xapi: Xapi, sandbox: Sandbox) -> None:
    for _ in range(100):
        running = [xapi.start("token", "show", "--fresh", env=sandbox.settings) for _ in range(2)]
        for process in running:
            process.communicate(timeout=60)
        racing = xapi.start("token", "show", "--fresh", env=sandbox.settings)
        assert xapi("logout", env=sandbox.settings).code == 0
        err = racing.communicate(timeout=60)[1]
        stored = xapi("token", "status", env=sandbox.settings).code == 0
        assert not (stored and b"logged out in the meantime" in err)

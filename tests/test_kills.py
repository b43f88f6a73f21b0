"""kill -9 at chosen system calls, and at random moments: the old record or the new one, and nothing in the way."""

import itertools
import json
import os
import random
import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.keyring_session import KeyringSession
from tests.program import PROGRAM, Xapi
from tests.servers import Peer, Server, Stopwatch
from xapi_cli.sandbox import Sandbox

Env = dict[str, str | None]
LOGIN = ("login",)


@pytest.fixture(scope="module", autouse=True)
def strace() -> None:
    if not os.path.exists("/usr/bin/strace"):
        pytest.skip("needs strace")


def _killed_at(xapi: Xapi, call: str, number: int, words: tuple[str, ...], env: Env) -> int:
    """Run the program and kill it at its *number*th *call*; return how it ended."""
    calls = _all_of(call)
    return _traced(xapi, ("-e", f"trace={calls}", "-e", f"inject={calls}:signal=KILL:when={number}"), words, env)


def _count(xapi: Xapi, call: str, words: tuple[str, ...], env: Env) -> int:
    """Return how often a run of the program makes the system call *call*."""
    log = xapi.home / "trace"
    assert _traced(xapi, ("-e", f"trace={_all_of(call)}"), words, env, log) == 0
    return len(re.findall(rf"\b{call}(?:at2?)?\(", log.read_text()))


def _all_of(call: str) -> str:
    """Return the pattern for strace of *call* and of those that do the same relative to a directory."""
    return f"/^{call}(at2?)?$"


def _traced(xapi: Xapi, options: Sequence[str], words: tuple[str, ...], env: Env, log: Path = Path(os.devnull)) -> int:
    # no byte code is written: that would be the first system calls to be counted
    argv = ("strace", "-f", "-qq", "-o", str(log), *options, str(PROGRAM))
    process = xapi.start(*words, env={"PYTHONDONTWRITEBYTECODE": "1", **env}, argv=argv)
    process.communicate(timeout=60)
    return process.returncode


def _until_it_ends_well(run: Callable[[int], int], check: Callable[[], object], most: int = 60) -> int:
    """Kill at the first call, the second and so on, and *check* each time; return the number of kills."""
    for number in range(1, most):
        ended = run(number)
        check()
        if ended == 0:
            return number - 1
    raise AssertionError("it never came to an end")


def _the_next_login_is_quick(xapi: Xapi, env: Env) -> None:
    with Stopwatch() as watch:
        assert xapi(*LOGIN, env=env).code == 0
    assert watch.seconds < 10  # a lock that was left would cost more
    assert [path.name for path in xapi.home.rglob("*.new")] == []


@pytest.mark.slow
@pytest.mark.parametrize("call", ["rename", "fsync", "flock", "fchmod", "unlink"])
def test_a_login_with_file_storage_leaves_the_old_token_or_the_new_one(xapi: Xapi, sandbox: Sandbox, call: str) -> None:
    env: Env = {**sandbox.settings}
    assert xapi(*LOGIN, env=env).code == 0

    def check() -> None:
        assert xapi("token", "show", "--no-login").code == 0  # the profile is there, too

    killed = _until_it_ends_well(lambda number: _killed_at(xapi, call, number, LOGIN, env), check)

    if call in {"rename", "fsync", "flock"}:
        assert killed > 1
    _the_next_login_is_quick(xapi, env)
    assert len(list((xapi.state / "tokens").iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("call", ["rename", "fsync", "flock", "unlink"])
def test_a_first_login_leaves_no_token_or_the_new_one_and_the_next_login_works(
    xapi: Xapi, sandbox: Sandbox, call: str
) -> None:
    env: Env = {**sandbox.settings}

    def run(number: int) -> int:
        assert xapi("logout", env=env).code == 0
        return _killed_at(xapi, call, number, LOGIN, env)

    def check() -> None:
        assert xapi("token", "show", "--no-login", env=env).code in {0, 10}

    _until_it_ends_well(run, check)

    _the_next_login_is_quick(xapi, env)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["rename", "fsync", "flock", "unlink"])
def test_a_logout_leaves_the_token_or_none_and_the_next_one_leaves_none(
    xapi: Xapi, sandbox: Sandbox, call: str
) -> None:
    env: Env = {**sandbox.settings}

    def run(number: int) -> int:
        assert xapi(*LOGIN, env=env).code == 0
        return _killed_at(xapi, call, number, ("logout",), env)

    def check() -> None:
        assert xapi("token", "show", "--no-login", env=env).code in {0, 10}
        assert xapi("logout", env=env).code == 0
        assert xapi("token", "show", "--no-login", env=env).code == 10

    _until_it_ends_well(run, check)

    _the_next_login_is_quick(xapi, env)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["rename", "flock"])
def test_a_refusal_that_could_not_be_noted_leaves_the_account_usable(xapi: Xapi, sandbox: Sandbox, call: str) -> None:
    wrong: Env = {**sandbox.settings, "XAPI_PASSWORD": "wrong"}
    for number in range(1, 4):
        _killed_at(xapi, call, number, ("token", "show"), wrong)
        assert xapi("token", "show", "--fresh", env=sandbox.settings).code == 0
        assert xapi("logout", env=sandbox.settings).code == 0
    assert xapi("token", "show", env=wrong).code == 10
    assert [path.suffix for path in (xapi.state / "attempts").iterdir()] == [".refused"]  # what was left is swept


@pytest.mark.slow
@pytest.mark.parametrize("call", ["sendto", "flock", "rename"])
def test_a_login_with_a_keyring_leaves_the_old_token_or_the_new_one(
    xapi: Xapi, sandbox: Sandbox, gnome_keyring: KeyringSession, call: str
) -> None:
    env: Env = {**gnome_keyring.environ, **sandbox.settings, "XAPI_STORAGE": "keyring"}
    assert xapi(*LOGIN, env=env).code == 0
    if call == "rename":  # what is written beside the keyring is written once only
        shutil.rmtree(xapi.state)
    total = _count(xapi, call, LOGIN, env)  # of sendto each message to keyring and server is one
    assert total > 1
    pid = gnome_keyring.pid

    for number in sorted({1, total, *range(2, total, max(1, total // 10))}):
        if call == "rename":
            shutil.rmtree(xapi.state)
        _killed_at(xapi, call, number, LOGIN, env)
        outcome = xapi("token", "show", "--no-login", env=env)
        assert outcome.code == 0, outcome
        assert sandbox.user_of(outcome.out.strip()) is not None

    _the_next_login_is_quick(xapi, env)
    assert (gnome_keyring.lives, gnome_keyring.pid) == (True, pid)
    assert gnome_keyring.count("xapi") == 1  # no probe is left, nor a second record


@pytest.mark.slow
def test_a_long_token_in_pieces_is_the_old_one_or_the_new_one(xapi: Xapi) -> None:
    numbers = itertools.count(1)

    def grant(peer: Peer) -> None:
        while True:
            peer.read_request()
            body = json.dumps({"access_token": f"{next(numbers)}-" * 900}).encode()
            peer.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    with Server([grant]) as server:
        where: Env = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x"}
        env = {**where, **xapi.fake_keyring("Windows")}
        assert xapi(*LOGIN, env=env).code == 0
        tokens = []

        def check() -> None:
            outcome = xapi("token", "show", "--no-login", env=env)
            assert outcome.code == 0
            tokens.append(outcome.out.partition("-")[0])
            assert outcome.out == f"{tokens[-1]}-" * 900 + "\n"

        killed = _until_it_ends_well(lambda number: _killed_at(xapi, "rename", number, LOGIN, env), check)
        _the_next_login_is_quick(xapi, env)
        assert killed > 6  # each item of this keyring is written with a rename
        assert len(set(tokens)) > 1
        assert xapi("logout", env=env).code == 0
    assert (xapi.home / "items.json").read_text() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("call", ["rename", "fsync", "openat"])
def test_while_the_config_is_written_it_is_the_old_file_or_the_new_one(xapi: Xapi, call: str) -> None:
    before = "# mine\n[profiles.default]\ntimeout = 1\n"
    words = ("profile", "set", "timeout", "2")
    xapi.config.mkdir()
    path = xapi.config / "config.toml"
    path.write_text(before)
    total = _count(xapi, call, words, {})
    seen = set()
    for number in range(max(1, total - 7), total + 2):  # of openat, the last ones are those that write
        path.write_text(before)
        _killed_at(xapi, call, number, words, {})
        seen.add(path.read_text())
        assert xapi("profile", "show").code == 0

    assert seen == {before, before.replace("= 1", "= 2")}
    assert xapi("profile", "set", "timeout", "3").code == 0
    assert os.listdir(xapi.config) == ["config.toml"]


@pytest.mark.parametrize(
    "storage, kills",
    [
        ("file", 10),
        pytest.param("file", 500, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
        pytest.param("keyring", 500, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_a_kill_at_a_random_moment_never_stands_in_the_way_of_the_next_command(
    xapi: Xapi, sandbox: Sandbox, request: pytest.FixtureRequest, storage: str, kills: int
) -> None:
    env: Env = {**sandbox.settings, "XAPI_STORAGE": storage}
    session: KeyringSession | None = None
    if storage == "keyring":
        session = request.getfixturevalue("gnome_keyring")
        env |= session.environ
    with Stopwatch() as watch:
        assert xapi(*LOGIN, env=env).code == 0
    for _ in range(kills):
        process = xapi.start(*LOGIN, env=env)
        time.sleep(random.uniform(0.1, 1.1) * watch.seconds)
        process.kill()
        process.communicate()
        outcome = xapi("token", "show", "--no-login", env=env)
        assert outcome.code == 0, outcome
        assert sandbox.user_of(outcome.out.strip()) is not None
    _the_next_login_is_quick(xapi, env)
    assert len([path for path in xapi.state.rglob("*") if path.is_file()]) < 12
    assert session is None or (session.lives, session.count("xapi")) == (True, 1)

"""kill -9 at selected system calls and at random moments: the old record or the new one, and no lock that blocks."""

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

from tests.support.keyring_session import KeyringSession
from tests.support.program import PROGRAM, Xapi
from tests.support.servers import Peer, Server, Stopwatch
from xapi_cli.sandbox import Sandbox

Env = dict[str, str | None]
LOGIN = ("login",)


@pytest.fixture(scope="module", autouse=True)
def strace() -> None:
    if not os.path.exists("/usr/bin/strace"):
        pytest.skip("needs strace")


def _killed_at(xapi: Xapi, call: str, number: int, args: tuple[str, ...], env: Env) -> int:
    """Run the program and kill it at its *number*th *call*; return its exit status."""
    calls = _pattern(call)
    return _traced(xapi, ("-e", f"trace={calls}", "-e", f"inject={calls}:signal=KILL:when={number}"), args, env)


def _count(xapi: Xapi, call: str, args: tuple[str, ...], env: Env) -> int:
    """Return the number of system calls *call* in a run of the program."""
    log = xapi.home / "trace"
    assert _traced(xapi, ("-e", f"trace={_pattern(call)}"), args, env, log) == 0
    return len(re.findall(rf"\b{call}(?:at2?)?\(", log.read_text()))


def _pattern(call: str) -> str:
    """Return the strace pattern for *call* and its variants with a directory descriptor."""
    return f"/^{call}(at2?)?$"


def _traced(xapi: Xapi, options: Sequence[str], args: tuple[str, ...], env: Env, log: Path = Path(os.devnull)) -> int:
    # writing byte code would be counted too
    argv = ("strace", "-f", "-qq", "-o", str(log), *options, str(PROGRAM))
    process = xapi.start(*args, env={"PYTHONDONTWRITEBYTECODE": "1", **env}, argv=argv)
    process.communicate(timeout=60)
    return process.returncode


def _kill_until_it_succeeds(run: Callable[[int], int], check: Callable[[], object], most: int = 60) -> int:
    """Kill at the first call, the second and so on, and *check* each time; return the number of kills."""
    for number in range(1, most):
        ended = run(number)
        check()
        if ended == 0:
            return number - 1
    raise AssertionError("it never came to an end")


def _check_next_login_is_fast(xapi: Xapi, env: Env) -> None:
    with Stopwatch() as watch:
        assert xapi(*LOGIN, env=env).code == 0
    assert watch.seconds < 10  # a remaining lock would take longer
    assert [path.name for path in xapi.home.rglob("*.new")] == []


@pytest.mark.slow
@pytest.mark.parametrize("call", ["rename", "fsync", "flock", "fchmod", "unlink"])
def test_a_login_with_file_storage_leaves_the_old_token_or_the_new_one(xapi: Xapi, sandbox: Sandbox, call: str) -> None:
    env: Env = {**sandbox.settings}
    assert xapi(*LOGIN, env=env).code == 0

    def check() -> None:
        assert xapi("token", "show", "--no-login").code == 0  # the profile exists as well

    killed = _kill_until_it_succeeds(lambda number: _killed_at(xapi, call, number, LOGIN, env), check)

    if call in {"rename", "fsync", "flock"}:
        assert killed > 1
    _check_next_login_is_fast(xapi, env)
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

    _kill_until_it_succeeds(run, check)

    _check_next_login_is_fast(xapi, env)


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

    _kill_until_it_succeeds(run, check)

    _check_next_login_is_fast(xapi, env)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["rename", "flock"])
def test_an_unrecorded_login_failure_leaves_the_account_usable(xapi: Xapi, sandbox: Sandbox, call: str) -> None:
    wrong: Env = {**sandbox.settings, "XAPI_PASSWORD": "wrong"}
    for number in range(1, 4):
        _killed_at(xapi, call, number, ("token", "show"), wrong)
        assert xapi("token", "show", "--fresh", env=sandbox.settings).code == 0
        assert xapi("logout", env=sandbox.settings).code == 0
    assert xapi("token", "show", env=wrong).code == 10
    assert [path.suffix for path in (xapi.state / "attempts").iterdir()] == [
        ".refused"
    ]  # the temporary file was deleted


@pytest.mark.slow
@pytest.mark.parametrize("call", ["sendto", "flock", "rename"])
def test_a_login_with_a_keyring_leaves_the_old_token_or_the_new_one(
    xapi: Xapi, sandbox: Sandbox, gnome_keyring: KeyringSession, call: str
) -> None:
    env: Env = {**gnome_keyring.environ, **sandbox.settings, "XAPI_STORAGE": "keyring"}
    assert xapi(*LOGIN, env=env).code == 0
    if call == "rename":  # files beside the keyring are written only once
        shutil.rmtree(xapi.state)
    total = _count(xapi, call, LOGIN, env)  # each message to the keyring and the server is one sendto
    assert total > 1
    pid = gnome_keyring.pid

    for number in sorted({1, total, *range(2, total, max(1, total // 10))}):
        if call == "rename":
            shutil.rmtree(xapi.state)
        _killed_at(xapi, call, number, LOGIN, env)
        outcome = xapi("token", "show", "--no-login", env=env)
        assert outcome.code == 0, outcome
        assert sandbox.user_of(outcome.out.strip()) is not None

    _check_next_login_is_fast(xapi, env)
    assert (gnome_keyring.lives, gnome_keyring.pid) == (True, pid)
    assert gnome_keyring.count("xapi") == 1  # neither a probe item nor a second record remains


@pytest.mark.slow
def test_a_chunked_token_is_the_old_one_or_the_new_one(xapi: Xapi) -> None:
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

        killed = _kill_until_it_succeeds(lambda number: _killed_at(xapi, "rename", number, LOGIN, env), check)
        _check_next_login_is_fast(xapi, env)
        assert killed > 6  # this keyring writes each item with a rename
        assert len(set(tokens)) > 1
        assert xapi("logout", env=env).code == 0
    assert (xapi.home / "items.json").read_text() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("call", ["rename", "fsync", "openat"])
def test_a_kill_while_the_config_is_written_leaves_the_old_file_or_the_new_one(xapi: Xapi, call: str) -> None:
    before = "# mine\n[profiles.default]\ntimeout = 1\n"
    args = ("profile", "set", "timeout", "2")
    xapi.config.mkdir()
    path = xapi.config / "config.toml"
    path.write_text(before)
    assert xapi(*args).code == 0  # creates the directories, so that all further runs make the same calls
    path.write_text(before)
    total = _count(xapi, call, args, {})
    seen = set()
    # the last openat calls are those that write, and those of the modules for the message
    for number in range(max(1, total - 24), total + 2):
        path.write_text(before)
        _killed_at(xapi, call, number, args, {})
        seen.add(path.read_text())
        assert xapi("profile", "show").code == 0

    assert seen == {before, before.replace("= 1", "= 2")}
    assert xapi("profile", "set", "timeout", "3").code == 0
    assert os.listdir(xapi.config) == ["config.toml"]


def test_a_kill_at_a_random_moment_does_not_block_the_next_command(xapi: Xapi, sandbox: Sandbox) -> None:
    env: Env = {**sandbox.settings}
    with Stopwatch() as watch:
        assert xapi(*LOGIN, env=env).code == 0
    for _ in range(10):
        process = xapi.start(*LOGIN, env=env)
        time.sleep(random.uniform(0.1, 1.1) * watch.seconds)
        process.kill()
        process.communicate()
        outcome = xapi("token", "show", "--no-login", env=env)
        assert outcome.code == 0, outcome
        assert sandbox.user_of(outcome.out.strip()) is not None
    _check_next_login_is_fast(xapi, env)
    assert len([path for path in xapi.state.rglob("*") if path.is_file()]) < 12

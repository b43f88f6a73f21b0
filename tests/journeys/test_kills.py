"""kill -9 at each of selected system calls: the old record or the new one, and no lock that blocks the next command."""

import itertools
import json
from collections.abc import Callable

import pytest

from tests.support.program import PROGRAM, Environ, Xapi
from tests.support.servers import Peer, Server
from xapi_cli.features.sandbox import Sandbox

pytestmark = pytest.mark.slow  # a tracer

LOGIN = ("login",)
MOST = 60  # calls of a command


def _killed_at(xapi: Xapi, call: str, number: int, args: tuple[str, ...], env: Environ) -> bool:
    """Run the program, and kill it at its *number*th *call*, if it gets so far; return whether it was killed."""
    calls = f"/^{call}(at2?)?$"
    tracer = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}")
    argv = (*tracer, "-e", f"inject={calls}:signal=KILL:when={number}", str(PROGRAM))
    # writing byte code would be counted too
    process = xapi.start(*args, env={"PYTHONDONTWRITEBYTECODE": "1", **env}, argv=argv)
    process.communicate()
    return process.returncode != 0


def _kill_at_each(run: Callable[[int], bool], check: Callable[[], object]) -> int:
    """Kill at the first call, the second and so on, until the program ends normally, and *check* each time."""
    for number in range(1, MOST):
        was_killed = run(number)
        check()
        if not was_killed:
            return number - 1
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("call", ["rename", "fsync", "flock"])
def test_a_login_leaves_the_old_token_or_the_new_one(xapi: Xapi, sandbox: Sandbox, call: str) -> None:
    assert xapi(*LOGIN, env=sandbox.settings).code == 0

    def check() -> None:
        assert xapi("token", "show", "--no-login").code == 0  # the profile exists as well

    assert _kill_at_each(lambda number: _killed_at(xapi, call, number, LOGIN, sandbox.settings), check) > 0
    assert xapi(*LOGIN, env=sandbox.settings).code == 0
    assert xapi("logout").code == 0
    assert list((xapi.state / "tokens").iterdir()) == []


@pytest.mark.parametrize("call", ["rename", "flock", "unlink"])
def test_a_logout_leaves_the_token_or_none_and_the_next_one_leaves_none(
    xapi: Xapi, sandbox: Sandbox, call: str
) -> None:
    def run(number: int) -> bool:
        assert xapi(*LOGIN, env=sandbox.settings).code == 0
        return _killed_at(xapi, call, number, ("logout",), sandbox.settings)

    def check() -> None:
        assert xapi("token", "show", "--no-login", env=sandbox.settings).code in {0, 10}
        assert xapi("logout", env=sandbox.settings).code == 0
        assert xapi("token", "show", "--no-login", env=sandbox.settings).code == 10

    _kill_at_each(run, check)
    assert xapi(*LOGIN, env=sandbox.settings).code == 0


def test_a_chunked_token_is_the_old_one_or_the_new_one(xapi: Xapi) -> None:
    numbers = itertools.count(1)

    def grant(peer: Peer) -> None:
        while True:
            peer.read_request()
            body = json.dumps({"access_token": f"{next(numbers)}-" * 900}).encode()
            peer.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    with Server([grant]) as server:
        where = {"XAPI_BASE_URL": server.url, "XAPI_USERNAME": "me", "XAPI_PASSWORD": "x"}
        env = {**where, **xapi.fake_keyring("Windows")}
        assert xapi(*LOGIN, env=env).code == 0
        tokens = []

        def check() -> None:
            outcome = xapi("token", "show", "--no-login", env=env)
            assert outcome.code == 0
            tokens.append(outcome.out.partition("-")[0])
            assert outcome.out == f"{tokens[-1]}-" * 900 + "\n"

        killed = _kill_at_each(lambda number: _killed_at(xapi, "rename", number, LOGIN, env), check)
        assert killed > 6  # this keyring writes each item with a rename
        assert len(set(tokens)) > 1
        assert xapi("logout", env=env).code == 0
    assert (xapi.home / "items.json").read_text() == "[]"


@pytest.mark.parametrize("call", ["rename", "fsync"])
def test_a_kill_while_the_config_is_written_leaves_the_old_file_or_the_new_one(xapi: Xapi, call: str) -> None:
    before = "# mine\n[profiles.default]\ntimeout = 1\n"
    xapi.config.mkdir()
    path = xapi.config / "config.toml"
    seen = set()

    def run(number: int) -> bool:
        path.write_text(before)
        return _killed_at(xapi, call, number, ("profile", "set", "timeout", "2"), {})

    def check() -> None:
        seen.add(path.read_text())
        assert xapi("profile", "show").code == 0

    _kill_at_each(run, check)
    assert seen == {before, before.replace("= 1", "= 2")}

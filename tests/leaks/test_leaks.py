"""Every byte that leaves the program is searched for secrets: they occur only where they are expected."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.leaks.canary import NEW, OLD, PASSWORD, SECRETS
from tests.leaks.scenes import BEHAVIORS, COMMANDS, Command, Scene
from tests.support.combinations import combined
from tests.support.keyring_session import KeyringSession
from tests.support.program import Xapi
from tests.support.servers import Server, hang, request, send
from tests.support.threads import Gate

pytestmark = pytest.mark.slow  # tracers and terminals


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module", autouse=True)
def strace() -> None:
    if not shutil.which("strace"):
        pytest.skip("needs strace")


def _allowed(command: Command) -> set[tuple[str, str]]:
    """Return the places where secrets are allowed in any case."""
    places = {(PASSWORD.name, "token endpoint"), (NEW.name, "file store"), (OLD.name, "file store")}
    for token in (OLD, NEW):
        places.add((token.name, "API"))
        if command.prints:
            places.add((token.name, "stdout"))
        if command.passes_on:
            places.add((token.name, "environment of children"))
    return places


@pytest.mark.parametrize(
    ("name", "behavior"), combined(list(COMMANDS), BEHAVIORS) + combined(list(COMMANDS)[3:], BEHAVIORS)
)
def test_no_secret_leaks_in_any_output(xapi: Xapi, stack: ExitStack, name: str, behavior: str) -> None:
    scene = Scene(xapi, behavior, stack)
    command = COMMANDS[name]

    code = scene.traced(command)

    assert code in {0, 1, 2, 3, 4, 10, 11}
    found, allowed = scene.found(), _allowed(command)
    if behavior == "repeats":  # a response of the API is delivered unchanged
        allowed |= {(token.name, place) for token in (OLD, NEW) for place in ("stdout", "file meta", "file journal")}
    assert found <= allowed, (found - allowed, scene.captured)
    assert b"Traceback" not in scene.captured["stderr"]


@pytest.mark.parametrize(
    "name, places",
    [
        ("login", {("password", "token endpoint"), ("new token", "file store")}),
        ("login --password-command", {("password", "token endpoint"), ("new token", "file store")}),
        ("token show", {("password", "token endpoint"), ("new token", "file store"), ("new token", "stdout")}),
        ("request", {("old token", "file store"), ("old token", "API")}),
        ("exec", {("old token", "file store"), ("old token", "environment of children")}),
        ("logout", set()),
    ],
)
def test_the_search_finds_secrets_where_they_are_expected(
    xapi: Xapi, stack: ExitStack, name: str, places: set[tuple[str, str]]
) -> None:
    scene = Scene(xapi, "works", stack)

    assert scene.traced(COMMANDS[name]) == 0
    assert scene.found() == places


# a user at a terminal


@pytest.mark.parametrize(
    ("args", "behavior"),
    combined([(("login",),), (("request", "-v", "/x"),), (("token", "status"),), (("doctor",),)], BEHAVIORS),
)
def test_no_secret_is_shown_on_a_terminal(xapi: Xapi, stack: ExitStack, args: tuple[str, ...], behavior: str) -> None:
    scene = Scene(xapi, behavior, stack)
    if args != ("login",):
        scene.store()
    with xapi.on_terminal(*args, env=scene.env) as terminal:
        asking = {
            "login": set(BEHAVIORS) - {"disconnects"},
            "request": {"revokes the token", "rejects", "sends garbage"},
        }
        if behavior in asking.get(args[0], ()):  # without a response, there is no prompt
            if (args[0], behavior) == ("login", "redirects"):
                terminal.expect("[y/N]")
                terminal.type("y\n")
            for _ in range(3 if behavior == "rejects" else 1):
                terminal.expect("Password")
                terminal.type(PASSWORD.text + "\n")
        terminal.wait()
        scene.captured["screen"] = terminal.seen

    assert scene.found() <= _allowed(Command(args))


@pytest.mark.parametrize(("phase", "verbose"), combined(["prompt", "login", "head", "body"], [((),), (("-v",),)]))
def test_ctrl_c_reveals_no_secret(xapi: Xapi, stack: ExitStack, phase: str, verbose: tuple[str, ...]) -> None:
    gate = Gate()
    scene = Scene(xapi, "works", stack)
    begun = [send(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nbegun")] if phase == "body" else []
    is_login = phase in {"prompt", "login"}
    stuck = stack.enter_context(Server([request(), *begun, gate.reached, hang()]))
    env = {**scene.env, "XAPI_BASE_URL": stuck.url}
    if not is_login:
        env["XAPI_TOKEN"] = NEW.text
    with xapi.on_terminal("request", *verbose, "/x", env=env) as terminal:
        if is_login:
            terminal.expect("Password")
            terminal.type(PASSWORD.text)
        if phase == "login":
            terminal.type("\n")
        if phase != "prompt":
            gate.wait()
        terminal.interrupt()
        assert terminal.wait() == 130
        scene.captured["screen"] = terminal.seen

    assert scene.found() == set()
    assert b"Traceback" not in terminal.seen


@pytest.mark.parametrize("debug", ["", "1"])
def test_a_traceback_contains_no_secret_of_the_error(xapi: Xapi, stack: ExitStack, debug: str) -> None:
    trap = xapi.home / "trap"
    trap.mkdir()
    (trap / "tomlkit.py").write_text(
        "secret = open('/proc/self/environ').read()\n\nraise RuntimeError(f'{secret} and {locals()}')\n"
    )
    scene = Scene(xapi, "works", stack)
    env = {**scene.env, "XAPI_PASSWORD": PASSWORD.text, "XAPI_DEBUG": debug, "PYTHONPATH": str(trap)}

    outcome = xapi("login", env=env)
    scene.captured["stdout"], scene.captured["stderr"] = outcome.body, outcome.err.encode()

    assert PASSWORD.encodings((trap / "tomlkit.py").read_bytes()) == []
    assert outcome.code == 1
    assert "tomlkit.py" in outcome.err
    assert ("line 3" in outcome.err) == bool(debug)
    assert scene.found() <= _allowed(Command(("login",)))


def test_secrets_are_stored_in_the_keyring_and_in_no_file(
    xapi: Xapi, stack: ExitStack, shared_gnome_keyring: KeyringSession
) -> None:
    scene = Scene(xapi, "works", stack)
    scene.env |= {**shared_gnome_keyring.environ, "XAPI_STORAGE": "keyring"}

    assert scene.traced(Command(("login", "--remember"), stored=False)) == 0
    assert scene.found() == {(PASSWORD.name, "token endpoint")}
    assert scene.traced(Command(("token", "show"), stored=False)) == 0
    assert NEW.encodings(scene.captured["stdout"])
    assert not any(secret.core in label for secret in SECRETS for label in shared_gnome_keyring.labels())


@pytest.mark.parametrize("kind", ["http", "https"])
def test_a_proxy_receives_only_the_secrets_that_it_needs(xapi: Xapi, stack: ExitStack, kind: str) -> None:
    scene = Scene(xapi, "works", stack)
    proxy = stack.enter_context(Server([request(), send(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n")]))
    env = {**scene.env, "XAPI_BASE_URL": f"{kind}://api.test", "XAPI_TOKEN": NEW.text, "ALL_PROXY": proxy.url}

    outcome = xapi("request", "-v", "/x", env={**env, "XAPI_PASSWORD": PASSWORD.text})
    scene.captured |= {"stdout": outcome.body, "stderr": outcome.err.encode(), "proxy": b"".join(proxy.received)}

    assert scene.found() == ({(NEW.name, "proxy")} if kind == "http" else set())
    assert os.listdir(xapi.temporary) == []

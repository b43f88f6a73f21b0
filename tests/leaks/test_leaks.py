"""Every byte that leaves the program is searched for secrets: they occur only where they are expected."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.leaks.canary import NEW, OLD, PASSWORD, SECRETS, Canary
from tests.leaks.scenes import BEHAVIORS, COMMANDS, SEND_NOTHING, Command, Scene
from tests.support.keyring_session import KeyringSession
from tests.support.program import PROGRAM, Xapi
from tests.support.servers import Server, hang, head, request, send
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
    "name, behavior",
    [(name, behavior) for name in COMMANDS for behavior in (BEHAVIORS[:1] if name in SEND_NOTHING else BEHAVIORS)],
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


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.name)
def test_a_canary_is_found_in_every_encoding(secret: Canary) -> None:
    import base64
    import json

    text = secret.text.encode()
    encoded = [base64.b64encode(b"x" * shift + text + b"y" * end) for shift in range(3) for end in range(3)]
    encoded += [json.dumps({"a": secret.text}).encode(), text.hex().encode(), repr(text).encode(), text[::-1]]

    assert all(secret.encodings(data) for data in [*encoded, *secret.forms().values()])
    assert not secret.encodings(b"nothing of it" * 999)


# a user at a terminal


@pytest.mark.parametrize("behavior", BEHAVIORS)
@pytest.mark.parametrize("args", [("login",), ("request", "-v", "/x"), ("token", "status"), ("doctor",)])
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


@pytest.mark.parametrize("phase", ["prompt", "login", "head", "body"])
@pytest.mark.parametrize("verbose", [(), ("-v",)])
def test_ctrl_c_reveals_no_secret(xapi: Xapi, stack: ExitStack, phase: str, verbose: tuple[str, ...]) -> None:
    gate = Gate()
    scene = Scene(xapi, "works", stack)
    begun = [send(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nbegun")] if phase == "body" else []
    is_login = phase in {"prompt", "login"}
    probed = [[request(), send(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")]] if is_login else []
    stuck = stack.enter_context(Server(*probed, [request(), *begun, gate.reached, hang()]))
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGABRT, signal.SIGKILL])
def test_a_fatal_signal_leaves_no_secret_on_disk(xapi: Xapi, stack: ExitStack, number: signal.Signals) -> None:
    gate = Gate()
    scene = Scene(xapi, "works", stack)
    stuck = stack.enter_context(Server([head(), gate.reached, hang()]))
    env = {**scene.env, "XAPI_BASE_URL": stuck.url, "XAPI_TOKEN": NEW.text, "PYTHONFAULTHANDLER": "1"}
    shell = ("bash", "-c", 'ulimit -S -c unlimited 2>/dev/null; exec "$@"', "bash", str(PROGRAM))
    process = xapi.start("request", "-v", "/x", "-d", "@-", "-o", "out", stdin=subprocess.PIPE, env=env, argv=shell)
    assert process.stdin
    process.stdin.write(b"x" * 6_000_000)  # exceeds the memory limit: there is a temporary file
    process.stdin.close()
    process.stdin = None
    gate.wait()
    process.send_signal(number)
    scene.captured["stdout"], scene.captured["stderr"] = process.communicate(timeout=20)

    assert scene.found() == set()


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
    assert scene.found() == set()


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

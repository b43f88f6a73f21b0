"""Keyrings that are broken, slow, locked or of another package."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.support.keyring_session import KeyringSession
from tests.support.program import Outcome, Xapi
from tests.support.stores import ME, Env
from xapi_cli.features.sandbox import MASTER, Sandbox

REMEDY = "`xapi login --storage file`"
BROKEN = ["Unresponsive", "Raising KeyringLocked", "nobody's"]  # test_keyring.py of the store has their messages


def _keyring(xapi: Xapi, broken: str) -> Env:
    """Return the environment in which the keyring is one of BROKEN."""
    if broken == "nobody's":  # without a session bus there is no service
        return {"XAPI_STORAGE": "keyring"}
    backend, _, error = broken.partition(" ")
    return {**xapi.fake_keyring(backend), "FAKE_KEYRING_RAISES": error or None}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_keyring_exits_with_13_in_time_and_auto_falls_back_to_memory(
    xapi: Xapi, sandbox: Sandbox, broken: str
) -> None:
    env: Env = _keyring(xapi, broken)
    commands = [(("token", "show"), "keyring"), (("login",), "keyring"), (("logout",), "keyring")]
    commands += [(("login",), "auto"), (ME, "auto")]

    def run(number: int) -> Outcome:
        args, storage = commands[number]
        state = str(xapi.home / f"state{number}")  # separate state, so that none waits for another
        settings = sandbox.settings if args == ME else untouched.settings
        return xapi(*args, env={**env, **settings, "XAPI_STORAGE": storage, "XAPI_STATE_DIR": state})

    with Sandbox() as untouched, ThreadPoolExecutor(len(commands)) as pool:
        *explicit, login, outcome = pool.map(run, range(len(commands)))

    for each, (args, _) in zip(explicit, commands, strict=False):
        assert (each.code, each.out, each.err.count("\n")) == (13, "", 1)
        assert ("log out" if args == ("logout",) else REMEDY) in each.err.partition("; ")[2]
        assert "CANARY" not in each.err
    assert (login.code, REMEDY in login.err) == (13, True)
    assert not xapi.config.exists()
    assert (outcome.code, json.loads(outcome.out)["email"]) == (0, MASTER.email)
    assert (untouched.requests, untouched.login_attempts) == (0, 0)  # login probed the store before it sent anything
    warning, note = outcome.err.splitlines()
    assert warning.startswith("xapi: warning: ")
    assert "the token is not stored" in warning
    assert REMEDY in warning
    assert note.startswith("xapi: logged in as ")
    assert ": no stored token" in note


@pytest.mark.parametrize(
    ("storage", "backend"), [("keyring", "NotPersistent"), ("auto", "keyring.backends.null.Keyring")]
)
def test_a_keyring_that_stores_nothing_fails_login_with_13_and_causes_a_warning_in_other_commands(
    xapi: Xapi, sandbox: Sandbox, storage: str, backend: str
) -> None:
    env: Env = {**sandbox.settings, **xapi.fake_keyring(backend), "XAPI_STORAGE": storage}

    login = xapi("login", env=env)
    assert (login.code, login.out, sandbox.login_attempts) == (13, "", 0)
    assert login.err.startswith("xapi: error: the keyring accepts records but does not store them; ")
    outcome = xapi(*ME, env=env)
    assert (outcome.code, json.loads(outcome.out)["email"]) == (0, MASTER.email)
    assert "xapi: warning: the new token could not be stored: the keyring accepts records but" in outcome.err
    assert xapi("logout", env=env).code == 0


# the user is present to unlock it


@pytest.mark.slow
def test_on_a_terminal_a_note_precedes_the_wait_for_a_keyring(xapi: Xapi, gnome_keyring: KeyringSession) -> None:
    args = ("token", "show", "--no-login", "--base-url", "api.test", "-u", "me")
    env: Env = {**gnome_keyring.environ, "XAPI_STORAGE": "keyring"}
    assert xapi(*args, env=env).code == 10  # the keyring responds: it holds no token
    gnome_keyring.freeze()
    with xapi.on_terminal(*args, env=env) as terminal:
        terminal.expect("xapi: warning: waiting for the keyring; it may be waiting for you to unlock it")
        assert not terminal.sees_output_within(4)
        gnome_keyring.thaw()
        assert terminal.wait() == 10
    gnome_keyring.freeze()
    with xapi.on_terminal(*args, env=env) as terminal:
        terminal.expect("waiting for the keyring")
        terminal.interrupt()
        assert terminal.wait() == 130
    gnome_keyring.thaw()


def test_with_no_input_the_wait_for_a_keyring_is_as_short_as_in_a_script(xapi: Xapi) -> None:
    args = ("token", "show", "--no-input", "--base-url", "api.test", "-u", "me")
    with xapi.on_terminal(*args, env=xapi.fake_keyring("Unresponsive")) as terminal:
        assert terminal.wait() == 13
    assert b"waiting" not in terminal.seen


# a package with a plaintext backend


@pytest.fixture
def plain_files(tmp_path: Path) -> str:
    """A directory for PYTHONPATH that contains only the package keyrings.alt."""
    found = distribution("keyrings.alt")
    directory = tmp_path / "site-packages"
    directory.mkdir()
    for name in {Path(str(file)).parts[0] for file in found.files or ()}:
        if name != "..":
            shutil.copytree(str(found.locate_file(name)), directory / name)
    return str(directory)


def test_a_plaintext_backend_is_not_used(xapi: Xapi, sandbox: Sandbox, plain_files: str) -> None:
    env: Env = {**sandbox.settings, "PYTHONPATH": plain_files}

    for args, storage, code in ((ME, "auto", 0), (("login",), "keyring", 13)):
        outcome = xapi(*args, env={**env, "XAPI_STORAGE": storage})
        assert (outcome.code, "no usable keyring on this machine" in outcome.err) == (code, True)
    assert list(xapi.home.rglob("*python_keyring*")) == []


@pytest.mark.parametrize("named", ["in the environment", pytest.param("in a file", marks=pytest.mark.slow)])
def test_a_plaintext_backend_is_used_if_it_is_named(xapi: Xapi, sandbox: Sandbox, plain_files: str, named: str) -> None:
    env: Env = {**sandbox.settings, "PYTHONPATH": plain_files, "XAPI_STORAGE": "keyring"}
    backend = "keyrings.alt.file.PlaintextKeyring"
    if named == "in a file":
        config = xapi.home / ".config/python_keyring/keyringrc.cfg"
        config.parent.mkdir(parents=True)
        config.write_text(f"[backend]\ndefault-keyring={backend}\n")
    else:
        env["PYTHON_KEYRING_BACKEND"] = backend

    assert xapi("login", env=env).code == 0
    assert xapi(*ME, "--no-login", env=env).code == 0

"""A storage is one module and one row: every command, help text and check takes its name and properties from there."""

import json
from pathlib import Path

import pytest

from tests.support.program import PYTHON, Environ, Outcome, Xapi, how_to_add
from xapi_cli.features.sandbox import MASTER, Sandbox
from xapi_cli.store import registry

TOY = Path(__file__).with_name("toy.py")


@pytest.fixture
def env(xapi: Xapi, sandbox: Sandbox) -> Environ:
    return {**sandbox.settings, "XAPI_STORAGE": "toy", "TOY_FILE": str(xapi.home / "toy.json")}


def run(xapi: Xapi, *args: str, env: Environ) -> Outcome:
    """Run the program with the rows of `toy` in a new interpreter."""
    process = xapi.start(str(TOY), *args, argv=(str(PYTHON),), env=env)
    out, err = process.communicate()
    return Outcome(process.returncode, out.decode(), err.decode())


def test_names_lists_auto_and_each_storage() -> None:
    names = [storage.name for storage in registry.STORES]

    assert set(names) >= {"keyring", "file", "none"}
    assert registry.names() == ["auto", *names]
    assert registry.alternatives() == f"auto, {', '.join(names[:-1])} or {names[-1]}"


def test_auto_tries_the_keyring_and_falls_back_to_memory() -> None:
    assert (registry.selected("auto").name, registry.NONE.name) == ("keyring", "none")


def test_a_storage_with_one_row_stores_a_token_shows_it_and_deletes_it(
    xapi: Xapi, sandbox: Sandbox, env: Environ
) -> None:
    login = run(xapi, "login", "--remember", env=env)
    assert (login.code, "token and password stored in the toy file" in login.err) == (0, True)

    shown = run(xapi, "token", "show", "--json", "--no-login", env={**env, "XAPI_PASSWORD": None})
    assert (json.loads(shown.out)["storage"], json.loads(shown.out)["source"]) == ("toy", "store")
    assert sandbox.login_attempts == 1

    logout = run(xapi, "logout", "--all", env=env)
    assert logout.err == f"xapi: logged out of {MASTER.email} at {sandbox.base_url}\n"
    assert json.loads((xapi.home / "toy.json").read_text()) == {}


def test_help_and_errors_name_every_storage(xapi: Xapi, env: Environ) -> None:
    refused = run(xapi, "token", "show", env={**env, "XAPI_STORAGE": "paper"})
    assert (refused.code, f"{', '.join(registry.names())}, toy or missing" in refused.err) == (2, True)


def test_a_storage_whose_packages_are_not_installed_names_the_extra(xapi: Xapi, env: Environ) -> None:
    refused = run(xapi, "login", env={**env, "XAPI_STORAGE": "missing"})

    assert refused.code == 2
    assert refused.err == (
        f"xapi: error: storage missing needs packages that are not installed; {how_to_add('missing')}\n"
    )

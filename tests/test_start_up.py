"""Every call pays for what is imported, so what each command loads is a promise; `make bench` tells what it costs."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.keyring_session import KeyringSession
from tests.program import PYTHON, Environ, Xapi
from xapi_cli.sandbox import MASTER, Sandbox

NEVER = {"anyio", "asyncio", "certifi", "click", "ctypes", "httpcore", "pydantic", "pygments", "rich"}
NETWORK = {"email", "h11", "httpx", "idna", "socket", "ssl", "truststore", "urllib.request"}
KEYRING = {"jeepney", "keyring", "secretstorage"}
UNUSED = {"filelock", "tomlkit", "truststore"}  # by a request over http that needs no login
WRITING = {"filelock", "logging", "tempfile", "tomlkit"}


@pytest.fixture
def logged_in(xapi: Xapi, sandbox: Sandbox) -> Xapi:
    password = {"XAPI_PASSWORD": MASTER.password}
    done = xapi("login", "--base-url", sandbox.base_url, "--username", MASTER.email, env=password)
    assert done.code == 0, done
    return xapi


def loaded(xapi: Xapi, *words: str, env: Environ | None = None) -> set[str]:
    """Return the modules that the program loads for *words*, which must succeed."""
    ended = xapi(*words, env={**(env or {}), "PYTHONPROFILEIMPORTTIME": "1"})
    assert ended.code == 0, ended
    modules = set(re.findall(r"^import time: .*\| +(\S+)$", ended.err, re.MULTILINE))
    assert "typer" in modules  # it was watched
    return modules


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["request", "--help"], []])
def test_help_and_version_load_neither_network_nor_store(xapi: Xapi, words: list[str]) -> None:
    assert loaded(xapi, *words) & (NEVER | NETWORK | KEYRING | WRITING | {"hashlib", "tomllib"}) == set()


def test_showing_a_good_token_loads_no_network(logged_in: Xapi) -> None:
    assert loaded(logged_in, "token", "show") & (NEVER | NETWORK | KEYRING | WRITING) == set()


def test_a_request_loads_no_keyring_no_lock_and_for_http_no_trust_store(logged_in: Xapi) -> None:
    assert loaded(logged_in, "request", "/x-api/me") & (NEVER | KEYRING | UNUSED) == set()


@pytest.mark.parametrize("storage", ["auto", "keyring", "file", "none"])
def test_a_ready_made_token_needs_no_store(logged_in: Xapi, sandbox: Sandbox, storage: str) -> None:
    token = logged_in("token", "show").out.strip()
    env = {"XAPI_TOKEN": token, "XAPI_STORAGE": storage}

    modules = loaded(logged_in, "request", "/x-api/me", env=env)

    assert modules & (NEVER | KEYRING | UNUSED) == set()
    stores = {f"xapi_cli.store.{name}" for name in ("file", "memory", "keyring")}
    assert modules & stores == set()


def test_the_remembered_keyring_is_loaded_without_looking_for_others(
    xapi: Xapi, sandbox: Sandbox, gnome_keyring: KeyringSession
) -> None:
    env = {**gnome_keyring.environ, "XAPI_STORAGE": "keyring", "XAPI_BASE_URL": sandbox.base_url}
    env["XAPI_USERNAME"] = MASTER.email
    assert xapi("login", env=env | {"XAPI_PASSWORD": MASTER.password}).code == 0

    modules = loaded(xapi, "token", "show", env=env)

    others = {name for name in modules if re.match(r"keyring\.backends\.(?!SecretService|_)\w", name)}
    assert others <= {"keyring.backends.fail"}  # which keyring's own core imports
    assert modules & (NEVER | NETWORK - {"socket", "email"} | {"tomlkit"}) == set()


def test_the_package_itself_costs_nothing_to_import(xapi: Xapi, tmp_path: Path) -> None:

    code = "import sys; before = set(sys.modules); import xapi_cli; print(*sorted(set(sys.modules) - before))"
    ended = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, timeout=30, check=True, cwd=tmp_path)
    assert ended.stdout.split() == ["xapi_cli"]

"""Startup time depends on imports, so the modules that each command loads are tested (see also `make bench`)."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.keyring_session import KeyringSession
from tests.support.program import PYTHON, Environ, Xapi
from xapi_cli.features.sandbox import MASTER, Sandbox

NEVER = {"anyio", "asyncio", "certifi", "click", "ctypes", "http.client", "http.cookiejar", "httpcore", "httpx"} | {
    "pydantic", "pygments", "rich", "urllib.request"
}  # fmt: skip  # httpx is only for logins and the library: it would take a quarter of the time of a request
NETWORK = {"email", "h11", "httpx", "idna", "socket", "ssl", "truststore", "urllib.request"}
KEYRING = {"jeepney", "keyring", "secretstorage"}
UNUSED = {"email", "tomlkit", "truststore"}  # by a request over http that needs no login
WRITING = {"logging", "tempfile", "tomlkit"}


@pytest.fixture
def logged_in(xapi: Xapi, sandbox: Sandbox) -> Xapi:
    password = {"XAPI_PASSWORD": MASTER.password}
    done = xapi("login", "--base-url", sandbox.base_url, "--username", MASTER.email, env=password)
    assert done.code == 0, done
    return xapi


def loaded(xapi: Xapi, *args: str, env: Environ | None = None) -> set[str]:
    """Run the program with *args*, which must succeed; return the modules that it loads."""
    ended = xapi(*args, env={**(env or {}), "PYTHONPROFILEIMPORTTIME": "1"})
    assert ended.code == 0, ended
    modules = set(re.findall(r"^import time: .*\| +(\S+)$", ended.err, re.MULTILINE))
    assert "typer" in modules  # the trace is complete
    return modules


def own(modules: set[str]) -> int:
    """Return how many of *modules* are those of this package."""
    return sum(name.partition(".")[0] == "xapi_cli" for name in modules)


@pytest.mark.parametrize("args", [["--version"], ["--help"], ["request", "--help"], []])
def test_help_and_version_load_few_modules_and_neither_network_nor_store(xapi: Xapi, args: list[str]) -> None:
    modules = loaded(xapi, *args)

    assert modules & (NEVER | NETWORK | KEYRING | WRITING | {"hashlib", "tomllib"}) == set()
    assert own(modules) <= 25 or args[:1] == ["request"]  # which imports what its options need


def test_a_valid_token_needs_few_modules_and_neither_network_nor_login(logged_in: Xapi) -> None:
    shown, sent = loaded(logged_in, "token", "show"), loaded(logged_in, "request", "/x-api/me")

    assert shown & (NEVER | NETWORK | KEYRING | WRITING) == set()
    assert sent & (NEVER | KEYRING | UNUSED) == set()
    assert (own(shown) <= 41, own(sent) <= 60) == (True, True)
    assert (shown | sent) & {"xapi_cli.auth.grant", "xapi_cli.store.login_session"} == set()


def test_a_token_from_the_environment_needs_no_store(logged_in: Xapi) -> None:
    env = {"XAPI_TOKEN": logged_in("token", "show").out.strip(), "XAPI_STORAGE": "auto"}

    modules = loaded(logged_in, "request", "/x-api/me", env=env)

    stores = {f"xapi_cli.store.{name}" for name in ("file", "memory", "keyring")}
    assert modules & (NEVER | KEYRING | UNUSED | stores) == set()


def test_the_remembered_keyring_backend_is_loaded_alone(
    xapi: Xapi, sandbox: Sandbox, gnome_keyring: KeyringSession
) -> None:
    env = {**gnome_keyring.environ, "XAPI_STORAGE": "keyring", "XAPI_BASE_URL": sandbox.base_url}
    env["XAPI_USERNAME"] = MASTER.email
    assert xapi("login", env=env | {"XAPI_PASSWORD": MASTER.password}).code == 0

    modules = loaded(xapi, "token", "show", env=env)

    others = {name for name in modules if re.match(r"keyring\.backends\.(?!SecretService|_)\w", name)}
    assert others <= {"keyring.backends.fail"}  # imported by keyring.core


def test_importing_the_package_loads_nothing_else(xapi: Xapi, tmp_path: Path) -> None:

    code = "import sys; before = set(sys.modules); import xapi_cli; print(*sorted(set(sys.modules) - before))"
    ended = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, timeout=30, check=True, cwd=tmp_path)
    assert ended.stdout.split() == ["xapi_cli"]

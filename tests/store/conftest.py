"""Stores to test, and processes in which they are tested."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.forks import KEYRINGS
from tests.support.keyring_session import KeyringSession
from tests.support.program import PYTHON, Process, Xapi
from xapi_cli.hints import text
from xapi_cli.store import registry
from xapi_cli.store.protocol import Store, StoreOptions
from xapi_cli.system.files import StateDirectory

Open = Callable[..., Store]
Run = Callable[..., Process]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def notes() -> list[str]:
    """The messages of the stores to the user."""
    return []


@pytest.fixture
def opened(
    state: Path, tmp_path: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Open:
    """Open a store in this process: `opened("file")`, or `opened("Windows")` for one of the fake keyrings."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.delenv("PYTHON_KEYRING_BACKEND", raising=False)
    monkeypatch.setenv("FAKE_KEYRING", str(tmp_path / "items.json"))
    monkeypatch.syspath_prepend(KEYRINGS)
    runtime_directory = tmp_path / "run"
    runtime_directory.mkdir(0o700, exist_ok=True)

    def open_one(kind: str, **options: Any) -> Store:
        environ: dict[str, str] = {**os.environ, "XDG_RUNTIME_DIR": str(runtime_directory)}
        if kind not in registry.names():
            environ["PYTHON_KEYRING_BACKEND"] = f"fake_keyrings.{kind}"
        storage = registry.selected(kind if kind in registry.names() else "keyring")
        if kind == "redis" and "settings" not in options:
            url = request.getfixturevalue("shared_redis").url
            options["settings"] = {"redis_url": url, "redis_prefix": "test"}
        if kind == "helper" and "settings" not in options:
            options["settings"] = {"credential_helper": str(request.getfixturevalue("fake_helper").path)}
            options.setdefault("timeout", 20.0)  # of the whole operation: a long token takes many processes
        return registry.open_store(
            storage, StoreOptions(StateDirectory(state), environ, lambda hint: notes.append(text(hint)), **options)
        )

    return open_one


@pytest.fixture
def gnome(shared_gnome_keyring: KeyringSession, opened: Open, monkeypatch: pytest.MonkeyPatch) -> KeyringSession:
    """The real keyring, empty, for stores that `opened` opens in this process."""
    for name, value in shared_gnome_keyring.environ.items():
        monkeypatch.setenv(name, value)
    return shared_gnome_keyring


_PREAMBLE = """
import os, sys, time
from datetime import UTC, datetime
from pathlib import Path
from xapi_cli.errors import StoreError
from xapi_cli.store import registry
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.tokens import Identity, Record, Token
from xapi_cli.system.files import StateDirectory
OUT = os.dup(1)  # while a keyring is accessed, the standard one leads nowhere
ME = Identity("https://api.test", "me@example.com")
def store(name="keyring", **options):
    say = lambda text: os.write(OUT, f"note: {text}".encode() + bytes([10]))
    no_lock = lambda error: say(f"no lock: {error}")
    options = StoreOptions(StateDirectory(Path(os.environ["STATE"])), os.environ, say, no_lock, **options)
    return registry.open_store(registry.selected(name), options)
def failing(function):
    start = time.monotonic()
    try:
        return function()
    except StoreError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        print(round(time.monotonic() - start, 1), file=sys.stderr, flush=True)
"""


@pytest.fixture
def run(state: Path, tmp_path: Path, xapi: Xapi) -> Run:
    """Start Python code in a separate process; `store()`, `failing()` and ME are there."""

    def start(code: str, env: Mapping[str, str] | None = None, prefix: tuple[str, ...] = ()) -> Process:
        environ: dict[str, str | None] = {
            "HOME": str(tmp_path),
            "STATE": str(state),
            "FAKE_KEYRING": str(tmp_path / "items.json"),
            "PYTHONPATH": KEYRINGS,
            **(env or {}),
        }
        if prefix:
            return xapi.start(argv=(*prefix, str(PYTHON), "-c", _PREAMBLE + code), env=environ, cwd=tmp_path)
        return xapi.start(code=_PREAMBLE + code, env=environ, cwd=tmp_path)

    return start

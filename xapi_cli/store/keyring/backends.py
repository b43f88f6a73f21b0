"""Select the backend of the `keyring` library: the one that the user named, else the remembered one, else the best.

The search imports every installed backend and asks the services of the desktop, which takes as long as all the rest of
a command; its result is therefore stored in the state directory, with what it depends on.
"""

import importlib
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from xapi_cli.hints import Run
from xapi_cli.store.protocol import NoBackend
from xapi_cli.system.files import StateDirectory, Unsafe, check_safe
from xapi_cli.tokens import sha256

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

REMEDY = ("run ", Run("login", "storage", "file"), " to store the token in a file")
_SESSION = ("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_CURRENT_DESKTOP", "XDG_RUNTIME_DIR")
_MAX_FILE = 1000  # bytes


class Backends:
    """Select a backend; the result of a search is stored in the directory *state*."""

    def __init__(self, state: StateDirectory, environ: Mapping[str, str]) -> None:
        self._file = state.file("keyring-backend")
        self._environ = environ
        self.was_remembered = False

    def known(self) -> "KeyringBackend | None":
        """Return the backend if it is known without asking a service: named by the user, or remembered."""
        from importlib.metadata import entry_points

        from keyring.core import load_config

        logging.getLogger("keyring").addHandler(logging.NullHandler())  # otherwise, it prints tracebacks of plug-ins
        if name := self._environ.get("PYTHON_KEYRING_BACKEND"):
            backend = _load(name)
            return None if _is_chain(backend) else _usable(backend, named=True)
        _check_configuration()
        if (configured := load_config()) is not None:
            return None if _is_chain(configured) else _usable(configured, named=True)
        with suppress(Exception):  # it was removed since; another one is then searched for
            fingerprint, name = (self._file.read(limit=_MAX_FILE) or b"").decode().split()
            if fingerprint == self._fingerprint():
                backend = _usable(_load(name), named=False)
                self.was_remembered = True
                return backend
        for plugin in entry_points(group="keyring.backends"):  # imports take long on a busy machine
            with suppress(Exception):  # keyring ignores it too
                plugin.load()
        return None

    def found(self) -> "KeyringBackend":
        """Return the best backend, and remember it."""
        from keyring.backend import get_all_keyring

        self.was_remembered = False
        backend = _best_of(get_all_keyring())
        with suppress(OSError):  # without it, only the next search takes longer
            self._file.replace(f"{self._fingerprint()} {name_of(backend)}".encode(), sync=False)
        return backend

    def _fingerprint(self) -> str:
        """Return a digest of what the search depends on: this Python, its packages, the desktop session."""
        facts = [sys.version, sys.prefix, *(f"{name}={self._environ.get(name)}" for name in _SESSION)]
        for directory in sys.path:
            if directory.endswith("-packages"):
                with suppress(OSError):  # the time changes when a package is installed or removed
                    facts.append(f"{directory}={os.stat(directory).st_mtime_ns}")
        return sha256("\0".join(facts))


def _check_configuration() -> None:
    """Raise NoBackend if another user can write to keyring's configuration, which names code to run."""
    from keyring.util import platform_

    path = Path(platform_.config_root() / "keyringrc.cfg")
    if not path.is_absolute():
        problem = "keyring would read its configuration from the current directory"
        raise NoBackend(problem, hint="set HOME and XDG_CONFIG_HOME to absolute paths", alternative=REMEDY)
    try:
        if path.exists():
            check_safe(path, variable="XDG_CONFIG_HOME")
    except Unsafe as error:
        raise NoBackend(error.message, hint=error.hint, alternative=REMEDY) from error


def _load(name: str) -> "KeyringBackend":
    """Return the backend of the class *name*, without asking its service; raise NoBackend if it cannot be loaded."""
    module, _, class_name = name.rpartition(".")
    try:
        backend: KeyringBackend = getattr(importlib.import_module(module), class_name)()
    except (ImportError, AttributeError, ValueError) as error:
        problem = f"the keyring backend cannot be loaded ({type(error).__name__})"
        raise NoBackend(problem, hint="correct PYTHON_KEYRING_BACKEND", alternative=REMEDY) from None
    return backend


def _best_of(backends: "Iterable[KeyringBackend]") -> "KeyringBackend":
    """Return the usable one of *backends* with the highest priority; raise NoBackend if there is none."""
    ranked: list[tuple[float, KeyringBackend]] = []
    for backend in backends:
        with suppress(Exception):  # a priority asks the service, which may exit at any time
            priority = float(backend.priority)
            if priority > 0 and not _is_chain(backend):
                ranked.append((priority, _usable(backend, named=False)))
    if not ranked:
        raise NoBackend("no usable keyring on this machine", alternative=REMEDY)
    return max(ranked, key=lambda pair: pair[0])[1]


def _usable(backend: "KeyringBackend", *, named: bool) -> "KeyringBackend":
    """Return *backend*; raise NoBackend if it rejects everything or, unless *named*, stores nothing or plain text.

    One that was named and stores nothing is like any other that does not store what it accepts: a write detects it.
    """
    name = name_of(backend)
    if name == "keyring.backends.fail.Keyring" or (name == "keyring.backends.null.Keyring" and not named):
        raise NoBackend(f"the keyring backend {name} stores nothing", alternative=REMEDY)
    if not named and (name.startswith("keyrings.alt.") or "plaintext" in name.lower()):
        raise NoBackend(f"the keyring backend {name} stores secrets in plaintext files", alternative=REMEDY)
    return backend


def _is_chain(backend: "KeyringBackend") -> bool:
    from keyring.backends.chainer import ChainerBackend

    return isinstance(backend, ChainerBackend)


def name_of(backend: "KeyringBackend") -> str:
    """Return the name of the class of *backend*."""
    return f"{type(backend).__module__}.{type(backend).__qualname__}"

"""Select the backend of the `keyring` library: the one that the user named, else the remembered one, else the best.

The search loads every installed backend and queries the desktop's services for each, so its result is stored in the
state directory, with a fingerprint of everything that it depends on. All functions here import keyring and may be
slow: they are called only in threads of `watchdog`.
"""

import importlib
import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from xapi_cli.store.protocol import NoBackend
from xapi_cli.system import files
from xapi_cli.system.files import StateDirectory
from xapi_cli.tokens import sha256

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

REMEDY = "run `xapi login --storage file` to store the token in a file"  # the profile keeps the flag for later commands
_ENVIRONMENT = (
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "KDE_FULL_SESSION",
    "KDE_SESSION_VERSION",
    "PYTHONPATH",
    "WAYLAND_DISPLAY",
    "XDG_CURRENT_DESKTOP",
    "XDG_RUNTIME_DIR",
)
_MAX_REMEMBERED = 8  # a desktop, an ssh session, one or two virtual environments


class NoKeyring(NoBackend):
    """There is no keyring that xapi can use on the machine."""


class Backends:
    """Select a backend; the selection is stored in the directory *state*."""

    def __init__(self, state: StateDirectory, environ: Mapping[str, str]) -> None:
        self._file = state.file("keyring-backend")
        self._environ = environ
        self.was_remembered = False

    def known(self) -> "KeyringBackend | None":
        """Return the backend if it is known without querying a service: named in the environment, or remembered."""
        logging.getLogger("keyring").addHandler(logging.NullHandler())  # without it, tracebacks of plug-ins are printed
        if name := self._environ.get("PYTHON_KEYRING_BACKEND"):
            backend = _load(name)
            return None if _is_chain(backend) else _usable(backend, named=True)
        return None if _configuration().exists() else self._remembered_backend()

    def found(self) -> "KeyringBackend":
        """Return the backend that keyring's configuration names, else the best one, and remember the latter."""
        from keyring.backend import get_all_keyring
        from keyring.core import load_config

        self.was_remembered = False
        _configuration()
        if sys.platform != "darwin":
            # On import, it searches for Apple's libraries with the help of a compiler, which takes half a second.
            sys.modules.setdefault("keyring.backends.macOS.api", None)  # type: ignore[arg-type]  # its import fails
        if (configured := load_config()) is not None:
            return _usable(configured, named=True)
        backend = _best_of(get_all_keyring())
        self._remember(_name(backend))
        return backend

    def _remembered_backend(self) -> "KeyringBackend | None":
        for fingerprint, name in self._lines():
            if fingerprint == self._fingerprint():
                with suppress(Exception):  # it was removed since; another one is then searched for
                    backend = _usable(_load(name), named=False)
                    self.was_remembered = True
                    return backend
        return None

    def _remember(self, name: str) -> None:
        own = self._fingerprint()
        lines = [(own, name), *(line for line in self._lines() if line[0] != own)][:_MAX_REMEMBERED]
        with suppress(OSError):  # without it, only the next search takes longer
            self._file.replace("".join(f"{a} {b}\n" for a, b in lines).encode(), sync=False)

    def _lines(self) -> list[tuple[str, str]]:
        try:
            data = self._file.read(limit=8192) or b""
        except OSError:
            return []
        return re.findall(r"^([0-9a-f]{64}) ([\w.]+)$", data.decode("utf-8", "replace"), re.MULTILINE)

    def _fingerprint(self) -> str:
        """Return a digest of what the search depends on: this Python, its packages, the desktop session."""
        facts = [sys.version, sys.prefix, *(f"{name}={self._environ.get(name)}" for name in _ENVIRONMENT)]
        for directory in sys.path:
            if directory.endswith("-packages"):
                with suppress(OSError):  # the time changes when a package is installed or removed
                    facts.append(f"{directory}={os.stat(directory).st_mtime_ns}")
        return sha256("\0".join(facts))


def _configuration() -> Path:
    """Return the path of keyring's configuration, which names code to run; raise NoKeyring if others may write it.

    That is possible in a program that uses xapi as a library, whose environment xapi must not change. Also raises
    NoKeyring if the path is relative.
    """
    from keyring.util import platform_  # imports all of keyring

    path = Path(platform_.config_root() / "keyringrc.cfg")
    if not path.is_absolute():
        problem = "keyring would read its configuration from the current directory"
        raise NoKeyring(problem, hint="set HOME and XDG_CONFIG_HOME to absolute paths", alternative=REMEDY)
    try:
        if path.exists():
            files.check_safe(path, variable="XDG_CONFIG_HOME")
    except files.Unsafe as error:
        raise NoKeyring(error.message, hint=error.hint, alternative=REMEDY) from error
    return path


def _load(name: str) -> "KeyringBackend":
    """Return the backend of the class *name*, without querying its service; raise NoKeyring if it cannot be loaded."""
    module, _, class_name = name.rpartition(".")
    try:
        backend: KeyringBackend = getattr(importlib.import_module(module), class_name)()
    except (ImportError, AttributeError, ValueError) as error:
        problem = f"the keyring backend cannot be loaded ({type(error).__name__})"
        raise NoKeyring(problem, hint="correct PYTHON_KEYRING_BACKEND", alternative=REMEDY) from None
    return backend


def _best_of(backends: "Iterable[KeyringBackend]") -> "KeyringBackend":
    """Return the usable one of *backends* with the highest priority; raise NoKeyring if there is none."""
    ranked: list[tuple[float, KeyringBackend]] = []
    for backend in backends:
        with suppress(Exception):  # a priority queries the service, which may exit at any time
            priority = float(backend.priority)
            if priority > 0 and not _is_chain(backend):
                ranked.append((priority, _usable(backend, named=False)))
    if not ranked:
        raise NoKeyring("no usable keyring on this machine", alternative=REMEDY)
    return max(ranked, key=lambda pair: pair[0])[1]


def _usable(backend: "KeyringBackend", *, named: bool) -> "KeyringBackend":
    """Return *backend*, or the best part of a chain.

    Raises NoKeyring if it rejects everything or, unless the user *named* it, stores nothing or plain text. One that
    was named and stores nothing is like any other that does not store what it accepts: a write detects it.
    """
    from keyring.backends import fail, null

    if _is_chain(backend):
        return _best_of(backend.backends)  # type: ignore[attr-defined]  # chains have this attribute
    if isinstance(backend, fail.Keyring) or (isinstance(backend, null.Keyring) and not named):
        raise NoKeyring(f"the keyring backend {_name(backend)} stores nothing", alternative=REMEDY)
    if not named and (_name(backend).startswith("keyrings.alt.") or "plaintext" in _name(backend).lower()):
        raise NoKeyring(f"the keyring backend {_name(backend)} stores secrets in plaintext files", alternative=REMEDY)
    return backend


def _is_chain(backend: "KeyringBackend") -> bool:
    from keyring.backends.chainer import ChainerBackend

    return isinstance(backend, ChainerBackend)


def _name(backend: "KeyringBackend") -> str:
    return f"{type(backend).__module__}.{type(backend).__qualname__}"

"""Which backend of the `keyring` library to use: the one a person named, else the one found before, else the best.

Finding it loads every backend that is installed and asks the desktop's services about each, so what was found is
remembered in the state folder, together with all it depended on. Everything here imports keyring and may take its
time: it is called from `patience`'s threads only.
"""

import hashlib
import importlib
import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from xapi_cli.errors import StoreError
from xapi_cli.system import private_files
from xapi_cli.system.safe_paths import ForeignLink, place

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

REMEDY = "use --storage file, or set XAPI_STORAGE=file"
_DEPENDED_ON = (
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "KDE_FULL_SESSION",
    "KDE_SESSION_VERSION",
    "PYTHONPATH",
    "WAYLAND_DISPLAY",
    "XDG_CURRENT_DESKTOP",
    "XDG_RUNTIME_DIR",
)
_REMEMBERED = 8  # a desktop, an ssh session, a virtual environment or two


class NoKeyring(StoreError):
    """Report that this machine has no keyring that xapi can use."""


class Backends:
    """Choose a backend; *state* is where the choice is remembered."""

    def __init__(self, state: Path, environ: Mapping[str, str]) -> None:
        self._file = state / "keyring-backend"
        self._environ = environ
        self.found_before = False

    def without_asking(self) -> "KeyringBackend | None":
        """Return the backend if it is known without asking any service: named in the environment, or found before."""
        logging.getLogger("keyring").addHandler(logging.NullHandler())  # it prints tracebacks of plug-ins otherwise
        if name := self._environ.get("PYTHON_KEYRING_BACKEND"):
            backend = _load(name)
            return None if _is_chain(backend) else _usable(backend, named=True)
        return None if _configuration().exists() else self._found_before()

    def found(self) -> "KeyringBackend":
        """Return the backend that keyring's configuration names, else the best there is, and remember that one."""
        from keyring.backend import get_all_keyring
        from keyring.core import load_config

        self.found_before = False
        _configuration()
        if sys.platform != "darwin":
            # It looks for Apple's libraries with the help of a compiler, for half a second, wherever it is imported.
            sys.modules.setdefault("keyring.backends.macOS.api", None)  # type: ignore[arg-type]  # an import of it fails
        if (configured := load_config()) is not None:
            return _usable(configured, named=True)
        backend = _best(get_all_keyring())
        self._remember(_name(backend))
        return backend

    def _found_before(self) -> "KeyringBackend | None":
        for fingerprint, name in self._lines():
            if fingerprint == self._fingerprint():
                with suppress(Exception):  # it has been removed since; then another will be found
                    backend = _usable(_load(name), named=False)
                    self.found_before = True
                    return backend
        return None

    def _remember(self, name: str) -> None:
        own = self._fingerprint()
        lines = [(own, name), *(line for line in self._lines() if line[0] != own)][:_REMEMBERED]
        with suppress(OSError):  # finding it again only takes longer
            private_files.replace(self._file, "".join(f"{a} {b}\n" for a, b in lines).encode(), sync=False)

    def _lines(self) -> list[tuple[str, str]]:
        try:
            data = private_files.read(self._file, limit=8192) or b""
        except OSError:
            return []
        return re.findall(r"^([0-9a-f]{64}) ([\w.]+)$", data.decode("utf-8", "replace"), re.MULTILINE)

    def _fingerprint(self) -> str:
        """Return a digest of what finding a backend depends on: this Python, its packages, the desktop session."""
        facts = [sys.version, sys.prefix, *(f"{name}={self._environ.get(name)}" for name in _DEPENDED_ON)]
        for folder in sys.path:
            if folder.endswith("-packages"):
                with suppress(OSError):  # the time changes when a package comes or goes
                    facts.append(f"{folder}={os.stat(folder).st_mtime_ns}")
        return hashlib.sha256("\0".join(facts).encode("utf-8", "surrogateescape")).hexdigest()


def _configuration() -> Path:
    """Return the path of keyring's configuration, which names code to run; raise NoKeyring where others may write it.

    That may be so in a program that uses xapi as a library, whose environment is not xapi's to change.
    """
    from keyring.util import platform_  # loads all of keyring

    path = Path(platform_.config_root() / "keyringrc.cfg")
    if not path.is_absolute():
        raise NoKeyring("keyring would read its configuration from the current directory", hint=_RELATIVE_REMEDY)
    try:
        with suppress(FileNotFoundError, NotADirectoryError), place(path, follow=True) as file:
            private_files.refuse_unsafe(file.directory_status(), "directory", path.parent, variable="XDG_CONFIG_HOME")
            private_files.refuse_unsafe(file.status(), "file", path, variable="XDG_CONFIG_HOME")
    except private_files.Unsafe as error:
        raise NoKeyring(error.message, hint=f"{error.hint}, or {REMEDY}") from error
    except ForeignLink as error:
        raise NoKeyring(error.problem, hint=f"remove it, or {REMEDY}") from error
    return path


_RELATIVE_REMEDY = f"set HOME and XDG_CONFIG_HOME to absolute paths, or {REMEDY}"


def _load(name: str) -> "KeyringBackend":
    """Return the backend of the class called *name*, without asking whether its service is there."""
    module, _, class_name = name.rpartition(".")
    try:
        backend: KeyringBackend = getattr(importlib.import_module(module), class_name)()
    except (ImportError, AttributeError, ValueError) as error:
        raise NoKeyring(f"the keyring backend cannot be loaded ({type(error).__name__})", hint=_NAMED_REMEDY) from None
    return backend


_NAMED_REMEDY = f"correct PYTHON_KEYRING_BACKEND, or {REMEDY}"


def _best(backends: "Iterable[KeyringBackend]") -> "KeyringBackend":
    """Return the usable one of *backends* with the highest priority."""
    ranked: list[tuple[float, KeyringBackend]] = []
    for backend in backends:
        with suppress(Exception):  # a priority asks for the service, which can go away any time
            priority = float(backend.priority)
            if priority > 0 and not _is_chain(backend):
                ranked.append((priority, _usable(backend, named=False)))
    if not ranked:
        raise NoKeyring("no usable keyring on this machine", hint=REMEDY)
    return max(ranked, key=lambda pair: pair[0])[1]


def _usable(backend: "KeyringBackend", *, named: bool) -> "KeyringBackend":
    """Return *backend*, or of a chain the best part; raise NoKeyring when it keeps nothing, or plain text unasked."""
    from keyring.backends import fail, null

    if _is_chain(backend):
        return _best(backend.backends)  # type: ignore[attr-defined]  # a chain has them
    if isinstance(backend, (fail.Keyring, null.Keyring)):
        raise NoKeyring(f"the keyring backend {_name(backend)} keeps nothing", hint=REMEDY)
    if not named and (_name(backend).startswith("keyrings.alt.") or "plaintext" in _name(backend).lower()):
        raise NoKeyring(f"the keyring backend {_name(backend)} keeps secrets in plain files", hint=REMEDY)
    return backend


def _is_chain(backend: "KeyringBackend") -> bool:
    from keyring.backends.chainer import ChainerBackend

    return isinstance(backend, ChainerBackend)


def _name(backend: "KeyringBackend") -> str:
    return f"{type(backend).__module__}.{type(backend).__qualname__}"

"""Storage `keyring`: one item per account in the operating system's keyring, which may not respond.

A backend of the `keyring` library raises exceptions of any type. All become StoreError in one place, without their
text, which may contain secrets.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any, TypeVar

from xapi_cli.errors import StoreError
from xapi_cli.hints import Run
from xapi_cli.store import chunked
from xapi_cli.store.access import ExclusiveAccess, Unresponsive, in_time
from xapi_cli.store.chunked import CHUNK_SIZE, HEAD, ItemRejected, NotStored
from xapi_cli.store.keyring.backends import REMEDY, Backends, name_of
from xapi_cli.store.protocol import NoBackend, StoreOptions
from xapi_cli.tokens import Identity, Record, decode_record, encode_record, sha256

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

T = TypeVar("T")

_WAITING = "waiting for the keyring; it may be waiting for you to unlock it"
_BUS = "DBUS_SESSION_BUS_ADDRESS"
_UNDECODABLE = "\N{REPLACEMENT CHARACTER}"  # in place of an item of another program that is not text
_RETRY_DELAYS = (0.05, 0.1, 0.2)  # seconds before each retry
_TRANSIENT = frozenset(  # secret services raise them during startup, or occasionally without cause
    {
        "BrokenPipeError",
        "ConnectionResetError",
        "DBusErrorResponse",
        "InitError",
        "ItemNotFoundException",
        "SecretServiceNotAvailableException",
    }
)
_KEYCHAIN_LOCKED = (-128, -25293, -25308)  # denied by the user, for the program, without interaction (SecBase.h)


def place(options: StoreOptions) -> dict[str, str]:
    """Return the variable that selects a backend, if it is set."""
    named = options.environ.get("PYTHON_KEYRING_BACKEND")
    return {"PYTHON_KEYRING_BACKEND": named} if named else {}


class KeyringStore:
    """Store records, passwords included, in the keyring; each method call accesses it once, under one lock."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        self._access = ExclusiveAccess("keyring", options)
        self._backends = Backends(options.state, options.environ)
        self._backend: KeyringBackend | None = None

    @property
    def backend(self) -> str | None:
        """The class of the backend in use, or None until the first access."""
        return name_of(self._backend) if self._backend else None

    def probe(self) -> None:
        """Write an item, read it back and delete it; raise StoreError on failure.

        The item belongs to the state directory, because only processes that share one wait for each other.
        """
        service = f"xapi: probe {sha256(str(self._options.state.path))[:16]}"

        def probe(backend: "KeyringBackend") -> None:
            items = _Items(backend, service, "probe")
            chunked.write(items, f"{{probe {os.urandom(8).hex()}")
            items.delete(HEAD)

        self._access_keyring("writing to the keyring", probe)

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none or it is not usable."""
        text = self._access_keyring("reading the keyring", lambda backend: chunked.read(_items_of(backend, identity)))
        return decode_record(identity, text)

    def write(self, identity: Identity, record: Record) -> None:
        """Store *record* and read it back; the previous one is kept until the new one is complete."""
        text = encode_record(identity, record)
        self._access_keyring(
            "writing to the keyring", lambda backend: chunked.write(_items_of(backend, identity), text)
        )

    def delete(self, identity: Identity) -> bool:
        """Delete everything that is stored for *identity*; return whether there was anything."""
        action = "deleting from the keyring"
        return self._access_keyring(action, lambda backend: chunked.delete(_items_of(backend, identity)))

    def _access_keyring(self, action: str, operation: "Callable[[KeyringBackend], T]") -> T:
        """Return the result of *operation*, run while no other xapi process uses the keyring.

        Raises StoreError, which describes the *action*, to which nothing of the backend is attached.
        """

        def operate() -> T:
            try:
                return self._operate(operation)
            except StoreError:
                raise
            except BaseException as error:  # noqa: BLE001 - see `_store_error`
                failure = _store_error(action, error)
            raise failure

        try:
            with _surroundings(self._options.environ):
                if self._backend is None:  # imports are work of this process, and may take long on a busy machine
                    self._backend = self._backends.known()
                with self._access.granted() as limit:
                    notice = partial(self._options.warn, _WAITING) if self._options.unlock_wait else None
                    return in_time(operate, limit, notice=notice)
        except StoreError:
            raise
        except Unresponsive as error:
            failure = StoreError(f"the keyring {error}", hint="unlock it", alternative=REMEDY)
        except Exception as error:  # noqa: BLE001 - of a backend that is imported
            failure = _store_error("loading the keyring", error)
        raise failure

    def _operate(self, operation: "Callable[[KeyringBackend], T]") -> T:
        """Return the result of *operation* on the backend; if a remembered backend fails, search for another one."""
        if self._backend is None:
            self._backend = self._backends.found()
        try:
            return _retried(operation, self._backend)
        except BaseException as error:
            if _is_locked(error) or not self._backends.was_remembered:
                raise
            if type(found := self._backends.found()) is type(self._backend):
                raise
        self._backend = found
        return _retried(operation, found)


def _retried(operation: "Callable[[KeyringBackend], T]", backend: "KeyringBackend") -> T:
    """Return the result of *operation* on *backend*; repeat it after a transient error."""
    for delay in _RETRY_DELAYS:
        try:
            return operation(backend)
        except BaseException as error:
            if _is_locked(error) or _TRANSIENT.isdisjoint(kind.__name__ for kind in type(error).__mro__):
                raise
        time.sleep(delay)
    return operation(backend)


def _items_of(backend: "KeyringBackend", identity: Identity) -> "_Items":
    """Return the items of the account.

    The service name is unique to the account, because Windows moves an item when its service gets a second username.
    Windows ignores the case of names, so a name that case folding changes also contains a part of the account's key.
    """
    name = f"xapi:{_escaped(identity.username)}@{identity.base_url}"
    unique = name if name == name.casefold() else f"{name} {identity.key[:8]}"
    return _Items(backend, unique, _escaped(identity.username))


class _Items:
    """The items of one *service* and *username* in *backend*, see `chunked.Items`."""

    def __init__(self, backend: "KeyringBackend", service: str, username: str) -> None:
        self._backend, self._service, self._username = backend, service, username

    def get(self, name: str) -> str | None:
        """Return the text of the item *name*, or None if there is none."""
        try:
            value: Any = self._backend.get_password(self._service + name, self._username)
        except UnicodeDecodeError:
            return _UNDECODABLE
        return value if value is None or isinstance(value, str) else _UNDECODABLE

    def set(self, name: str, text: str) -> None:
        """Store *text* as the item *name*; raise ItemRejected if it may be too long."""
        try:
            if not _set_secret(self._backend, self._service + name, self._username, text):
                self._backend.set_password(self._service + name, self._username, text)
        except BaseException as error:
            if len(text) <= CHUNK_SIZE or _is_locked(error):
                raise
        else:
            return
        raise ItemRejected

    def delete(self, name: str) -> None:
        """Delete the item *name*."""
        self._backend.delete_password(self._service + name, self._username)


def _set_secret(backend: "KeyringBackend", service: str, username: str, text: str) -> bool:
    """Set the secret of the item if it exists in the Secret Service; return False otherwise.

    The backend of keyring replaces the item. KeePassXC opens a window for that, and gnome-keyring adds a second item
    if the first one belongs to another program.
    """
    if type(backend).__module__ != "keyring.backends.SecretService":
        return False
    service_backend: Any = backend
    collection = service_backend.get_preferred_collection()
    with closing(collection.connection):
        query = service_backend._query(service, username)  # noqa: SLF001 - its names for the attributes
        for item in collection.search_items(query):
            service_backend.unlock(item)
            item.set_secret(text.encode())
            return True
    return False


def _is_locked(error: BaseException) -> bool:
    """Return whether *error* shows that the keyring is locked, and that the user did not unlock it."""
    cause = error.__cause__
    kinds = {kind.__name__ for kind in (*type(error).__mro__, type(cause))}
    if kinds & {"KeyringLocked", "LockedException", "PromptDismissedException"}:
        return True
    if type(cause).__module__.startswith("keyring.backends.macOS") and cause and cause.args:
        return cause.args[0] in _KEYCHAIN_LOCKED
    return "DBusErrorResponse" in kinds and str(getattr(error, "name", "")).endswith(".IsLocked")


def _store_error(action: str, error: BaseException) -> StoreError:
    """Return a StoreError for *error* of a backend, without its text, which may contain secrets."""
    if isinstance(error, NotStored):
        return StoreError(f"the keyring {error}", hint=error.remedy, alternative=REMEDY)
    if _is_locked(error):
        return StoreError("the keyring is locked", hint="unlock it", alternative=REMEDY)
    if "NoKeyringError" in {kind.__name__ for kind in type(error).__mro__}:
        return NoBackend("no usable keyring on this machine", alternative=REMEDY)
    if isinstance(error, EOFError):
        hint = "select another backend with PYTHON_KEYRING_BACKEND"
        return StoreError("the keyring asks for input, which needs a terminal", hint=hint, alternative=REMEDY)
    problem = f"{action} failed ({_escaped(type(error).__name__)})"
    return StoreError(problem, hint=("run ", Run("doctor")), alternative=REMEDY)


@contextmanager
def _surroundings(environ: Mapping[str, str]) -> Iterator[None]:
    """Let backends find the session bus at its usual place, as other programs do, and leave the streams to xapi.

    A backend may print secrets. Without a terminal, getpass reads stdin, which may have the body of a request.
    """
    directory, stdin = environ.get("XDG_RUNTIME_DIR"), sys.stdin
    is_usual = not environ.get(_BUS) and directory and os.path.exists(f"{directory}/bus")
    if is_usual:
        os.environ[_BUS] = f"unix:path={directory}/bus"
    sys.stdin = StringIO()
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            yield
    finally:
        sys.stdin = stdin
        if is_usual:
            os.environ.pop(_BUS, None)


def _escaped(text: str) -> str:
    """Return *text* with characters escaped that a backend may reject: control characters, and non-UTF-8 bytes."""
    return "".join(c if c.isprintable() and c != "\\" else f"\\u{ord(c):04x}" for c in text)

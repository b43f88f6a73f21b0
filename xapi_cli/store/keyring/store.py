"""Storage `keyring`: one item per account in the operating system's keyring, which may not respond."""

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from xapi_cli.errors import StoreError
from xapi_cli.store.chunked import HEAD, ChunkedItem, NotStored
from xapi_cli.store.exclusive_access import AccessTimeout, ExclusiveAccess
from xapi_cli.store.keyring.backends import REMEDY, Backends, NoKeyring
from xapi_cli.store.keyring.items import (
    KEYCHAIN_HELPER,
    BackendItems,
    KeyringLocked,
    KeyringNotPersistent,
    KeyringTimeout,
    escaped,
    services_of,
    with_store_errors,
)
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.tokens import Identity, Record, decode_record, encode_record

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

__all__ = ["KeyringLocked", "KeyringNotPersistent", "KeyringStore", "KeyringTimeout", "NoKeyring"]

T = TypeVar("T")

_PROBE = "xapi: probe "
_SESSION = "DBUS_SESSION_BUS_ADDRESS"


class KeyringStore:
    """Store records, passwords included, in the keyring; each method call accesses it once, under one lock."""

    def __init__(self, options: StoreOptions) -> None:
        self._warn = options.warn
        self._environ = options.environ
        self._silence = _silence if options.silence else contextlib.nullcontext
        self._access = ExclusiveAccess("keyring", options, notice=self._warn_of_waiting)
        self._state = options.state
        self._backends = Backends(options.state, options.environ)
        self._backend: KeyringBackend | None = None
        self._plain: dict[Identity, bool] = {}  # see ChunkedItem.plain

    @property
    def backend(self) -> str | None:
        """The class of the backend in use, or None until the first access."""
        return None if self._backend is None else f"{type(self._backend).__module__}.{type(self._backend).__qualname__}"

    def probe(self) -> None:
        """Write an item and read it back; raise StoreError on failure. If it cannot be deleted, only warn.

        The item belongs to the state directory, because only processes that share a state directory wait for each
        other. An item that a killed process has left behind is replaced by the next probe.
        """
        text = f"probe {os.urandom(8).hex()}"
        service = _PROBE + hashlib.sha256(os.fsencode(self._state.path)).hexdigest()[:16]

        def probe(backend: "KeyringBackend") -> StoreError | None:
            items = BackendItems(backend, service, "probe", self._access)
            ChunkedItem(items, plain=True).write(text)
            try:
                items.delete(HEAD)
            except StoreError as error:
                return error
            return None

        if (failure := self._with_backend("a trial write to the keyring", probe)) is not None:
            self._warn(f"{failure.message}: `xapi logout` may not be able to delete records there")

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none or it is not usable."""

        def read(*items: ChunkedItem) -> Record | None:
            return next(filter(None, (decode_record(identity, item.read()) for item in items)), None)

        return self._with_backend("reading the keyring", self._for(identity, read))

    def write(self, identity: Identity, record: Record) -> None:
        """Store *record* and read it back; the previous one is kept until the new one is complete."""
        text = encode_record(identity, record)

        def write(item: ChunkedItem, *earlier: ChunkedItem) -> None:
            item.write(text)
            with contextlib.suppress(StoreError, NotStored):  # if the earlier record remains, a logout reports that
                for each in earlier:
                    if decode_record(identity, each.read()):
                        each.delete()

        self._with_backend("writing to the keyring", self._for(identity, write))

    def delete(self, identity: Identity) -> bool:
        """Delete everything that is stored for *identity*; return whether there was anything."""

        def delete(item: ChunkedItem, *earlier: ChunkedItem) -> bool:
            is_found = item.delete()
            for each in earlier:
                text = each.read()  # None for chunks of a writer that was killed
                if text is None or decode_record(identity, text):  # otherwise, it may belong to another account
                    is_found = each.delete() or is_found
            return is_found

        return self._with_backend("deleting from the keyring", self._for(identity, delete))

    def _for(self, identity: Identity, operation: Callable[..., T]) -> "Callable[[KeyringBackend], T]":
        """Return *operation* on the item of *identity* and those of earlier versions, as an operation on a backend."""

        def on_backend(backend: "KeyringBackend") -> T:
            username, plain = escaped(identity.username), self._plain.pop(identity, False)
            services = [BackendItems(backend, name, username, self._access) for name in services_of(identity)]
            item, *earlier = ChunkedItem(services[0], plain=plain), *map(ChunkedItem, services[1:])
            result = operation(item, *earlier)
            self._plain[identity] = item.plain
            return result

        return on_backend

    def _with_backend(self, action: str, operation: "Callable[[KeyringBackend], T]") -> T:
        """Return the result of *operation*, run while no other xapi process uses the keyring."""
        try:
            with _session_of(self._environ), self._access.limited() as watchdog:
                if self._backend is None:
                    with self._silence():
                        self._backend = watchdog.call(
                            lambda: with_store_errors("loading the keyring", self._backends.known),
                            on_work=watchdog.renew,
                        )
                # without a backend, all backends must be imported
                on_work = self._access.record_activity if self._backend is None else None
                with self._access.locked(watchdog), self._silence():
                    return watchdog.call(
                        lambda: with_store_errors(action, lambda: self._operate(operation)), on_work=on_work
                    )
        except AccessTimeout as error:
            raise KeyringTimeout(f"the keyring {error}", hint="unlock it", alternative=REMEDY) from None

    def _operate(self, operation: "Callable[[KeyringBackend], T]") -> T:
        """Return the result of *operation* on the backend; if a remembered backend fails, search for another one."""
        if self._backend is None:
            self._backend = self._backends.found()
        try:
            return operation(self._backend)
        except KeyringLocked:
            raise
        except StoreError:
            if not self._backends.was_remembered or type(found := self._backends.found()) is type(self._backend):
                raise
        self._backend = found
        return operation(found)

    def _warn_of_waiting(self) -> None:
        text = "waiting for the keyring; it may be waiting for you to unlock it"
        if (self.backend or "").startswith("keyring.backends.macOS."):
            # keyring deletes and adds an item at each write, so macOS forgets which programs may read it
            text = f"waiting for the keychain, which asks again after each login; to avoid this, {KEYCHAIN_HELPER}"
        self._warn(text)


@contextlib.contextmanager
def _session_of(environ: Mapping[str, str]) -> Iterator[None]:
    """Let backends, which read the environment of the process, use the session that *environ* selects."""
    before, selected = os.environ.get(_SESSION), environ.get(_SESSION)
    if before == selected:
        yield
        return
    _set_session(selected)
    try:
        yield
    finally:
        _set_session(before)


def _set_session(address: str | None) -> None:
    if address is None:
        os.environ.pop(_SESSION, None)
    else:
        os.environ[_SESSION] = address


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Redirect stdin, stdout and stderr to the null device, for this process and its children, during the body.

    A backend that prints or logs may print secrets.
    """
    _flush()  # xapi's own output still reaches the original streams
    saved = [_duplicate(number) for number in range(3)]
    null = os.open(os.devnull, os.O_RDWR)
    try:
        for number, copy in enumerate(saved):
            if copy is not None:
                os.dup2(null, number, inheritable=True)
        yield
    finally:
        os.close(null)
        _flush()  # output of the third-party code is discarded
        for number, copy in enumerate(saved):
            if copy is not None:
                os.dup2(copy, number, inheritable=True)
                os.close(copy)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it may be closed or None
            stream.flush()


def _duplicate(number: int) -> int | None:
    try:
        return os.dup(number)
    except OSError:
        return None  # it is closed, and stays closed

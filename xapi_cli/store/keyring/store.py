"""Storage `keyring`: one item per account in the operating system's keyring, which may not respond.

Keyring services hang, and gnome-keyring crashes with many concurrent clients (GNOME/gnome-keyring#190). Therefore,
only one xapi process at a time uses the keyring. The others wait as long as the lock file shows
activity; no process waits for an unresponsive keyring.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from xapi_cli.errors import StoreError
from xapi_cli.store import record as records
from xapi_cli.store.keyring.backends import REMEDY, Backends, NoKeyring
from xapi_cli.store.keyring.chunked import HEAD, ChunkedItem
from xapi_cli.store.keyring.items import (
    BackendItems,
    KeyringLocked,
    KeyringNotPersistent,
    KeyringTimeout,
    escaped,
    service_of,
    with_store_errors,
)
from xapi_cli.store.keyring.silence import silence
from xapi_cli.store.keyring.watchdog import Watchdog, WatchdogTimeout
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.system import private_files
from xapi_cli.system.lock import LockTimeout, LockUnavailable, locked
from xapi_cli.tokens import Identity, Record

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

__all__ = ["KeyringLocked", "KeyringNotPersistent", "KeyringStore", "KeyringTimeout", "NoKeyring"]

T = TypeVar("T")

_MAX_QUEUE_TIME = 60.0  # seconds to wait in a queue behind healthy processes
_MIN_OPERATION_TIME = 0.5  # seconds left for the operation after waiting in the queue
_PROBE = "xapi: probe"


class KeyringStore:
    """Store records, passwords included, in the keyring; each method call is one visit, which holds the lock once."""

    def __init__(self, options: StoreOptions) -> None:
        self._warn, self._on_lock_failure = options.warn, options.on_lock_failure
        self._silence = silence if options.silence else contextlib.nullcontext
        self._lock = options.state / "locks" / "keyring.lock"
        self._backends = Backends(options.state, options.environ)
        self._backend: KeyringBackend | None = None
        self._notice = None if options.unlock_wait is None else self._warn_of_waiting
        self._timeout = max(options.timeout, options.unlock_wait or 0)
        self._plain: dict[Identity, bool] = {}  # see ChunkedItem.plain
        self._watchdog: Watchdog | None = None  # the one of the latest visit
        self.has_timed_out = False

    @property
    def backend(self) -> str | None:
        """The class of the backend in use, or None until a visit has loaded one."""
        return None if self._backend is None else f"{type(self._backend).__module__}.{type(self._backend).__qualname__}"

    def probe(self) -> None:
        """Write an item and read it back; raise StoreError on failure. If it cannot be deleted, only warn."""
        text = f"probe {os.urandom(8).hex()}"

        def probe(backend: "KeyringBackend") -> StoreError | None:
            items = BackendItems(backend, _PROBE, "probe", self)
            ChunkedItem(items, plain=True).write(text)
            try:
                items.delete(HEAD)
            except StoreError as error:
                return error
            return None

        if (failure := self._visit("a trial write to the keyring", probe)) is not None:
            self._warn(f"{failure.message}: `xapi logout` may not be able to delete records there")

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none or it is not usable."""
        return records.decode(identity, self._visit("reading the keyring", self._for(identity, ChunkedItem.read)))

    def write(self, identity: Identity, record: Record) -> None:
        """Store *record* and read it back; the previous one is kept until the new one is complete."""
        text = records.encode(identity, record)
        self._visit("writing to the keyring", self._for(identity, lambda item: item.write(text)))

    def delete(self, identity: Identity) -> bool:
        """Delete everything that is stored for *identity*; return whether there was anything."""
        return self._visit("deleting from the keyring", self._for(identity, ChunkedItem.delete))

    def _for(self, identity: Identity, operation: Callable[[ChunkedItem], T]) -> "Callable[[KeyringBackend], T]":
        """Return *operation* on the items of *identity*, as an operation on a backend."""

        def on_backend(backend: "KeyringBackend") -> T:
            items = BackendItems(backend, service_of(identity), escaped(identity.username), self)
            item = ChunkedItem(items, plain=self._plain.pop(identity, False))
            result = operation(item)
            self._plain[identity] = item.plain
            return result

        return on_backend

    def _visit(self, action: str, operation: "Callable[[KeyringBackend], T]") -> T:
        """Return the result of *operation*, run while no other xapi process uses the keyring."""
        if self.has_timed_out:
            raise self._timeout_error()
        watchdog = Watchdog(self._timeout, max_total=self._timeout + _MAX_QUEUE_TIME, notice=self._notice)
        self._watchdog = watchdog
        try:
            if self._backend is None:
                with self._silence():
                    self._backend = watchdog.call(
                        lambda: with_store_errors("loading the keyring", self._backends.known), on_work=watchdog.renew
                    )
            on_work = self.record_activity if self._backend is None else None  # if None, all backends must be imported
            with self._locked(watchdog), self._silence():
                return watchdog.call(
                    lambda: with_store_errors(action, lambda: self._operate(operation)), on_work=on_work
                )
        except WatchdogTimeout:
            self.has_timed_out = True
            raise self._timeout_error() from None

    def record_activity(self) -> None:
        """Record activity, and show it to waiting processes."""
        if self._watchdog is not None and not self.has_timed_out:
            self._watchdog.renew()
            self._touch()

    @contextlib.contextmanager
    def _locked(self, watchdog: Watchdog) -> Iterator[None]:
        """Hold the lock of the keyring; it is touched at every activity, which waiting processes check for."""
        activity = private_files.modified_at(self._lock)

        def left() -> float:
            nonlocal activity
            if (now := private_files.modified_at(self._lock)) != activity:
                activity = now
                watchdog.renew()
            return watchdog.left() - _MIN_OPERATION_TIME

        with contextlib.ExitStack() as lock:
            try:
                lock.enter_context(locked(self._lock, timeout=left))
            except LockTimeout:
                raise WatchdogTimeout from None
            except LockUnavailable as error:
                self._on_lock_failure(error)
            watchdog.ensure(_MIN_OPERATION_TIME)
            self._touch()
            yield

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

    def _timeout_error(self) -> KeyringTimeout:
        return KeyringTimeout(f"the keyring did not respond within {self._timeout:g} s", hint=f"unlock it, or {REMEDY}")

    def _warn_of_waiting(self) -> None:
        self._notice = None
        self._warn("waiting for the keyring, which may be asking to be unlocked")

    def _touch(self) -> None:
        with contextlib.suppress(OSError):  # without a state directory there is no queue either
            private_files.touch(self._lock)

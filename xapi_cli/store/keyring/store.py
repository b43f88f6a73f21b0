"""Storage `keyring`: one item per account in the operating system's keyring, which may not respond.

Keyring services hang, and gnome-keyring crashes with many concurrent clients (GNOME/gnome-keyring#190). Therefore,
only one xapi process at a time uses the keyring. The others wait as long as the lock file shows that processes are
served; no process waits for an unresponsive keyring.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from xapi_cli.errors import StoreError
from xapi_cli.store import record as records
from xapi_cli.store.keyring.backends import REMEDY, Backends, NoKeyring
from xapi_cli.store.keyring.chunked import HEAD, ChunkedItem
from xapi_cli.store.keyring.items import (
    BackendItems,
    KeyringLocked,
    KeyringNotPersistent,
    KeyringTimeout,
    inert,
    service_of,
    translated,
)
from xapi_cli.store.keyring.silence import quiet
from xapi_cli.store.keyring.watchdog import Watchdog, WatchdogTimeout
from xapi_cli.system import private_files
from xapi_cli.system.lock import LockTimeout, LockUnavailable, about_state, locked
from xapi_cli.tokens import Identity, Record

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

__all__ = ["KeyringLocked", "KeyringNotPersistent", "KeyringStore", "KeyringTimeout", "NoKeyring"]

T = TypeVar("T")

_LONGEST_QUEUE = 60.0  # seconds to wait in a queue behind healthy processes
_OWN_TURN = 0.5  # seconds left for the operation after waiting in the queue
_PROBE = "xapi: probe"


class KeyringStore:
    """Store records, passwords included, in the keyring; each method call is one visit, which holds the lock once."""

    name: Literal["keyring"] = "keyring"
    remembers = True

    def __init__(
        self,
        state: Path,
        environ: Mapping[str, str],
        notify: Callable[[str], None],
        *,
        patience: float = 3.0,
        unlock_wait: float | None = None,
        quietly: bool = True,
    ) -> None:
        self._state = state
        self._quiet = quiet if quietly else contextlib.nullcontext
        self._lock = state / "locks" / "keyring.lock"
        self._backends = Backends(state, environ)
        self._backend: KeyringBackend | None = None
        self._notify = notify
        self._warned = False
        self._notice = None if unlock_wait is None else self._say_waiting
        self._seconds = patience if unlock_wait is None else max(patience, unlock_wait)
        self._plain: dict[Identity, bool] = {}  # see ChunkedItem.plain
        self._patience: Watchdog | None = None  # the one of the latest visit
        self.is_given_up = False

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
            self._notify(f"{failure.message}: `xapi logout` may have to leave there what it should delete")

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none or it is not usable."""
        return records.decode(identity, self._visit("reading the keyring", self._for(identity, ChunkedItem.read)))

    def write(self, identity: Identity, record: Record) -> None:
        """Store *record* and read it back; the previous one is kept until the new one is complete."""
        text = records.encode(identity, record)
        self._visit("writing to the keyring", self._for(identity, lambda pieces: pieces.write(text)))

    def delete(self, identity: Identity) -> bool:
        """Delete everything that is stored for *identity*; return whether there was anything."""
        return self._visit("deleting from the keyring", self._for(identity, ChunkedItem.delete))

    def _for(self, identity: Identity, operation: Callable[[ChunkedItem], T]) -> "Callable[[KeyringBackend], T]":
        """Return *operation* on the items of *identity*, as an operation on a backend."""

        def on_backend(backend: "KeyringBackend") -> T:
            items = BackendItems(backend, service_of(identity), inert(identity.username), self)
            pieces = ChunkedItem(items, plain=self._plain.pop(identity, False))
            result = operation(pieces)
            self._plain[identity] = pieces.plain
            return result

        return on_backend

    def _visit(self, doing: str, operation: "Callable[[KeyringBackend], T]") -> T:
        """Return the result of *operation*, run while no other xapi process uses the keyring."""
        if self.is_given_up:
            raise self._no_answer()
        patience = Watchdog(self._seconds, longest=self._seconds + _LONGEST_QUEUE, notice=self._notice)
        self._patience = patience
        try:
            if self._backend is None:
                with self._quiet():
                    self._backend = patience.call(
                        lambda: translated("loading the keyring", self._backends.without_asking), at_work=patience.renew
                    )
            at_work = self.answered if self._backend is None else None  # if None, all backends must be imported
            with self._turn(patience), self._quiet():
                return patience.call(lambda: translated(doing, lambda: self._operate(operation)), at_work=at_work)
        except WatchdogTimeout:
            self.is_given_up = True
            raise self._no_answer() from None

    def answered(self) -> None:
        """Record activity, and show it to waiting processes."""
        if self._patience is not None and not self.is_given_up:
            self._patience.renew()
            self._touch()

    @contextlib.contextmanager
    def _turn(self, patience: Watchdog) -> Iterator[None]:
        """Hold the lock of the keyring; it is touched at every activity, which waiting processes check for."""
        served = private_files.touched(self._lock)

        def left() -> float:
            nonlocal served
            if (now_served := private_files.touched(self._lock)) != served:
                served = now_served
                patience.renew()
            return patience.left() - _OWN_TURN

        with contextlib.ExitStack() as lock:
            try:
                lock.enter_context(locked(self._lock, limit=left))
            except LockTimeout:
                raise WatchdogTimeout from None
            except LockUnavailable as error:
                self._warn_once(f"{about_state(self._state, error)[0]}; going on without locks")
            patience.grant(_OWN_TURN)
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
            if not self._backends.found_before or type(found := self._backends.found()) is type(self._backend):
                raise
        self._backend = found
        return operation(found)

    def _no_answer(self) -> KeyringTimeout:
        return KeyringTimeout(f"the keyring did not answer within {self._seconds:g} s", hint=f"unlock it, or {REMEDY}")

    def _say_waiting(self) -> None:
        self._notice = None
        self._notify("waiting for the keyring, which may be asking to be unlocked")

    def _touch(self) -> None:
        with contextlib.suppress(OSError):  # without a state directory there is no queue either
            private_files.touch(self._lock)

    def _warn_once(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            self._notify(text)

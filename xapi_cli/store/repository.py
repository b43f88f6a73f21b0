"""The record of one account: select its store, read it once, write it with an entry in the index of accounts."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

from xapi_cli.errors import StoreError, TimeoutExpired, UsageError
from xapi_cli.hints import Hint, Run
from xapi_cli.store import registry
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.store.registry import open_store
from xapi_cli.tokens import Identity, Record, Token

if TYPE_CHECKING:
    from xapi_cli.store.index import AccountIndex, KnownStore
    from xapi_cli.store.protocol import Store
    from xapi_cli.system.files import StateFile
    from xapi_cli.system.lock import LockUnavailable

_WRITE_WAIT = 20.0  # seconds; the writes of one account wait in a queue, and each is short


class StoreReports:
    """The problems that a repository has encountered, for a caller that reports them itself."""

    def __init__(self) -> None:
        self.warnings: list[Hint] = []
        self.lock_failures: list[OSError | LockUnavailable] = []


class TokenRepository:
    """The stored record of *identity*; *setting* is the value of the setting `storage`."""

    def __init__(self, identity: Identity, setting: str, options: StoreOptions) -> None:
        self.identity = identity
        self.setting, self.row = setting, registry.selected(setting)
        self.options, self.state = options, options.state
        self._store: Store | None = None
        self._record: Record | None = None
        self._is_read = False
        self.opened_elsewhere: dict[str, Store] = {}  # other stores, for a logout, by their places

    @cached_property
    def index(self) -> "AccountIndex":
        """The index of accounts; reading a record does not need it."""
        from xapi_cli.store.index import AccountIndex

        return AccountIndex(self.state)

    @property
    def storage(self) -> str:
        """The name of the storage in use; until its store is open, that of the setting, such as `auto`."""
        return self.row.name if self._store else self.setting

    @property
    def place(self) -> str | None:
        """Where the store in use stores records, as a noun phrase; None if they do not outlive the process."""
        return self.row.noun if self.row.is_persistent else None

    @property
    def selected(self) -> "KnownStore | None":
        """The store in use, or the one that the settings select; None if records do not outlive the process."""
        from xapi_cli.store.index import KnownStore

        if not self.row.is_persistent:
            return None
        return KnownStore(self.row.name, registry.place_of(self.row, self.options))

    @property
    def backend(self) -> str | None:
        """The name of the backend that the store in use has loaded, None if it has none."""
        return getattr(self._store, "backend", None)

    @property
    def remembers(self) -> bool:
        """Whether a password is known to be stored with the token."""
        return bool(self.row.remembers_passwords and self._record and self._record.password)

    def opened(self) -> "Store":
        """Return the store in use."""
        if self._store is None:
            self._store = open_store(self.row, self.options)
        return self._store

    def check_settings(self) -> None:
        """Raise UsageError or StoreError if the storage needs settings that are not usable; without any, do nothing."""
        if self.row.settings:
            self.opened()

    def probe(self) -> None:
        """Raise StoreError unless a login can store its token; with `auto`, this requires a keyring."""
        self.opened().probe()

    def of(self, identity: Identity) -> "TokenRepository":
        """Return a repository for *identity* with the store that this one, which has read nothing, has opened."""
        other = copy(self)
        other.identity = identity
        return other

    def read(self, *, again: bool = False) -> Record | None:
        """Return the stored record, read once per command; with *again*, re-read it.

        Raises StoreError if the store is not usable; with `auto`, warns instead and continues without a store.
        """
        if again or not self._is_read:
            try:
                self._record = self.opened().read(self.identity)
            except StoreError as error:
                if self.setting != registry.AUTO:
                    raise
                self._record = None
                if not self._is_read:
                    self.row, self._store = registry.NONE, open_store(registry.NONE, self.options)
                    self.options.warn(
                        (
                            f"{error.message}; the token is not stored (",
                            Run("login", "storage", "file"),
                            ", or XAPI_STORAGE=file for all commands, stores it in a file that only you can read)",
                        )
                    )
            self._is_read = True
        return self._record

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Exclude other writers of this account, so that a logout and a login cannot interleave.

        Raises TimeoutExpired if another process does not end in time.
        """
        from xapi_cli.system.lock import LockTimeout, LockUnavailable, locked

        with ExitStack() as stack:
            try:
                lock = self.state.lock_file(f"{self.identity.key}.store")
                stack.enter_context(locked(lock, timeout=_WRITE_WAIT))
            except LockTimeout as error:
                raise TimeoutExpired(
                    f"another xapi process has been writing to the token store for more than {_WRITE_WAIT:.0f} s",
                    hint="try again, or end that process if it hangs",
                ) from error
            except LockUnavailable as error:
                self.continue_without_state(error)
            yield

    def continue_without_state(self, error: "OSError | LockUnavailable") -> None:
        """Report that the state directory is not usable; raise StoreError if the storage in use needs it."""
        if self.row.needs_state_directory:
            from xapi_cli.system.lock import state_error

            raise state_error(self.state.path, error) from error
        self.options.on_lock_failure(error)

    def put(self, record: Record, write: Callable[[], bool], was_logged_out: Callable[[], bool]) -> bool:
        """Store *record*, which *write* does, with an entry in the index; the caller excludes other writers.

        Returns False without storing it if *write* returns False or *was_logged_out*, which is asked again once the
        entry is there: from then on, a logout of all accounts finds it.
        """
        if was_logged_out():
            return False
        self._list_in_index()
        if was_logged_out() or not write():
            return False
        self._record, self._is_read = record, True
        if not self.is_rejected(record.token):  # as when only the password is new
            self.forget_rejection()
        return True

    def _list_in_index(self) -> None:
        """List the store in use, so that a logout finds the record, even if this process is killed meanwhile."""
        if (store := self.selected) is not None:
            try:
                self.index.add(self.identity, store)
            except OSError as error:
                self.continue_without_state(error)  # without an entry, `logout` of this account still finds its record

    def record_rejection(self, token: Token) -> None:
        """Record, if that is possible, that the API responded with 401 to *token*.

        `is_rejected` returns True until `forget_rejection`, or until another token is stored.
        """
        if self.row.is_persistent and token.obtained_at:
            with suppress(OSError, UsageError):
                self._rejection.replace(_name(token), sync=False)

    def is_rejected(self, token: Token) -> bool:
        """Return whether the rejection of *token* is recorded."""
        with suppress(OSError, UsageError):
            return bool(token.obtained_at) and self._rejection.read(limit=100) == _name(token)
        return False

    def forget_rejection(self) -> None:
        """Remove the recorded rejection: a request has succeeded, or the account has been logged out."""
        with suppress(OSError, UsageError):
            if os.path.exists(self._rejection.path):
                self._rejection.remove()

    @property
    def _rejection(self) -> "StateFile":
        """The file that contains when the rejected token was obtained, which identifies it and is not a secret."""
        return self.state.directory("rejected").file(f"{self.identity.key}.token")


def _name(token: Token) -> bytes:
    return str(token.obtained_at and token.obtained_at.isoformat()).encode()

"""The record of one account: select its store, read it once, write it with an entry in the index of accounts."""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

from xapi_cli.errors import StoreError, TimeoutExpired, UsageError
from xapi_cli.store import registry
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.store.registry import open_store
from xapi_cli.system.render import printable
from xapi_cli.tokens import Identity, Record, Token

if TYPE_CHECKING:
    from xapi_cli.store.account_index import AccountIndex, KnownStore, Location
    from xapi_cli.store.protocol import Store
    from xapi_cli.system.files import StateFile
    from xapi_cli.system.lock import LockUnavailable

FAILURES = "attempts"  # the directory with the logins that failed in the last minute
_REJECTED = "rejected"  # the directory with a file for each account whose token the API rejected last
_WRITE_WAIT = 20.0  # seconds; the writes of one account wait in a queue, and each is short
DISK_IS_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE})


class StoreReports:
    """The problems that a repository has encountered, for a caller that reports them itself."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.lock_failures: list[OSError | LockUnavailable] = []


class TokenRepository:
    """The stored record of *identity*; *setting* is the value of the setting `storage`.

    Stores are opened with *options*, in which *on_lock_failure* is replaced: it receives the problems of the state
    directory that do not stop a command, and is by default a warning. *other_settings* returns the settings of stores
    in other profiles, which may have the password of a store that this account has a record in.
    """

    def __init__(
        self,
        identity: Identity,
        setting: str,
        options: StoreOptions,
        *,
        on_lock_failure: "Callable[[OSError | LockUnavailable], None] | None" = None,
        other_settings: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
    ) -> None:
        self.identity = identity
        self.setting, self.row = setting, registry.selected(setting)
        self.state, self.warn = options.state, options.warn
        self.report_lock_failure = on_lock_failure or self._warn_once_without_locks
        self.options = options._replace(on_lock_failure=self.report_lock_failure)
        self.other_settings = other_settings
        self._store: Store | None = None
        self._record: Record | None = None
        self._read = False
        self._warned = False
        self.opened_elsewhere: list[tuple[KnownStore, Store]] = []  # stores at other locations, to delete records

    @cached_property
    def index(self) -> "AccountIndex":
        """The index of accounts; reading a record does not need it."""
        from xapi_cli.store.account_index import AccountIndex

        return AccountIndex.of(self.state)

    @property
    def storage(self) -> str:
        """The name of the storage in use; until its store is open, that of the setting, such as `auto`."""
        return self.row.name if self._store else self.setting

    @property
    def place(self) -> str | None:
        """Where the store in use stores records, as a noun phrase; None if they do not outlive the process."""
        return self.row.place if self.row.is_persistent else None

    @property
    def backend(self) -> str | None:
        """The name of the backend that the store in use has loaded, None if it has none."""
        return getattr(self._store, "backend", None)

    @property
    def can_remember(self) -> bool:
        """Whether the store in use can store a password and has none, so that the user can be asked for consent."""
        return self._store is not None and self.row.remembers_passwords and not self.remembers

    @property
    def remembers(self) -> bool:
        """Whether a password is known to be stored with the token."""
        return bool(self.row.remembers_passwords and self._record and self._record.password)

    def read(self, *, again: bool = False) -> Record | None:
        """Return the stored record, read once per command; with *again*, re-read it.

        Raises StoreError if the store is not usable; with `auto`, warns instead and continues without a store.
        """
        if self._store is None:
            self._record = self._read_first()
        elif again or not self._read:
            self._record = self._read_from(self._store)
        self._read = True
        return self._record

    def probe(self) -> None:
        """Raise StoreError unless a login can store its token; with `auto`, this requires a keyring."""
        self.opened().probe()

    def of(self, identity: Identity) -> "TokenRepository":
        """Return a repository for *identity* with the stores that this one, which has read nothing, has opened."""
        other = copy(self)
        other.identity = identity
        return other

    def check_settings(self) -> None:
        """Raise UsageError or StoreError if the storage needs settings that are not usable; without any, do nothing."""
        if self.row.settings:
            self.opened()

    def continue_without_lock(self, error: "OSError | LockUnavailable") -> None:
        """Report that the state directory is not usable; raise StoreError if the storage in use needs it."""
        if self.row.needs_state_directory:
            from xapi_cli.system.lock import state_error

            raise state_error(self.state.path, error) from error
        self.report_lock_failure(error)

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
                self._continue_unless_shared(error)
            yield

    def put(self, record: Record, write: Callable[[Record], bool], was_logged_out: Callable[[], bool]) -> bool:
        """Store *record* with *write*, the account being in the index; return what *write* returns.

        Returns False, without adding the account to the index, if *was_logged_out* returns True; *write* checks it
        again. Raises StoreError if *record* cannot be stored, or if no logout would find it.
        """
        location = self.row.location(self.options) if self.row.is_persistent else {}
        if not self._expect_in_index(location, was_logged_out) or not write(record):
            return False
        replaced, self._record, self._read = self._record, record, True
        if not self.is_rejected(record.token):  # as when only the password is new
            self.forget_rejection()
        if self.row.is_persistent:
            with suppress(OSError):  # the store is in the index already, see above
                self.index.add(
                    self.identity,
                    self.row.name,
                    location,
                    obtained_at=obtained_at(record),
                    replaced=obtained_at(replaced),
                )
        return True

    def record_rejection(self, token: Token) -> None:
        """Record, if that is possible, that the API responded with 401 to *token*.

        `is_rejected` returns True until `forget_rejection`, or until another token is stored.
        """
        if self.row.is_persistent and (name := obtained_at(Record(token))):
            with suppress(OSError, UsageError):
                self._rejection.replace(name.encode(), sync=False)

    def is_rejected(self, token: Token) -> bool:
        """Return whether the rejection of *token* is recorded."""
        return self._has_rejections and self._rejected_at() == (obtained_at(Record(token)) or "unknown")

    def forget_rejection(self) -> None:
        """Remove the recorded rejection: a request has succeeded, or the account has been logged out."""
        if self._has_rejections:
            with suppress(OSError, UsageError):
                self._rejection.remove()

    @property
    def _rejection(self) -> "StateFile":
        """The file that contains when the rejected token was obtained, which identifies it and is not a secret."""
        return self.state.directory(_REJECTED).file(f"{self.identity.key}.token")

    @property
    def _has_rejections(self) -> bool:
        return os.path.isdir(self.state.path / _REJECTED)  # usually, no token was rejected: one system call

    def _rejected_at(self) -> str | None:
        with suppress(OSError, UsageError, UnicodeError):
            data = self._rejection.read(limit=100)
            return None if data is None else data.decode("ascii")
        return None

    def _continue_unless_shared(self, error: "OSError | LockUnavailable") -> None:
        if self.row.logins != "shared":  # such a store has its own locks
            self.continue_without_lock(error)

    def _read_first(self) -> Record | None:
        """Open the store and read it; with `auto`, fall back to a store in memory if that fails."""
        self._remove_old_failures()
        try:
            store = open_store(self.row, self.options)
            record = store.read(self.identity)
        except StoreError as error:
            if self.setting != registry.AUTO:
                raise
            self.row = registry.fallback()
            self.warn(
                f"{error.message}; the token is not stored"
                " (`xapi login --storage file`, or XAPI_STORAGE=file for all commands,"
                " stores it in a file that only you can read)"
            )
            store, record = open_store(self.row, self.options), None
        self._store = store
        return record

    def _remove_old_failures(self) -> None:
        """Remove what was recorded about failed logins more than a minute ago: another login may never follow."""
        with suppress(OSError, UsageError):  # usually, no login has failed: one system call
            if os.listdir(self.state.path / FAILURES):
                from xapi_cli.store.failure_files import FailureFiles

                FailureFiles(self.state.directory(FAILURES)).remove_old()

    def _read_from(self, store: "Store") -> Record | None:
        try:
            return store.read(self.identity)
        except StoreError:
            if self.setting != registry.AUTO:
                raise
            return None

    def opened(self) -> Any:
        """Return the store in use; it has the interface that the field `logins` of its row states."""
        if self._store is None:
            self._store = open_store(self.row, self.options)
        return self._store

    def _expect_in_index(self, location: "Location", was_logged_out: Callable[[], bool]) -> bool:
        """Record that the store in use will have a record, so that a logout finds it if this process is killed.

        Returns False, without recording anything new, if *was_logged_out* returns True. Raises StoreError if the disk
        is full: no logout would find the record. A state directory that cannot be used at all is reported as for locks.
        """
        if not self.row.is_persistent:
            return True
        try:
            if not any(store.is_at(self.row.name, location) for store in self.index.stores(self.identity)):
                if was_logged_out():
                    return False
                self.index.expect(self.identity, self.row.name, location)
        except OSError as error:
            if error.errno in DISK_IS_FULL:
                raise StoreError(
                    f"the account cannot be added to the index of accounts in {printable(str(self.state.path))}:"
                    f" {error.strerror}",
                    hint="free space there: `xapi logout` would not find the token otherwise",
                ) from error
            self._continue_unless_shared(error)  # without an entry, `logout` of this account still finds its record
        return True

    def _warn_once_without_locks(self, error: "OSError | LockUnavailable") -> None:
        from xapi_cli.system.lock import state_error

        if not self._warned:
            self._warned = True
            self.warn(f"{state_error(self.state.path, error).message}; continuing without locks")


def obtained_at(record: Record | None) -> str | None:
    """Return the time at which the token of *record* was obtained as text, or None if it is unknown."""
    return record.token.obtained_at.isoformat() if record and record.token.obtained_at else None

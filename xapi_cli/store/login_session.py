"""A login to one account and its storage: begin, acquire the lock, check for a logout, store the record.

    LoginSession      locks, logout markers and login failures in the state directory of this machine
    └── SharedSession   and in a store that machines share

The field `logins` of a storage's row in the registry selects the class.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from xapi_cli.store.failure_files import FailureFiles
from xapi_cli.store.login_lock import LoginLock
from xapi_cli.store.repository import FAILURES
from xapi_cli.system.lock import LockUnavailable
from xapi_cli.tokens import Record

if TYPE_CHECKING:
    from xapi_cli.store.account_index import LogoutMarkers
    from xapi_cli.store.login_protocol import Failures, SharedStore
    from xapi_cli.store.repository import TokenRepository


class LoginSession:
    """Logins to the account of *repository*, each of which takes at most *limit* seconds."""

    margin = 10.0  # seconds that a process waits for another process's login, beyond *limit*

    def __init__(self, repository: "TokenRepository", limit: float) -> None:
        self._repository, self._identity = repository, repository.identity
        self._lock = LoginLock(repository.state.lock_file(f"{self._identity.key}.login"))
        self._files = FailureFiles(repository.state.directory(FAILURES))
        self._files.remove_old()
        self._markers: LogoutMarkers | None = None  # at `begin`; None if a logout since then cannot be noticed

    @property
    def failures(self) -> "list[Failures]":
        """Where login failures are recorded: at the login lock, then the places for rejected passwords only.

        Raises StoreError if the first is not usable.
        """
        return [self._files]

    def begin(self) -> None:
        """Record that a login begins, so that `write` detects a logout during it."""
        try:
            is_persistent = self._repository.row.is_persistent
            self._markers = self._repository.index.logout_markers(self._identity) if is_persistent else None
        except OSError:
            self._markers = None  # taking the lock, which is next, reports the error

    def was_logged_out(self) -> bool:
        """Return whether the account is known to have been logged out since `begin`, so that `write` would refuse."""
        return self._was_logged_out_here()

    @contextmanager
    def locked(self, timeout: float, *, stop_on_login: bool = False, required: bool = True) -> Iterator[None]:
        """Hold the login lock; wait at most *timeout* seconds for it.

        Raises LockTimeout; if the lock is not *required*, continues without it, or takes it over. With *stop_on_login*,
        raises AnotherLoggedIn as soon as another process has stored a token. If the state directory is not usable,
        warns and continues without a lock there, or raises StoreError if the storage needs it.
        """
        with ExitStack() as stack:
            self._enter_lock_of_machine(stack, timeout, stop_on_login=stop_on_login, required=required)
            yield

    def write(self, record: Record) -> bool:
        """Store *record*; return False, without storing it, if the account was logged out since `begin`.

        Raises StoreError if it cannot be stored. If machines share the store, the caller MUST hold the login lock, and
        LockLost is raised if that has expired.
        """
        with self._writing():
            return self._put(record)

    def remember(self, password: str) -> bool:
        """Add *password* to the stored record, even to one that another process has stored since.

        Returns False, and stores nothing, if the account was logged out since `begin`. Raises StoreError if the
        password cannot be stored. The caller MUST hold the login lock.
        """
        with self._writing():
            if self.was_logged_out() or (record := self._repository.opened().read(self._identity)) is None:
                return False
            return self._put(Record(record.token, password))

    def notify_login(self) -> None:
        """Notify the waiting processes of this machine that there is a new token."""
        self._lock.notify_login()

    def _enter_lock_of_machine(
        self, stack: ExitStack, timeout: float, *, stop_on_login: bool, required: bool
    ) -> bool | None:
        """Acquire the lock in the state directory; return whether it is held, None if the directory is not usable."""
        try:
            return stack.enter_context(
                self._lock.acquired(timeout, stop_on_login=stop_on_login, required=required),
            )
        except LockUnavailable as error:
            self._repository.continue_without_lock(error)
            return None

    def _was_logged_out_here(self) -> bool:
        """Return whether a logout with this state directory is known to have happened since `begin`."""
        try:
            return self._markers is not None and self._repository.index.was_logged_out(self._identity, self._markers)
        except OSError:
            return False

    def _writing(self) -> AbstractContextManager[None]:
        """Exclude other writers of this account."""
        return self._repository.writing()

    def _put(self, record: Record) -> bool:
        return self._repository.put(record, self._write_unless_logged_out, self.was_logged_out)

    def _write_unless_logged_out(self, record: Record) -> bool:
        """Write *record*, whose account is in the index: a logout of all accounts from here on will find it there."""
        return not self._was_logged_out_here() and self._write_to_store(record)

    def _write_to_store(self, record: Record) -> bool:
        """Write *record*; return False if the store itself noticed a logout."""
        self._repository.opened().write(self._identity, record)
        return True


class SharedSession(LoginSession):
    """Logins to an account in a SharedStore."""

    def __init__(self, repository: "TokenRepository", limit: float) -> None:
        super().__init__(repository, limit)
        from xapi_cli.store.shared_login_lock import SharedLoginLock

        self._store: SharedStore = repository.opened()
        self._shared_marker: str | None = None  # as `_markers`
        self._shared_lock = SharedLoginLock(self._lock, self._store, self._identity, limit)
        self.margin = self._shared_lock.margin

    @property
    def failures(self) -> "list[Failures]":
        """Those of the store, then those in the state directory."""
        return [self._store.failures, self._files]

    def begin(self) -> None:
        """Record that a login begins; read all that it needs of the store, with one command."""
        super().begin()
        self._shared_marker = self._store.logout_marker(self._identity)

    def was_logged_out(self) -> bool:
        """Return whether the account was logged out since `begin`; raise StoreError if the store is not usable."""
        if super().was_logged_out():
            return True
        marker = self._shared_marker
        return marker is not None and self._store.logout_marker(self._identity) not in ("", marker)

    @contextmanager
    def locked(self, timeout: float, *, stop_on_login: bool = False, required: bool = True) -> Iterator[None]:
        """Hold the lock of the store, behind that of the machine if that is usable."""
        with self._shared_lock.acquired(timeout, stop_on_login=stop_on_login, required=required):
            yield

    def _write_to_store(self, record: Record) -> bool:
        """Write *record* and release the lock, in one step."""
        return self._store.write_locked(self._identity, record, self._shared_marker)


_SESSIONS: dict[str, Callable[["TokenRepository", float], LoginSession]] = {
    "local": LoginSession,
    "shared": SharedSession,
}


def open_session(repository: "TokenRepository", *, limit: float) -> LoginSession:
    """Return the logins to the account of *repository*, each of which takes at most *limit* seconds."""
    return _SESSIONS[repository.row.logins](repository, limit)

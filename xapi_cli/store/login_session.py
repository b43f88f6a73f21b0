"""A login to one account, with the lock, the logouts and the login failures in this machine's state directory."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from xapi_cli.feature_table import load
from xapi_cli.system.lock import LockTimeout, LockUnavailable, locked
from xapi_cli.tokens import Record

if TYPE_CHECKING:
    from xapi_cli.store.index import LogoutMarks
    from xapi_cli.store.repository import TokenRepository
    from xapi_cli.system.files import StateFile

_FAILURES_KEPT = 60.0  # seconds
_FAILURE_FILE = r"[0-9a-f]{32}\.[a-z]+"  # a pattern


def open_session(repository: "TokenRepository") -> "LoginSession":
    """Return the logins to the account of *repository*; its storage may have a subclass."""
    kind = load(repository.row.session) if repository.row.session else LoginSession
    session: LoginSession = kind(repository)
    return session


class LoginSession:
    """Logins to the account of *repository*: begin, hold the lock, check for a logout, store the record.

    The lock file is touched whenever a process has stored a token; waiting processes check for that. A storage whose
    machines share the login lock has a subclass.

    The processes that share the lock share failures too: texts by their kind, for a minute. Machines that share the
    directory over a network file system share them if their clocks agree. Recording one is not an error if it fails.
    """

    def __init__(self, repository: "TokenRepository") -> None:
        self._repository, self._identity = repository, repository.identity
        self._lock = repository.state.lock_file(f"{self._identity.key}.login")
        self._failures = repository.state.directory("attempts")
        self._marks: LogoutMarks | None = None  # at `begin`
        with suppress(OSError):
            self._failures.remove_old(_FAILURE_FILE, _FAILURES_KEPT)

    def begin(self) -> None:
        """Record that a login begins, so that `write` detects a logout during it."""
        self._marks = self._repository.index.logout_marks(self._identity)

    def was_logged_out(self) -> bool:
        """Return whether the account is known to have been logged out since `begin`, so that `write` would refuse."""
        return self._marks is not None and self._repository.index.logout_marks(self._identity) != self._marks

    @contextmanager
    def locked(self, timeout: float, *, stop_on_login: bool = False) -> Iterator[bool]:
        """Hold the login lock; wait at most *timeout* seconds for it. Raises LockTimeout.

        With *stop_on_login*, yields False, without the lock, as soon as another process has stored a token: all waiting
        processes then go on at once. Each in turn would have to read the store, and the last one would get a token that
        is invalid again. If the state directory is not usable, warns and continues without a lock, or raises StoreError
        if the storage needs it.
        """
        end, before = time.monotonic() + timeout, self._lock.modified_at()

        def has_another_logged_in() -> bool:
            return stop_on_login and before is not None and self._lock.modified_at() != before

        def left() -> float:
            nonlocal before
            if has_another_logged_in():
                return 0
            before = before or self._lock.modified_at()  # the first process creates the file
            return end - time.monotonic()

        is_held = True
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self._lock, timeout=left))
            except LockTimeout:
                if not has_another_logged_in():
                    raise
                is_held = False
            except LockUnavailable as error:
                self._repository.continue_without_state(error)
            yield is_held

    def write(self, record: Record) -> bool:
        """Store *record*; return False, without storing it, if the account was logged out since `begin`.

        Raises StoreError if it cannot be stored, and LockLost if another process has taken over the lock of this one.
        """
        with self._repository.writing():
            is_stored = self._put(record)
        if is_stored:
            with suppress(OSError):  # without it, they find the token when they get the lock
                self._lock.touch()
        return is_stored

    def remember(self, password: str) -> bool:
        """Add *password* to the stored record, even to one that another process has stored since; see `write`.

        The caller MUST hold the login lock.
        """
        with self._repository.writing():
            record = self._repository.opened().read(self._identity)
            return record is not None and self._put(record._replace(password=password))

    def _put(self, record: Record) -> bool:
        def write() -> bool:
            self._repository.opened().write(self._identity, record)
            return True

        return self._repository.put(record, write, self.was_logged_out)

    def now(self) -> float:
        """Return the time in seconds, by a clock that these processes share; raise StoreError if it has none."""
        return time.time()

    def failure(self, kind: str) -> bytes | None:
        """Return the recorded text, or None if there is none; raise StoreError if a shared store cannot be used."""
        with suppress(OSError):
            return self._failure_file(kind).read(limit=64 * 1024)
        return None

    def record_failure(self, kind: str, text: bytes) -> None:
        """Record *text*."""
        with suppress(OSError):
            self._failure_file(kind).replace(text, sync=False)

    def forget_failures(self, kinds: Sequence[str]) -> None:
        """Remove the texts of *kinds*."""
        for kind in kinds:
            with suppress(OSError):
                self._failure_file(kind).remove()

    def _failure_file(self, kind: str) -> "StateFile":
        return self._failures.file(f"{self._identity.key}.{kind}")

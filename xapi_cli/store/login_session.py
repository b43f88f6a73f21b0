"""A login to one account, with the lock, the logouts and the login failures in this machine's state directory."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from xapi_cli.store import registry
from xapi_cli.store.protocol import AnotherLoggedIn, Failures, LoginSession
from xapi_cli.system.files import StateDirectory
from xapi_cli.system.lock import LockTimeout, LockUnavailable, locked
from xapi_cli.tokens import Identity, Record

if TYPE_CHECKING:
    from xapi_cli.store.index import LogoutMarks
    from xapi_cli.store.repository import TokenRepository

_FAILURES_KEPT = 60.0  # seconds
_FAILURE_FILE = r"[0-9a-f]{32}\.[a-z]+"  # a pattern


def open_session(repository: "TokenRepository") -> LoginSession:
    """Return the logins to the account of *repository*."""
    return registry.open_shared_session(repository.row, repository) or LocalSession(repository)


class LocalSession:
    """Logins to the account of *repository*, see `protocol.LoginSession`.

    The lock file is touched whenever a process has stored a token; waiting processes check for that.
    """

    margin = 10.0

    def __init__(self, repository: "TokenRepository") -> None:
        self._repository, self._identity = repository, repository.identity
        self._lock = repository.state.lock_file(f"{self._identity.key}.login")
        self.failures: Failures = FailureFiles(repository.state)
        self._marks: LogoutMarks | None = None  # at `begin`

    def begin(self) -> None:
        """Remember the last logout."""
        self._marks = self._repository.index.logout_marks(self._identity)

    def was_logged_out(self) -> bool:
        """Return whether another logout has followed."""
        return self._marks is not None and self._repository.index.logout_marks(self._identity) != self._marks

    @contextmanager
    def locked(self, timeout: float, *, stop_on_login: bool = False, required: bool = True) -> Iterator[None]:
        """Hold the lock; if the state directory is not usable, warn and go on, or raise StoreError."""
        end, before = time.monotonic() + timeout, self._lock.modified_at()

        def left() -> float:
            nonlocal before
            if stop_on_login and before is not None and self._lock.modified_at() != before:
                raise AnotherLoggedIn
            before = before or self._lock.modified_at()  # the first process creates the file
            return end - time.monotonic()

        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self._lock, timeout=left))
            except LockTimeout:
                if required:
                    raise
            except LockUnavailable as error:
                self._repository.continue_without_state(error)
            yield

    def write(self, record: Record) -> bool:
        """Store *record*, and let the waiting processes go on."""
        with self._repository.writing():
            is_stored = self._put(record)
        if is_stored:
            with suppress(OSError):  # without it, they find the token when they get the lock
                self._lock.touch()
        return is_stored

    def remember(self, password: str) -> bool:
        """Add *password* to the record that is stored now."""
        with self._repository.writing():
            record = self._repository.opened().read(self._identity)
            return record is not None and self._put(record._replace(password=password))

    def _put(self, record: Record) -> bool:
        def write() -> bool:
            self._repository.opened().write(self._identity, record)
            return True

        return self._repository.put(record, write, self.was_logged_out)


class FailureFiles:
    """Recorded login failures as files in the directory *state*, see `protocol.Failures`.

    Machines that share it over a network file system share the failures if their clocks agree.
    """

    def __init__(self, state: StateDirectory, now: Callable[[], float] = time.time) -> None:
        self._directory, self.now = state.directory("attempts"), now
        with suppress(OSError):
            self._directory.remove_old(_FAILURE_FILE, lambda _, mtime: not 0 <= now() - mtime < _FAILURES_KEPT)

    def read(self, identity: Identity, kind: str) -> bytes | None:
        """Return the content of the file, or None if it does not exist or cannot be read."""
        with suppress(OSError):
            return self._directory.file(f"{identity.key}.{kind}").read(limit=64 * 1024)
        return None

    def write(self, identity: Identity, kind: str, data: bytes) -> None:
        """Replace the file with *data*, if that is possible."""
        with suppress(OSError):
            self._directory.file(f"{identity.key}.{kind}").replace(data, sync=False)

    def remove(self, identity: Identity, kinds: Sequence[str]) -> None:
        """Remove the files of *kinds*, if that is possible."""
        for kind in kinds:
            with suppress(OSError):
                self._directory.file(f"{identity.key}.{kind}").remove()

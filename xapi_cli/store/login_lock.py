"""The login lock: one process at a time logs in to an account, and waiting processes use its token.

After a successful login, all waiting processes stop waiting immediately. If each of them held the lock while it
re-reads the store, a hundred processes would do so one after another, and the last one would read a token that has
become invalid in the meantime.
"""

import contextlib
import time
from collections.abc import Iterator

from xapi_cli.system.files import StateFile
from xapi_cli.system.lock import LockTimeout, locked


class AnotherLoggedIn(Exception):
    """Another process has stored a new token while this process waited."""


class LoginLock:
    """The lock for logins to one account; the file *lock* is touched whenever a process has stored a token."""

    def __init__(self, lock: StateFile) -> None:
        self.file = lock

    @contextlib.contextmanager
    def acquired(self, timeout: float, *, stop_on_login: bool = False, required: bool = True) -> Iterator[bool]:
        """Hold the lock while the body logs in; wait at most *timeout* seconds for it.

        Raises what `lock.locked` raises; if the lock is not *required*, continues without it after a timeout. Yields
        whether this process holds the lock. With *stop_on_login*, raises AnotherLoggedIn as soon as another process has
        stored a token.
        """
        end, before = time.monotonic() + timeout, self.file.modified_at()

        def left() -> float:
            nonlocal before
            now = self.file.modified_at()
            if before is not None and now != before and stop_on_login:
                raise AnotherLoggedIn
            before = now  # the first process creates the file
            return end - time.monotonic()

        with contextlib.ExitStack() as stack:
            is_held = True
            try:
                stack.enter_context(locked(self.file, timeout=left))
            except LockTimeout:
                if required:
                    raise
                is_held = False
            yield is_held

    def notify_login(self) -> None:
        """Notify waiting processes that there is a new token."""
        with contextlib.suppress(OSError):  # without it, they find the token when they get the lock
            self.file.touch()

"""Taking turns at logging in: one process at a time logs in to an account, and the others find its token.

When a login has succeeded, all who wait leave the line at once. If each held the lock while it looks into the store, a
hundred of them would do so one after another, and the last would find a token that has died in the meantime.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from xapi_cli.system import private_files
from xapi_cli.system.lock import locked


class AnotherLoggedIn(Exception):
    """Report that, while this process waited, another one has stored a new token."""


class LoginLock:
    """The line of those who want to log in; the file *lock* is touched whenever one of them has stored a token."""

    def __init__(self, lock: Path) -> None:
        self._lock = lock

    @contextlib.contextmanager
    def taken(self, limit: float, *, to_the_end: bool = False) -> Iterator[None]:
        """Log in within the body, while nobody else does; wait *limit* seconds for it.

        Raises what `lock.locked` raises, and AnotherLoggedIn unless the turn is to be waited for *to_the_end*.
        """
        end, before = time.monotonic() + limit, private_files.touched(self._lock)

        def left() -> float:
            nonlocal before
            now = private_files.touched(self._lock)
            if before is not None and now != before and not to_the_end:
                raise AnotherLoggedIn
            before = now  # who came first has made the file
            return end - time.monotonic()

        with locked(self._lock, limit=left):
            yield

    def tell(self) -> None:
        """Tell those who wait that there is a new token."""
        with contextlib.suppress(OSError):  # then they find it when it is their turn
            private_files.touch(self._lock)

"""The login lock of a store that machines share: one process on all machines logs in to an account at a time.

A process first acquires the lock of its own machine. At most one process of each machine therefore polls the store, and
a killed process does not block the others of its machine: the process that holds the lock of a machine can replace a
shared lock that the same machine left behind. The shared lock of a machine that fails expires.
"""

import contextlib
import os
import time
from collections.abc import Iterator

from xapi_cli.auth.login_lock import AnotherLoggedIn, LoginLock
from xapi_cli.store.protocol import LockAttempt, SharedStore
from xapi_cli.system.lock import LockTimeout, LockUnavailable
from xapi_cli.tokens import Identity

_EXTRA_LIFETIME = 15.0  # seconds that the lock lasts beyond the timeout of one login
_FIRST_POLL, _LAST_POLL = 0.02, 0.25  # seconds between two attempts, which grow


class SharedLoginLock:
    """The lock for logins to *identity* in *store*, behind the lock *local* of this machine.

    *login_limit* is the timeout of one login in seconds. Every method raises StoreError if the store cannot be used.
    """

    margin = _EXTRA_LIFETIME + 5.0  # a waiting process outlasts the lock of a machine that has failed

    def __init__(self, local: LoginLock, store: SharedStore, identity: Identity, login_limit: float) -> None:
        self._local, self._store, self._identity = local, store, identity
        self._lifetime = login_limit + _EXTRA_LIFETIME

    @contextlib.contextmanager
    def acquired(self, timeout: float, *, stop_on_login: bool = False, required: bool = True) -> Iterator[bool]:
        """Hold both locks while the body logs in; wait at most *timeout* seconds for them.

        Raises LockTimeout; if the lock is not *required*, takes it over after a timeout: the previous holder cannot
        store its token then. With *stop_on_login*, raises AnotherLoggedIn as soon as another process has stored a
        token.
        """
        end = time.monotonic() + timeout
        with contextlib.ExitStack() as stack:
            machine = ""
            with contextlib.suppress(LockUnavailable):  # the shared lock is sufficient
                local = self._local.acquired(timeout, stop_on_login=stop_on_login, required=required)
                machine = self._local.machine() if stack.enter_context(local) else ""
            self._acquire(end, machine, stop_on_login=stop_on_login, required=required)
            stack.callback(self._store.unlock, self._identity)
            yield True

    def notify_login(self) -> None:
        """Notify the waiting processes of this machine; those of other machines see the new record."""
        self._local.notify_login()

    def _acquire(self, end: float, machine: str, *, stop_on_login: bool, required: bool) -> None:
        attempt, pause = self._attempt(machine), _FIRST_POLL
        before = attempt.version
        while not attempt.is_acquired:
            left = end - time.monotonic()
            if left <= 0:
                if required:
                    raise LockTimeout(self._identity.key)
                attempt = self._attempt(machine, force=True)
                continue
            time.sleep(min(left, pause * (0.5 + os.urandom(1)[0] / 255)))  # jitter spreads the attempts of machines
            pause = min(pause * 1.5, _LAST_POLL)
            attempt = self._attempt(machine)
            if attempt.version != before and stop_on_login and not attempt.is_acquired:
                self._local.notify_login()
                raise AnotherLoggedIn

    def _attempt(self, machine: str, *, force: bool = False) -> LockAttempt:
        return self._store.try_lock(self._identity, lifetime=self._lifetime, machine=machine, force=force)

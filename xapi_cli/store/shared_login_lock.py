"""The login lock of a store that machines share: one process on all machines logs in to an account at a time.

A process first acquires its machine's lock. At most one process of each machine therefore polls the store.

Each acquisition has a unique owner ID, a random string, and only its owner releases the shared lock: names of machines
and processes are not unique, because virtual machines that are resumed from one snapshot have the same boot ID, inode
numbers and process IDs. The holder of the lock of the machine records the owner ID in the state directory until it has
released the shared lock, so that the next process of the machine can release it after a kill. The record names the
location of the store: the next process may use another server, database or prefix. The shared lock of a machine that
fails expires.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from xapi_cli.errors import StoreError
from xapi_cli.store.login_lock import AnotherLoggedIn, LoginLock
from xapi_cli.store.login_protocol import LockAttempt, SharedStore
from xapi_cli.system import boot_time
from xapi_cli.system.files import StateFile
from xapi_cli.system.lock import LockTimeout, LockUnavailable
from xapi_cli.tokens import Identity

_EXTRA_LIFETIME = 15.0  # seconds that the lock lasts beyond the timeout of one login
_FIRST_POLL, _LAST_POLL = 0.02, 0.25  # seconds between two attempts, which grow
_MAX_OWNER_FILE = 4096  # bytes
_MAX_OWNERS = 16  # at most about 100 bytes each


class SharedLoginLock:
    """The lock for logins to *identity* in *store*, behind the lock *local* of this machine.

    *login_limit* is the timeout of one login in seconds. Every method raises StoreError if the store cannot be used.
    """

    margin = _EXTRA_LIFETIME + 5.0  # a waiting process outlasts the lock of a machine that has failed

    def __init__(self, local: LoginLock, store: SharedStore, identity: Identity, login_limit: float) -> None:
        self._local, self._store, self._identity = local, store, identity
        self._owner_file = OwnerFile(
            local.file.directory.file(local.file.name.removesuffix("lock") + "owner"), store.location
        )
        self._lifetime = login_limit + _EXTRA_LIFETIME

    @contextlib.contextmanager
    def acquired(self, timeout: float, *, stop_on_login: bool = False, required: bool = True) -> Iterator[None]:
        """Hold both locks while the body logs in; wait at most *timeout* seconds for them.

        Raises LockTimeout; if the lock is not *required*, takes it over after a timeout: the previous holder cannot
        store its token then. With *stop_on_login*, raises AnotherLoggedIn as soon as another process has stored a
        token.
        """
        end = time.monotonic() + timeout
        with contextlib.ExitStack() as stack:
            is_local = False
            with contextlib.suppress(LockUnavailable):  # the shared lock is sufficient
                local = self._local.acquired(timeout, stop_on_login=stop_on_login, required=required)
                is_local = stack.enter_context(local)
            owner = stack.enter_context(self._owner(timeout + self._lifetime, is_local=is_local))
            self._acquire(end, owner, stop_on_login=stop_on_login, required=required)
            yield

    @contextlib.contextmanager
    def _owner(self, lifetime: float, *, is_local: bool) -> Iterator[str]:
        """Yield a new owner ID and release its lock afterwards.

        With *is_local*, this process holds the lock of its machine, so record the ID. The lock will have expired after
        *lifetime* seconds.
        """
        if is_local and (previous := self._owner_file.read()):
            self._store.unlock(self._identity, previous)  # its process was killed, or could not release it
        # virtual machines that are resumed from one snapshot may get the same random bytes, but not at the same time
        owner = f"{os.urandom(16).hex()}-{time.time_ns():x}"
        if is_local:
            self._owner_file.write(owner, lifetime)
        try:
            yield owner
        finally:
            with contextlib.suppress(StoreError):  # the next process of this machine releases it, or it expires
                self._store.unlock(self._identity, owner)
                if is_local:
                    self._owner_file.remove()

    def _acquire(self, end: float, owner: str, *, stop_on_login: bool, required: bool) -> None:
        attempt, pause = self._attempt(owner), _FIRST_POLL
        before = attempt.version
        while not attempt.is_acquired:
            left = end - time.monotonic()
            if left <= 0:
                if required:
                    raise LockTimeout(self._identity.key)
                attempt = self._attempt(owner, force=True)
                continue
            time.sleep(min(left, pause * (0.5 + os.urandom(1)[0] / 255)))  # jitter spreads the attempts of machines
            pause = min(pause * 1.5, _LAST_POLL)
            attempt = self._attempt(owner)
            if attempt.version != before and stop_on_login and not attempt.is_acquired:
                self._local.notify_login()
                raise AnotherLoggedIn

    def _attempt(self, owner: str, *, force: bool = False) -> LockAttempt:
        return self._store.try_lock(self._identity, owner, lifetime=self._lifetime, force=force)


class OwnerFile:
    """The file *file* with the owner IDs of shared locks that processes of this machine hold or will try to acquire.

    It has one owner ID for each location of a store; this object reads and changes that of *location*. It remains until
    its lock is released or has expired. An owner ID is valid only until the machine reboots: if the state directory is
    in a network file system that locks for each machine separately, the owner ID of another machine may be that of a
    running process.
    """

    def __init__(self, file: StateFile, location: str) -> None:
        self._file, self._location = file, location

    def read(self) -> str:
        """Return the owner ID, or an empty string if there is none."""
        return next((entry.owner for entry in self._entries() if entry.location == self._location), "")

    def write(self, owner: str, lifetime: float) -> None:
        """Record the owner ID *owner* for *lifetime* seconds, if possible."""
        expires = int(boot_time.since_boot() + lifetime) + 1
        self._replace([*self._others(), _Owner(self._location, expires, owner)])

    def remove(self) -> None:
        """Remove the owner ID, and the file if it contains no others, if possible."""
        self._replace(self._others())

    def _others(self) -> "list[_Owner]":
        return [entry for entry in self._entries() if entry.location != self._location]

    def _entries(self) -> "list[_Owner]":
        """Return the entries of this boot that have not expired."""
        data = b""
        with contextlib.suppress(OSError):
            data = self._file.read(limit=_MAX_OWNER_FILE) or b""
        boot, *lines = data.decode("ascii", "replace").split("\n")
        if boot != boot_time.boot_name():
            return []
        now = boot_time.since_boot()
        return [entry for entry in map(_entry, lines) if entry is not None and entry.expires > now]

    def _replace(self, entries: "list[_Owner]") -> None:
        lines = [f"{entry.location} {entry.expires} {entry.owner}" for entry in entries[-_MAX_OWNERS:]]
        with contextlib.suppress(OSError):
            if lines:
                self._file.replace("\n".join([boot_time.boot_name(), *lines]).encode(), sync=False)
            else:
                self._file.remove()


class _Owner(NamedTuple):
    """The owner ID of the lock of a store at *location*; *expires* is in seconds since boot."""

    location: str
    expires: int
    owner: str


def _entry(line: str) -> _Owner | None:
    fields = line.split(" ")
    if len(fields) != 3 or not fields[1].isdigit():
        return None
    return _Owner(fields[0], int(fields[1]), fields[2])

"""What the keeper holds: records, the generations of their keys, login failures and locks.

All of it is bounded, and this module does no I/O and has no clock.
"""

import ctypes
import mmap
import os
from collections import deque
from contextlib import suppress
from functools import cache
from typing import Generic, NamedTuple, TypeVar

from xapi_cli.store.agent.messages import ANY, FAILURE_LIFETIME, MAX_RECORDS, Held, is_cached

MAX_ERASED = 1024  # erased keys whose generations are remembered
MAX_FAILURES = 1024
MAX_FAILURE_BYTES = 1024 * 1024  # of all failures together
_PAGE = mmap.PAGESIZE

Owner = TypeVar("Owner")


class LockedMemory:
    """*size* bytes for a secret, initially zero, which `view` contains, in separate pages that are not dumped.

    They are overwritten when nothing refers to this object, and not written to swap space where the limits allow it:
    `is_locked` is False if RLIMIT_MEMLOCK does not allow the pages to be locked (mlock(2)).
    """

    def __init__(self, size: int) -> None:
        self._pages = mmap.mmap(-1, -(-max(size, 1) // _PAGE) * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for advice in ("MADV_DONTDUMP", "MADV_DONTFORK"):  # Linux
            with suppress(OSError, AttributeError):
                self._pages.madvise(getattr(mmap, advice))
        self.is_locked = self._lock()
        self.view = memoryview(self._pages)[:size]

    def __del__(self) -> None:
        if not hasattr(self, "view"):
            return  # the system had no memory
        self.view.release()
        self._pages[:] = bytes(len(self._pages))
        self._pages.close()  # which unlocks the pages

    def _lock(self) -> bool:
        try:
            mlock = _c_library().mlock
        except (OSError, AttributeError):
            return False
        mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        first = ctypes.c_char.from_buffer(self._pages)
        return bool(mlock(ctypes.addressof(first), len(self._pages)) == 0)


@cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None)  # each call creates a class, which only the garbage collector frees


class HeldRecord(NamedTuple):
    """One *record*, stored at the monotonic time *since*, and the *generation* of its key."""

    record: LockedMemory
    generation: bytes
    since: float


class HeldRecords:
    """Records by key, at most MAX_RECORDS; a new one replaces the cached record that was not used for longest.

    The generation of a key changes when the key is erased, so that a login that began before a logout stores nothing.
    The generations of the keys that were erased longest ago are forgotten. Keys without their own generation
    share one, which then changes: a login in progress may be refused, but never wrongly stored.
    """

    def __init__(self) -> None:
        self._epoch, self._erasures = os.urandom(8), 0
        self._records: dict[bytes, HeldRecord] = {}
        self._erased: dict[bytes, bytes] = {}
        self._shared = self._next_generation()

    def get(self, key: bytes) -> tuple[LockedMemory | None, bytes]:
        """Return the record of *key*, None if there is none, and the generation of the key."""
        if held := self._records.pop(key, None):
            self._records[key] = held  # becomes the latest
            return held.record, held.generation
        return None, self._erased.get(key, self._shared)

    def put(self, key: bytes, record: LockedMemory, expected: bytes, now: float) -> bool:
        """Store *record*, for which there is space; return False if the generation is not *expected*."""
        _, generation = self.get(key)
        if expected not in {ANY, generation}:
            return False
        if key not in self._records and len(self._records) >= MAX_RECORDS:
            del self._records[next(filter(is_cached, self._records))]
        self._records[key] = HeldRecord(record, generation, now)
        return True

    def has_space_for(self, key: bytes) -> bool:
        """Return whether a record of *key* can be stored, if necessary in place of a cached one."""
        return key in self._records or len(self._records) < MAX_RECORDS or any(map(is_cached, self._records))

    def erase(self, key: bytes) -> bool:
        """Erase the record of *key* and change its generation; return whether there was one."""
        self._erased.pop(key, None)  # becomes the latest
        self._erased[key] = self._next_generation()
        if len(self._erased) > MAX_ERASED:
            self._erased.pop(next(iter(self._erased)))
            self._shared = self._next_generation()
        return self._records.pop(key, None) is not None

    def held(self, now: float) -> list[Held]:
        """Return what is held, without the records."""
        return [
            Held(key, len(each.record.view), each.record.is_locked, int(now - each.since))
            for key, each in self._records.items()
        ]

    def clear(self) -> None:
        """Erase all records."""
        self._records.clear()

    def _next_generation(self) -> bytes:
        self._erasures += 1
        return self._epoch + self._erasures.to_bytes(8, "big")


class HeldFailures:
    """Login failures by key, each for FAILURE_LIFETIME; if they exceed a limit, the oldest are dropped.

    They take no place of a record. Each method gets the monotonic time *now*.
    """

    def __init__(self) -> None:
        self._failures: dict[bytes, tuple[float, bytes]] = {}  # the oldest first

    def get(self, key: bytes, now: float) -> bytes | None:
        """Return the failure of *key*, None if there is none."""
        self.seconds_left(now)
        return self._failures[key][1] if key in self._failures else None

    def put(self, key: bytes, failure: bytes, now: float) -> None:
        """Store *failure* in place of the previous one."""
        self._failures.pop(key, None)
        self._failures[key] = (now, failure)
        while len(self._failures) > MAX_FAILURES or self._size() > MAX_FAILURE_BYTES:
            del self._failures[next(iter(self._failures))]

    def erase(self, key: bytes) -> bool:
        """Erase the failure of *key*; return whether there was one."""
        return self._failures.pop(key, None) is not None

    def seconds_left(self, now: float) -> float | None:
        """Drop the failures whose time has passed; return the seconds until that of the next one, None without one."""
        while self._failures:
            key, (since, _) = next(iter(self._failures.items()))
            if (left := since + FAILURE_LIFETIME - now) > 0:
                return left
            del self._failures[key]
        return None

    def _size(self) -> int:
        return sum(len(each) for _, each in self._failures.values())


class Locks(Generic[Owner]):
    """Locks by key, each held by one owner, while others wait in order of arrival."""

    def __init__(self) -> None:
        self._queues: dict[bytes, deque[Owner]] = {}

    def acquire(self, key: bytes, owner: Owner) -> bool:
        """Return whether *owner* has acquired the lock; otherwise, it waits."""
        queue = self._queues.setdefault(key, deque())
        queue.append(owner)
        return queue[0] is owner

    def release(self, key: bytes, owner: Owner) -> Owner | None:
        """Remove *owner* from the queue of *key*; return the owner that thereby acquires the lock, if any."""
        queue = self._queues[key]
        was_first = queue[0] is owner
        queue.remove(owner)
        if not queue:
            del self._queues[key]
            return None
        return queue[0] if was_first else None

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

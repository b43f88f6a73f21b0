"""What the keeper holds: records, the generations of their keys, and locks; bounded, without I/O and a clock."""

import os
from collections import deque
from typing import Generic, NamedTuple, TypeVar

from xapi_cli.store.agent.messages import ANY, MAX_RECORDS, Held
from xapi_cli.system.locked_memory import LockedMemory

MAX_ERASED = 1024  # erased keys whose generations are remembered

Owner = TypeVar("Owner")


class HeldRecord(NamedTuple):
    """One *record*, stored at the monotonic time *since*, and the *generation* of its key."""

    record: LockedMemory
    generation: bytes
    since: float


class HeldRecords:
    """Records by key, at most MAX_RECORDS.

    The generation of a key changes when the key is erased, so that a login that began before a logout stores nothing.
    The generations of the keys that were erased longest ago are forgotten. Keys without a generation of their own
    share one, which then changes: a login in progress may be refused, but never wrongly stored.
    """

    def __init__(self) -> None:
        self._epoch, self._erasures = os.urandom(8), 0
        self._records: dict[bytes, HeldRecord] = {}
        self._erased: dict[bytes, bytes] = {}
        self._shared = self._next_generation()

    def get(self, key: bytes) -> tuple[LockedMemory | None, bytes]:
        """Return the record of *key*, None if there is none, and the generation of the key."""
        if held := self._records.get(key):
            return held.record, held.generation
        return None, self._erased.get(key, self._shared)

    def put(self, key: bytes, record: LockedMemory, expected: bytes, now: float) -> bool:
        """Store *record*; return False, without storing it, if the generation is not *expected*."""
        _, generation = self.get(key)
        if expected not in {ANY, generation}:
            return False
        self._records[key] = HeldRecord(record, generation, now)
        return True

    def has_space_for(self, key: bytes) -> bool:
        """Return whether a record of *key* can be stored."""
        return key in self._records or len(self._records) < MAX_RECORDS

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

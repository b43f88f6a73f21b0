"""The index of accounts that have a stored record, without secrets, so that `logout --all` finds them.

A logout also uses the entry to stop a login in progress in another process: it leaves an empty entry with another
marker. A login that finds a marker other than the one it began with stores nothing.
"""

import json
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from xapi_cli.system import private_files
from xapi_cli.tokens import Identity

_OWN = re.compile(r"[0-9a-f]{32}\.json")
_EMPTY_FOR = 3600.0  # seconds that an empty entry is kept: no login that began before the logout takes longer


class AccountIndex:
    """The index in the directory *directory*; methods let every OSError propagate."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._directory, self._clock = directory, clock

    def logout_marker(self, identity: Identity) -> str:
        """Return the logout marker of the account's entry, which a logout changes; it is empty if there is no entry."""
        entry = self._read(self._path(identity))
        return str(entry["mark"]) if entry else ""

    def has_logout_marker(self, identity: Identity, marker: str) -> bool:
        """Return whether the account was not logged out since its entry had this *marker*."""
        return self.logout_marker(identity) in ("", marker)

    def storages(self, identity: Identity) -> list[str]:
        """Return the names of the stores that hold a record of *identity*."""
        entry = self._read(self._path(identity))
        return [str(name) for name in entry["storages"]] if entry else []

    def revision(self, identity: Identity, storage: str) -> str | None:
        """Return what every `add` and `remove` of the account changes; None if it has no record in *storage*."""
        entry = self._read(self._path(identity))
        if entry is None or storage not in entry["storages"] or "revision" not in entry:
            return None
        return f"{entry['mark']} {entry['revision']}"

    def add(self, identity: Identity, storage: str) -> None:
        """Record that the store named *storage* holds a new record of *identity*."""
        known = self.storages(identity)
        self._write(identity, self.logout_marker(identity), known if storage in known else [*known, storage])

    def remove(self, identity: Identity, *, but: tuple[str, ...] = ()) -> None:
        """Remove the account from the index, except for the stores in *but*; logins in progress will detect it."""
        self._sweep()
        self._write(identity, os.urandom(8).hex(), [name for name in self.storages(identity) if name in but])

    def all(self) -> list[Identity]:
        """Return every account that has a stored record."""
        entries = (self._read(path) for path in private_files.files(self._directory, _OWN))
        return [
            Identity(entry["base_url"], entry["username"])
            for entry in entries
            if entry and entry["storages"] and _names_account(entry)
        ]

    def is_damaged(self) -> bool:
        """Return whether an entry is not valid or does not name its account, so that `all` may lack that account."""
        return any(self._is_damaged(path) for path in private_files.files(self._directory, _OWN))

    def _path(self, identity: Identity) -> Path:
        return self._directory / f"{identity.key}.json"

    def _read(self, path: Path) -> dict[str, Any] | None:
        data = private_files.read(path, limit=64 * 1024)
        try:
            entry = json.loads(data or b"")
        except (ValueError, RecursionError):
            return None
        kinds = {"mark": str, "revision": str, "storages": list, "base_url": str, "username": str}
        fits = isinstance(entry, dict) and {"mark", "storages"} <= entry.keys()
        return (
            entry if fits and all(isinstance(entry[key], kinds[key]) for key in kinds.keys() & entry.keys()) else None
        )

    def _write(self, identity: Identity, marker: str, storages: list[str]) -> None:
        private_files.make_directory(self._directory)
        entry: dict[str, Any] = {"mark": marker, "revision": os.urandom(8).hex(), "storages": storages}
        if storages:  # an empty entry does not identify its account
            entry |= {"base_url": identity.base_url, "username": identity.username}
        private_files.replace(self._path(identity), json.dumps(entry).encode())

    def _is_damaged(self, path: Path) -> bool:
        entry = self._read(path)
        if entry is None:
            return private_files.read(path, limit=0) is not None  # otherwise, another process has removed it
        return bool(entry["storages"]) and not _names_account(entry)

    def _sweep(self) -> None:
        """Remove the empty entries that logouts left more than an hour ago."""
        with suppress(OSError):
            private_files.remove_old(self._directory, _OWN, self._is_obsolete)

    def _is_obsolete(self, path: Path, mtime: float) -> bool:
        entry = self._read(path)
        return entry is not None and not entry["storages"] and abs(self._clock() - mtime) > _EMPTY_FOR


def _names_account(entry: dict[str, Any]) -> bool:
    return {"base_url", "username"} <= entry.keys()

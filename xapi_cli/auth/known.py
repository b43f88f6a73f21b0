"""The index of accounts that something is stored for, without secrets, so that `logout --all` finds them.

An entry is also how a logout reaches a login that is under way elsewhere: it
removes the entry, and the login, which finds another or none than the one it
began with, stores nothing.
"""

import json
import os
from pathlib import Path
from typing import Any

from xapi_cli import folders
from xapi_cli.tokens import Identity


class KnownAccounts:
    """The index in *folder*; every OSError passes through."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def enter(self, identity: Identity) -> str:
        """Return the mark of the account's entry, made where there is none."""
        if (entry := self._read(self._path(identity))) is not None:
            return str(entry["mark"])
        mark = os.urandom(8).hex()
        self._write(identity, mark, [])
        return mark

    def holds(self, identity: Identity, mark: str) -> bool:
        """Tell whether the entry is still the one *mark* names: no logout has come between."""
        entry = self._read(self._path(identity))
        return entry is not None and entry["mark"] == mark

    def storages(self, identity: Identity) -> list[str]:
        """Return the names of the stores that hold something of *identity*."""
        entry = self._read(self._path(identity))
        return [str(name) for name in entry["storages"]] if entry else []

    def add(self, identity: Identity, storage: str) -> None:
        """Note that the store named *storage* holds something of *identity*."""
        entry = self._read(self._path(identity))
        known = [str(name) for name in entry["storages"]] if entry else []
        if entry is None or storage not in known:
            self._write(identity, str(entry["mark"]) if entry else os.urandom(8).hex(), [*known, storage])

    def leave(self, identity: Identity) -> None:
        """Remove the entry of an account for which, after all, nothing is stored."""
        if not self.storages(identity):
            self.forget(identity)

    def mark_anew(self, identity: Identity) -> None:
        """Give the account's entry, where there is one, another mark: a login that began before finds it changed."""
        if (entry := self._read(self._path(identity))) is not None:
            self._write(identity, os.urandom(8).hex(), [str(name) for name in entry["storages"]])

    def forget(self, identity: Identity) -> bool:
        """Remove the account from the index; tell whether something was stored for it."""
        stored = bool(self.storages(identity))
        if self._folder.is_dir():
            folders.remove(self._path(identity))
        return stored

    def all(self) -> list[Identity]:
        """Return every account in the index."""
        if not self._folder.is_dir():
            return []
        entries = (self._read(path) for path in sorted(self._folder.glob("*.json")))
        return [Identity(str(entry["base_url"]), str(entry["username"])) for entry in entries if entry]

    def _path(self, identity: Identity) -> Path:
        return self._folder / f"{identity.key}.json"

    def _read(self, path: Path) -> dict[str, Any] | None:
        if not self._folder.is_dir():
            return None
        data = folders.read(path, limit=64 * 1024)
        try:
            entry = json.loads(data or b"")
        except (ValueError, RecursionError):
            return None
        wanted = {"base_url": str, "username": str, "mark": str, "storages": list}
        fits = isinstance(entry, dict) and all(isinstance(entry.get(key), kind) for key, kind in wanted.items())
        return entry if fits else None

    def _write(self, identity: Identity, mark: str, storages: list[str]) -> None:
        folders.private(self._folder)
        entry = {"base_url": identity.base_url, "username": identity.username, "mark": mark, "storages": storages}
        folders.replace(self._path(identity), json.dumps(entry).encode())

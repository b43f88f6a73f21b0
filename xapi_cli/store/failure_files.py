"""Recorded login failures as files in the state directory, for the processes of one machine.

Machines that share the state directory over a network file system share the failures if their clocks agree.
"""

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from xapi_cli.system import boot_time
from xapi_cli.system.files import StateDirectory, StateFile
from xapi_cli.tokens import Identity

_KEPT_FOR = 60.0  # seconds
_OWN = r"\.?[0-9a-f]{32}\.[a-z]+(?:\.[0-9a-f]{16}\.new)?"  # a pattern


class FailureFiles:
    """The records in the directory *directory*, `store.login_protocol.Failures`; without it, nothing is recorded."""

    def __init__(self, directory: StateDirectory, clock: Callable[[], boot_time.Moment] = boot_time.now) -> None:
        self._directory, self._clock = directory, clock

    def now(self) -> float:
        """Return the seconds since this machine booted."""
        return self._clock().seconds

    def read(self, identity: Identity, kind: str) -> bytes | None:
        """Return the content of the file, or None if it does not exist or cannot be read.

        Its times are those since this boot, even if it was written during another one.
        """
        data = _read(self._file(identity, kind)) if self._has_records() else None
        if data is None or (written := _written(data)) is None:
            return None
        later = written.on_clock_of(self._clock()) - written.seconds
        return data if later == 0 else _moved(data, later)

    def write(self, identity: Identity, kind: str, data: bytes) -> None:
        """Replace the file with *data*, and add when it is written, if that is possible."""
        with suppress(OSError):
            members = json.loads(data) | {"written": str(self._clock())}
            self._file(identity, kind).replace(json.dumps(members).encode(), sync=False)

    def remove(self, identity: Identity, kinds: Sequence[str]) -> None:
        """Remove the files of *kinds*, if that is possible."""
        for kind in kinds if self._has_records() else ():
            with suppress(OSError):
                self._file(identity, kind).remove()

    def remove_old(self) -> None:
        """Remove the files of all accounts that are older than a minute, if that is possible."""
        if self._has_records():
            with suppress(OSError):
                self._directory.remove_old(_OWN, self._is_old)

    def _has_records(self) -> bool:
        return os.path.isdir(self._directory.path)  # usually, no login has failed: one system call

    def _is_old(self, file: StateFile, mtime: float) -> bool:
        written = _written(_read(file) or b"", mtime)
        return written is None or written.age(self._clock()) > _KEPT_FOR

    def _file(self, identity: Identity, kind: str) -> StateFile:
        return self._directory.file(f"{identity.key}.{kind}")


def _read(file: StateFile) -> bytes | None:
    with suppress(OSError):
        return file.read(limit=64 * 1024)
    return None


def _written(data: bytes, mtime: float | None = None) -> boot_time.Moment | None:
    """Return when *data* was written, by the *mtime* of its file if it is given and *data* is not valid."""
    try:
        text = json.loads(data)["written"]
    except (ValueError, RecursionError, TypeError, KeyError):
        text = None
    return boot_time.parsed(text, mtime=mtime)


def _moved(data: bytes, seconds: float) -> bytes:
    """Return the valid *data* with all times *seconds* later."""

    def move(members: dict[str, Any]) -> dict[str, Any]:
        at = members.get("at")
        return members | {"at": at + seconds} if isinstance(at, float) else members

    return json.dumps(json.loads(data, object_hook=move)).encode()

"""Recorded login failures as files in the state directory, for the processes of one machine."""

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from xapi_cli.system import private_files
from xapi_cli.tokens import Identity

_KEPT_FOR = 60.0  # seconds
_OWN = re.compile(r"\.?[0-9a-f]{32}\.[a-z]+(?:\.[0-9a-f]{16}\.new)?")


class FailureFiles:
    """The records in the directory *directory*, `store.protocol.Failures`; without it, nothing is recorded."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._directory, self._clock = directory, clock

    def now(self) -> float:
        """Return the current Unix time."""
        return self._clock()

    def read(self, identity: Identity, kind: str) -> bytes | None:
        """Return the content of the file, or None if it does not exist or cannot be read."""
        with suppress(OSError):
            return private_files.read(self._path(identity, kind), limit=64 * 1024)
        return None

    def write(self, identity: Identity, kind: str, data: bytes) -> None:
        """Replace the file with *data*, if that is possible."""
        with suppress(OSError):
            private_files.make_directory(self._directory)
            private_files.replace(self._path(identity, kind), data, sync=False)

    def remove(self, identity: Identity, kinds: Sequence[str]) -> None:
        """Remove the files of *kinds*, if that is possible."""
        for kind in kinds:
            with suppress(OSError):
                private_files.remove(self._path(identity, kind))

    def remove_old(self) -> None:
        """Remove the files of all accounts that are older than a minute, if that is possible."""
        with suppress(OSError):
            private_files.remove_old(self._directory, _OWN, lambda _, mtime: abs(self._clock() - mtime) > _KEPT_FOR)

    def _path(self, identity: Identity, kind: str) -> Path:
        return self._directory / f"{identity.key}.{kind}"

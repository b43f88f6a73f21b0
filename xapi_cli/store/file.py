"""Storage `file`: one private file per account, in one private directory."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from xapi_cli.errors import StoreError
from xapi_cli.store import record as records
from xapi_cli.system import private_files
from xapi_cli.tokens import Identity, Record


class FileStore:
    """Store tokens, without passwords, in the directory `tokens` of the state directory *state*."""

    name: Literal["file"] = "file"
    remembers = False

    def __init__(self, state: Path, notify: Callable[[str], None]) -> None:
        self._folder = state / "tokens"
        self._notify = notify

    def probe(self) -> None:
        """Raise StoreError unless a file of the usual record size can be written."""
        with _failures("write", self._folder / "probe"):
            private_files.probe(self._folder, 4096)

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none or it is not usable."""
        path = self._path(identity)
        with _failures("read", path):
            data = private_files.read(path, limit=records.LIMIT, notify=self._notify)
        return records.decode(identity, None if data is None else data.decode("ascii", "replace"))

    def write(self, identity: Identity, record: Record) -> None:
        """Store the token of *record*; on return it is on disk, and after a failure the previous one is intact."""
        path = self._path(identity)
        data = records.encode(identity, Record(record.token)).encode("ascii")
        with _failures("write", path):
            private_files.private(self._folder, notify=self._notify)
            private_files.replace(path, data)

    def delete(self, identity: Identity) -> bool:
        """Delete the file of *identity*; return whether there was one."""
        path = self._path(identity)
        with _failures("remove", path):
            return private_files.remove(path)

    def _path(self, identity: Identity) -> Path:
        return self._folder / f"{identity.key}.json"


@contextlib.contextmanager
def _failures(doing: str, path: Path) -> Iterator[None]:
    """Convert an OSError about *path* to StoreError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StoreError(
            f"cannot {doing} the token file {path}: {reason}",
            hint="set XAPI_STATE_DIR to a folder of yours that can be written, or use --storage none",
        ) from error

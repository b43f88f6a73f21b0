"""Storage `file`: one private file per account, in one private directory."""

import contextlib
import errno
from collections.abc import Callable, Iterator
from functools import cache

from xapi_cli.errors import StoreError
from xapi_cli.system.files import StateDirectory, StateFile
from xapi_cli.tokens import MAX_RECORD, Identity, Record, decode_record, encode_record


class FileStore:
    """Store tokens, without passwords, in the directory `tokens` of the state directory *state*."""

    def __init__(self, state: StateDirectory, warn: Callable[[str], None]) -> None:
        self._directory = directory = state.directory("tokens")
        self._file = cache(lambda identity: directory.file(f"{identity.key}.json"))
        self._warn = warn

    def probe(self) -> None:
        """Raise StoreError unless a file of the usual record size can be written."""
        with _file_errors("write", self._directory.file("probe")):
            self._directory.probe(4096)

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none or it is not usable."""
        file = self._file(identity)
        with _file_errors("read", file):
            data = file.read(limit=MAX_RECORD)
        return decode_record(identity, None if data is None else data.decode("ascii", "replace"))

    def write(self, identity: Identity, record: Record) -> None:
        """Store the token of *record*; on return it is on disk, and after a failure the previous one is intact."""
        file = self._file(identity)
        data = encode_record(identity, Record(record.token)).encode("ascii")
        with _file_errors("write", file):
            file.replace(data)

    def delete(self, identity: Identity) -> bool:
        """Delete the file of *identity*; return whether there was one."""
        file = self._file(identity)
        with _file_errors("remove", file):
            return file.remove()


@contextlib.contextmanager
def _file_errors(doing: str, file: StateFile) -> Iterator[None]:
    """Convert an OSError about *file* to StoreError."""
    try:
        yield
    except OSError as error:
        is_link = error.errno == errno.ELOOP
        if doing == "write" and not is_link:  # as for the lock, which needs the directory as well
            from xapi_cli.system.lock import state_error

            raise state_error(file.directory.path.parent, error) from error
        reason = "a symbolic link, which is not followed" if is_link else error.strerror or type(error).__name__
        raise StoreError(
            f"cannot {doing} the token file {file.path}: {reason}",
            hint="check the file",
            alternative="set XAPI_STATE_DIR to another directory",
        ) from error

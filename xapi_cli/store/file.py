"""Storage `file`: one private file per account, in one private directory; and storage `none`: memory."""

import contextlib
from collections.abc import Iterator

from xapi_cli.errors import StoreError
from xapi_cli.store.protocol import StoreOptions
from xapi_cli.system.files import StateFile
from xapi_cli.system.render import printable
from xapi_cli.tokens import MAX_RECORD, Identity, Record, decode_record, encode_record


class FileStore:
    """Store tokens, without passwords, in the directory `tokens` of the state directory."""

    def __init__(self, options: StoreOptions) -> None:
        self._directory = options.state.directory("tokens")

    def probe(self) -> None:
        """Raise StoreError unless a file of the usual record size can be written."""
        with self._errors("write", self._directory.file("probe")):
            self._directory.probe()

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none or it is not usable."""
        file = self._file(identity)
        with self._errors("read", file):
            data = file.read(limit=MAX_RECORD)
        return decode_record(identity, None if data is None else data.decode("ascii", "replace"))

    def write(self, identity: Identity, record: Record) -> None:
        """Store the token of *record*; on return it is on disk, and after a failure the previous one is intact."""
        file = self._file(identity)
        data = encode_record(identity, Record(record.token)).encode("ascii")
        with self._errors("write", file):
            file.replace(data)

    def delete(self, identity: Identity) -> bool:
        """Delete the file of *identity*; return whether there was one."""
        file = self._file(identity)
        with self._errors("remove", file):
            return file.remove()

    def _file(self, identity: Identity) -> StateFile:
        return self._directory.file(f"{identity.key}.json")

    @contextlib.contextmanager
    def _errors(self, doing: str, file: StateFile) -> Iterator[None]:
        """Convert an OSError about *file* to StoreError."""
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"cannot {doing} the token file {printable(str(file.path))}: {error.strerror or type(error).__name__}",
                hint="check its permissions and free space",
                alternative="set XAPI_STATE_DIR to another local directory",
            ) from error


class MemoryStore:
    """Store tokens as long as the process exists."""

    def __init__(self, options: StoreOptions) -> None:
        self._records: dict[Identity, Record] = {}

    def probe(self) -> None:
        """Do nothing: memory is always available."""

    def read(self, identity: Identity) -> Record | None:
        """Return the record of *identity*, or None if there is none."""
        return self._records.get(identity)

    def write(self, identity: Identity, record: Record) -> None:
        """Store the token of *record*, without the password."""
        self._records[identity] = record._replace(password=None)

    def delete(self, identity: Identity) -> bool:
        """Delete the record of *identity*; return whether there was one."""
        return self._records.pop(identity, None) is not None

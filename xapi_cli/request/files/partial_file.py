"""A download that is kept when it is interrupted, so that it can be resumed.

The data is in FILE.part, and FILE.part.json has what is needed to resume it (see `part_record`). Both have mode 0600. A
process that is killed loses the bytes of the last second. If it is killed right after the complete part was moved to
FILE, FILE.part.json remains until the next download to FILE.
"""

import errno
import os
import stat
import sys
import time
from contextlib import suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from zlib import crc32

from xapi_cli.errors import NetworkError, OutputError, UsageError
from xapi_cli.request.files import ranges
from xapi_cli.request.files.atomic_file import check_name, is_descriptor, mode_of, set_mode, write_error
from xapi_cli.request.files.part_record import PartRecord, State, digest
from xapi_cli.system import private_files
from xapi_cli.system.render import printable, size_of_total
from xapi_cli.system.safe_paths import OpenDirectory, open_parent

if TYPE_CHECKING:
    from xapi_cli.http.messages import Headers
    from xapi_cli.request.files.ranges import Version

_BLOCK = 1024 * 1024  # bytes per read
_RECORD_INTERVAL = 1.0  # seconds between two records of the bytes written


class PartialFile:
    """The file *name*, downloaded to FILE.part first.

    *source* is all that the content depends on: the URL, the account and the headers. Only a digest of it is stored.
    In a `with` block, the part is kept if it can be resumed, and deleted otherwise. The methods raise OutputError,
    which names the file.
    """

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self._source = source
        self._salt = os.urandom(16).hex()  # of the digests
        self._version: Version | None = None  # None: the download cannot be resumed
        self._end: int | None = None  # the size of the whole file, if it is known
        self._good = (0, 0)  # how many bytes of the part are known to be good, and their CRC-32; one value, for signals
        self._has_begun = False  # until then, the part is not changed
        self._is_own = False  # the part was created by xapi
        self._recorded_at = 0.0
        self._directory: OpenDirectory | None = None
        self._target = ""  # the name of the file to replace: the target, if FILE is a symbolic link
        self._part = ""  # the name of the part
        self._record: PartRecord | None = None
        self._file: FileIO | None = None

    def open(self) -> None:
        """Open the part, and lock it against other processes.

        Raises UsageError if FILE is not a regular file, another process uses the part, or xapi did not create it. A
        part that is damaged, or that belongs to another request, will be overwritten.
        """
        try:
            self._open_directory()
            self._open()
            self._restore()
        except (OSError, ValueError) as error:
            raise self._error(error) from error

    @property
    def count(self) -> int:
        """How many bytes are in the part."""
        return self._good[0]

    @staticmethod
    def accepts(status: int) -> bool:
        """Return whether the body of a response with *status* is, or continues, the file."""
        return 200 <= status < 300

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers of the next request: they ask for the rest of the file if there is a part."""
        return ranges.headers(self._version if self.count else None, self._start)

    def problem(self, status: int, fields: "Headers", url: str) -> str | None:
        """Return why the response to a request with `headers` does not continue the part, None if it does.

        After a failure, the part remains. Raises NetworkError for a part that was not requested, and for another
        success than the rest or the whole file.
        """
        if self._version is None or not self.count:
            if status == 206:
                raise NetworkError("the server sent a part of the file, which was not requested", headers_received=True)
            return None
        if status == 206:
            return ranges.problem(self._version, self._start, fields, digest(url, self._salt))
        if status != 200 and self.accepts(status):
            raise NetworkError(
                f"the server sent neither the rest of the file nor all of it: {status}", headers_received=True
            )
        return "the file on the server has changed" if status == 416 else None

    def why_whole(self, fields: "Headers", url: str) -> str | None:
        """Return why a response with the header *fields* has the whole file; None if there is no part to continue."""
        if self._version is None or not self.count:
            return None
        return ranges.why_whole(self._version, fields, digest(url, self._salt))

    def forget(self) -> None:
        """Download the whole file next; the part remains until its first bytes arrive."""
        self._version, self._good = None, (0, 0)

    def begin(self, status: int, fields: "Headers", url: str) -> None:
        """Prepare for the body of a response without a `problem`: it continues the part, or replaces it."""
        self._has_begun = True
        try:
            if status == 206:
                self._end = ranges.total_of(fields)
                self._truncate(self._start)
            else:
                self.forget()
                self._version = ranges.version_of(fields, digest(url, self._salt)) if status == 200 else None
                self._end = None if ranges.is_coded(fields) else ranges.length_of(fields)
                self.record()  # first: a part without a record would not be recognized
                self._truncate(0)
        except OSError as error:
            raise self._error(error) from error

    def write(self, data: bytes) -> None:
        """Append *data* to the part; raises NetworkError if the server sends more than it declared."""
        if self._end is not None and self.count + len(data) > self._end:
            self.forget()
            raise NetworkError("the server sent more data than it declared", headers_received=True)
        rest = memoryview(data)
        try:
            while rest:
                written = self._opened().write(rest)
                self._good = (self.count + written, crc32(rest[:written], self._good[1]))
                rest = rest[written:]
            if self._version is not None and time.monotonic() - self._recorded_at >= _RECORD_INTERVAL:
                self.record()
        except OSError as error:
            raise self._error(error) from error

    def commit(self) -> None:
        """Move the part, which is complete, to FILE.

        Raises NetworkError if the server sent less than it declared, OutputError if the part was replaced meanwhile.
        """
        if self._end is not None and self.count != self._end:
            raise NetworkError("the server sent only a part of the file", headers_received=True)
        directory = self._opened_directory()
        try:
            if not self._is_locked():
                self.forget()
                raise OSError(errno.ESTALE, f"{printable(self._part)} was replaced by another process")
            set_mode(self._opened().fileno(), mode_of(directory, self._target))
            if sys.platform == "win32":
                self._opened().close()  # Windows cannot rename an open file
            directory.rename(self._part, self._target)
            self.forget()
            self._remove_record()
        except OSError as error:
            raise self._error(error) from error

    def record(self) -> None:
        """Record how many bytes were written, unless the part was replaced meanwhile; raises OSError."""
        self._recorded_at = time.monotonic()
        if self._record is not None and self._is_locked():
            self._record.write(self._state())

    @property
    def kept(self) -> str:
        """What is kept if the download ends now, for messages; empty if nothing is kept."""
        if self._version is None or not self.count or not self._is_locked():
            return ""
        return f"{size_of_total(self.count, self._version.total)} kept in {printable(self.name)}.part"

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None and not self._file.closed:
            with suppress(OSError):  # the disk may be full: then the previous record counts
                self._keep_or_remove()
            self._file.close()
        if self._directory is not None:
            self._directory.close()

    def _keep_or_remove(self) -> None:
        if not self._is_locked():  # it was moved to FILE, or replaced
            return
        if self._has_begun and self.kept:
            self.record()
        elif self._has_begun or not os.fstat(self._opened().fileno()).st_size:
            if self._has_begun or self._is_own:
                if sys.platform == "win32":
                    self._opened().close()  # Windows cannot remove an open file
                self._opened_directory().unlink(self._part)
            self._remove_record()

    def _open_directory(self) -> None:
        if is_descriptor(self.name):
            raise self._irregular()
        check_name(self.name)
        directory, name = self._directory, self._target = open_parent(self.name, follow=True)  # a link is preserved
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(directory.status_of(name).st_mode):
                raise self._irregular()
            if not directory.is_writable(name):
                raise PermissionError(0, "the file is read-only")
        self._part = f"{name}.part"
        self._record = PartRecord(directory, f"{name}.part.json")

    def _open(self) -> None:
        directory = self._opened_directory()
        while self._file is None:
            descriptor, self._is_own = _opened_or_created(directory, self._part)
            file = open(descriptor, "r+b", buffering=0)  # noqa: SIM115 - closed by __exit__
            try:
                self._lock(file, directory.path / self._part)
                # if it is not the same file, another process has just moved it to FILE, or removed it: try again
                if _is_same(directory, self._part, file):
                    self._file = file
            finally:
                if self._file is None:
                    file.close()

    def _lock(self, file: FileIO, part: Path) -> None:
        """Lock the *file* of the part; raise OSError if it is not a private file, UsageError if it is locked."""
        private_files.check_is_private(file.fileno(), part)
        if os.fstat(file.fileno()).st_nlink > 1:
            raise OSError(errno.EMLINK, "it has more than one hard link", part.name)
        if not private_files.lock_unless_locked_elsewhere(file.fileno()):
            raise UsageError(
                f"another process is downloading {printable(self.name)}", hint="wait for it, or choose another file"
            )

    def _restore(self) -> None:
        """Restore the state of an earlier download, unless it is of another request or the part is damaged.

        The record is written, because a directory or a name that does not permit it must be reported before the
        request. Raises UsageError if the part or its record was not created by xapi.
        """
        assert self._record is not None  # noqa: S101 - open() comes first
        part = self._opened_directory().path / self._part
        file, state = self._opened(), self._record.read()
        size_found = os.fstat(file.fileno()).st_size
        if size_found and state is None:
            raise UsageError(f"{printable(str(part))} was not created by xapi", hint="move it, or choose another file")
        self._is_own = self._is_own or state is not None
        if (
            state
            and state.key == digest(self._source, state.salt)
            and self._checksum_of(state.length) == state.checksum
        ):
            self._salt, self._version, self._good = state.salt, state.version, (state.length, state.checksum)
        if size_found:
            private_files.restrict_mode(file.fileno(), part)
        with suppress(OSError):  # the directory may not be readable
            self._record.remove_unfinished()
        if size_found:
            self._record.rewrite()
        else:
            self._record.write(self._state())

    def _state(self) -> State:
        length, checksum = self._good if self._version else (0, 0)
        return State(self._salt, digest(self._source, self._salt), self._version, length, checksum)

    def _is_locked(self) -> bool:
        """Return whether FILE.part is still the file that this process has locked."""
        return self._file is not None and _is_same(self._opened_directory(), self._part, self._file)

    @property
    def _start(self) -> int:
        """Where the rest starts; of a complete part, the last byte is requested again, to learn if it is current."""
        is_complete = self._version is not None and self.count == self._version.total
        return self.count - 1 if is_complete else self.count

    def _checksum_of(self, count: int) -> int:
        """Return the CRC-32 of the first *count* bytes of the part, -1 if it has fewer."""
        file, value = self._opened(), 0
        file.seek(0)
        while count > 0:
            block = file.read(min(count, _BLOCK))
            if not block:
                return -1
            value, count = crc32(block, value), count - len(block)
        return value

    def _truncate(self, count: int) -> None:
        """Truncate the part to its first *count* bytes; until then, its record remains valid for a killed process."""
        if count != self.count:
            self._good = (count, self._checksum_of(count))
        if count:
            self.record()
        file = self._opened()
        file.truncate(count)
        file.seek(count)

    def _remove_record(self) -> None:
        if self._record is not None:
            self._record.remove(self._salt)

    def _opened_directory(self) -> OpenDirectory:
        assert self._directory is not None  # noqa: S101 - open() comes first
        return self._directory

    def _opened(self) -> FileIO:
        assert self._file is not None  # noqa: S101 - open() comes first
        return self._file

    def _irregular(self) -> UsageError:
        return UsageError(
            f"{printable(self.name)} is not a regular file, which could be continued",
            hint="omit --continue, or choose another file",
        )

    def _error(self, error: OSError | ValueError) -> OutputError:
        is_of_part = bool(self._part) and getattr(error, "filename", None) == self._part
        return write_error(f"{self.name}.part" if is_of_part else self.name, error)


def _opened_or_created(directory: OpenDirectory, part: str) -> tuple[int, bool]:
    """Return the descriptor of the file *part*, and whether it was created."""
    flags = os.O_RDWR | getattr(os, "O_NONBLOCK", 0)
    while True:
        with suppress(FileExistsError):
            return directory.open(part, flags | os.O_CREAT | os.O_EXCL), True
        with suppress(FileNotFoundError):  # another process has just moved or removed it
            return directory.open(part, flags), False


def _is_same(directory: OpenDirectory, name: str, file: FileIO) -> bool:
    """Return whether *name* still names the open *file*."""
    try:
        return os.path.samestat(directory.status_of(name), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False

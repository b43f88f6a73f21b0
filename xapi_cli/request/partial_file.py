"""A download that is kept when it is interrupted, so that it can be resumed.

The data is in FILE.part, and FILE.part.json has what is needed to resume it: the version of the file on the server, and
how many bytes have been written, with their checksum. Both have mode 0600. A process that is killed loses the bytes of
the last second.
"""

import errno
import json
import os
import re
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from io import FileIO
from types import TracebackType
from typing import NamedTuple, Self
from zlib import crc32

from xapi_cli.errors import NetworkError, OutputError, UsageError
from xapi_cli.request import ranges
from xapi_cli.request.atomic_file import mode_of, set_mode
from xapi_cli.request.ranges import Version
from xapi_cli.system import private_files
from xapi_cli.system.render import printable, size
from xapi_cli.system.safe_paths import AnchoredPath, anchored_path

_BLOCK = 1024 * 1024  # bytes per read
_RECORD_INTERVAL = 1.0  # seconds between two records of the bytes written
_MAX_RECORD = 64 * 1024  # bytes


class _State(NamedTuple):
    """The content of FILE.part.json: a digest of the URL, the version, and the bytes written with their CRC-32."""

    key: str
    version: Version
    length: int
    checksum: int


class PartialFile:
    """The file *name*, downloaded from *url* to FILE.part first.

    In a `with` block, the part is kept if it can be resumed, and deleted otherwise. The methods raise OutputError,
    which names the file.
    """

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self._key = _digest(url)
        self._version: Version | None = None  # None: the download cannot be resumed
        self._end: int | None = None  # the size of the whole file, if it is known
        self._good = (0, 0)  # how many bytes of the part are known to be good, and their CRC-32; one value, for signals
        self._has_begun = False  # until then, the part is not changed
        self._recorded_at = 0.0
        self._target: AnchoredPath | None = None
        self._part: AnchoredPath | None = None
        self._record: AnchoredPath | None = None
        self._file: FileIO | None = None

    def open(self) -> None:
        """Open the part, and lock it against other processes.

        Raises UsageError if FILE is not a regular file or another process uses the part. A part that is damaged, or
        that belongs to another request, will be overwritten.
        """
        try:
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

    def problem(self, status: int, fields: Mapping[str, str], url: str) -> str | None:
        """Return why the response to a request with `headers` does not continue the part, None if it does.

        After a failure, the part remains. Raises NetworkError for a part that was not requested.
        """
        if self._version is None or not self.count:
            if status == 206:
                raise NetworkError("the server sent a part of the file, which was not requested", headers_received=True)
            return None
        if status == 206:
            return ranges.problem(self._version, self._start, fields, _digest(url))
        return "the file on the server has changed" if status == 416 else None

    def forget(self) -> None:
        """Download the whole file next; the part remains until its first bytes arrive."""
        self._version, self._good = None, (0, 0)

    def begin(self, status: int, fields: Mapping[str, str], url: str) -> None:
        """Prepare for the body of a response without a `problem`: it continues the part, or replaces it."""
        self._has_begun = True
        try:
            if status == 206:
                self._end = ranges.total_of(fields)
                self._truncate(self._start)
            else:
                self.forget()
                self._remove_record()
                self._truncate(0)
                self._version = ranges.version_of(fields, _digest(url))
                self._end = None if ranges.is_coded(fields) else ranges.length_of(fields)
                self.record()
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
            if time.monotonic() - self._recorded_at >= _RECORD_INTERVAL:
                self.record()
        except OSError as error:
            raise self._error(error) from error

    def commit(self) -> None:
        """Move the part, which is complete, to FILE; raises NetworkError if the server sent less than it declared."""
        if self._end is not None and self.count != self._end:
            raise NetworkError("the server sent only a part of the file", headers_received=True)
        assert self._target is not None  # noqa: S101 - open() comes first
        assert self._part is not None  # noqa: S101 - open() comes first
        try:
            set_mode(self._opened().fileno(), mode_of(self._target))
            if os.name == "nt":
                self._opened().close()  # Windows cannot rename an open file
            self._part.rename(self._target)
            self.forget()
            self._remove_record()
        except OSError as error:
            raise self._error(error) from error

    def record(self) -> None:
        """Record how many bytes were written, if the download can be resumed."""
        self._recorded_at = time.monotonic()
        if self._version is None or self._record is None:
            return
        length, checksum = self._good
        state = {"key": self._key, **self._version._asdict(), "length": length, "crc32": checksum}
        private_files.write(self._record, json.dumps(state).encode(), sync=False)

    @property
    def kept(self) -> str:
        """What is kept if the download ends now, for messages; empty if nothing is kept."""
        if self._version is None or not self.count:
            return ""
        of_total = f" of {size(self._version.total)}" if self._version.total else ""
        return f"{size(self.count)}{of_total} kept in {printable(self.name)}.part"

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
        if self._target is not None:
            self._target.close()

    def _keep_or_remove(self) -> None:
        if self._has_begun and self.kept:
            self.record()
        elif self._part is not None and (self._has_begun or not os.fstat(self._opened().fileno()).st_size):
            if _is_same(self._part, self._opened()):  # it was not moved to FILE
                self._part.unlink()
            self._remove_record()

    def _open(self) -> None:
        self._target = target = anchored_path(self.name, follow=True)  # a symbolic link is preserved
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(target.status().st_mode):
                raise UsageError(
                    f"{printable(self.name)} is not a regular file", hint="omit --continue, or choose another file"
                )
            if not target.is_writable():
                raise PermissionError(0, "the file is read-only")
        self._part = part = target.sibling(f"{target.path.name}.part")
        self._record = target.sibling(f"{target.path.name}.part.json")
        while self._file is None:
            descriptor = part.open(os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0))
            file = open(descriptor, "r+b", buffering=0)  # noqa: SIM115 - closed by __exit__
            try:
                self._check(file, part)
                if _is_same(part, file):  # otherwise another process has just moved it to FILE, or removed it
                    self._file = file
            finally:
                if self._file is None:
                    file.close()

    def _check(self, file: FileIO, part: AnchoredPath) -> None:
        """Lock the *file* of the part; raise OSError if others can access it, UsageError if it is locked."""
        private_files.restrict_mode(file.fileno(), part.path)
        if os.fstat(file.fileno()).st_nlink > 1:
            raise OSError(errno.EMLINK, "its part has another name, too")
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another process is downloading {printable(self.name)}", hint="wait for it, or choose another file"
            ) from None
        except (OSError, ImportError):
            pass  # the file system or the platform does not support locks

    def _restore(self) -> None:
        """Restore the state of an earlier download, unless it is of another request or the part is damaged."""
        state = self._read_state()
        if state and state.key == self._key and self._checksum_of(state.length) == state.checksum:
            self._version, self._good = state.version, (state.length, state.checksum)

    @property
    def _start(self) -> int:
        """Where the rest starts; of a complete part, the last byte is requested again, to learn if it is current."""
        is_complete = self._version is not None and self.count == self._version.total
        return self.count - 1 if is_complete else self.count

    def _read_state(self) -> _State | None:
        assert self._record is not None  # noqa: S101 - open() comes first
        try:
            descriptor = self._record.open(os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError:  # missing, or a symbolic link
            return None
        try:
            with open(descriptor, "rb") as file:
                private_files.restrict_mode(descriptor, self._record.path)
                return _parsed(file.read(_MAX_RECORD))
        except (OSError, ValueError, RecursionError):
            return None

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
            name = re.escape(f".{self._record.path.name}.") + r"[0-9a-f]{16}\.new"
            with suppress(OSError):  # the directory may not be readable
                private_files.remove_abandoned(self._record, re.compile(name))
            with suppress(FileNotFoundError):
                self._record.unlink()

    def _opened(self) -> FileIO:
        assert self._file is not None  # noqa: S101 - open() comes first
        return self._file

    def _error(self, error: OSError | ValueError) -> OutputError:
        reason = (error.strerror if isinstance(error, OSError) else None) or "the name is not valid"
        return OutputError(f"{printable(self.name)} cannot be written: {reason}", hint="choose another file")


def _digest(url: str) -> str:
    """Return a digest of *url*, which may contain secrets that are not to be stored."""
    return sha256(url.encode("utf-8", "surrogateescape")).hexdigest()


def _parsed(data: bytes) -> _State | None:
    """Return the state in *data*, None if it is not valid."""
    match json.loads(data):
        case {
            "key": str(key),
            "validator": str(validator),
            "total": int() | None as total,
            "url": str(url),
            "length": int(length),
            "crc32": int(checksum),
        } if length >= 0 and (total is None or length <= total) and ranges.is_validator(validator):
            return _State(key, Version(validator, total, url), length, checksum)
    return None


def _is_same(path: AnchoredPath, file: FileIO) -> bool:
    """Return whether *path* still names the open *file*."""
    try:
        return os.path.samestat(path.status(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False

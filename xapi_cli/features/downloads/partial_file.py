"""A download that is kept when it is interrupted, so that it can be resumed.

The data is in FILE.part, and FILE.part.json says of which version on the server and of which request it is. The record
is written when the first response begins, while the part is empty: so the bytes of a part always belong to its record,
however the process ends. Of the request, which may contain secrets, it has a salted digest.
"""

import errno
import json
import os
import stat
from contextlib import suppress
from hashlib import sha256
from io import FileIO
from typing import TYPE_CHECKING, NamedTuple

from xapi_cli.errors import NetworkError, OutputError, UsageError
from xapi_cli.features.downloads import ranges
from xapi_cli.system import lock
from xapi_cli.system.files import Replacement, is_trusted, put_in_place, write_error
from xapi_cli.system.render import printable, size, size_of_total

if TYPE_CHECKING:
    from xapi_cli.features.downloads.ranges import Version
    from xapi_cli.http.messages import Headers

_MAX_RECORD = 64 * 1024  # bytes
_EXTRA_FLAGS = ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY", "O_NOINHERIT")


class _Record(NamedTuple):
    """The content of FILE.part.json: *key* is the digest of the request with *salt*."""

    salt: str
    key: str
    validator: str
    total: int | None


class PartialFile:
    """The file *name*, downloaded to FILE.part first.

    *source* is all that the content depends on: the URL, the account and the headers. The part is kept at the end if it
    can be resumed, and deleted otherwise. The methods raise OutputError, which names the file.
    """

    advice = "run the command again, because the server cannot resume it"  # if nothing is kept

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.count = 0  # bytes in the part
        self.discarded = ""  # what was found and cannot be continued, for a note
        self._target = os.path.realpath(name)  # a symbolic link stays
        self._part, self._record = f"{self._target}.part", f"{self._target}.part.json"
        self._source, self._salt = source, os.urandom(16).hex()
        self._version: Version | None = None  # None: the download cannot be resumed
        self._end: int | None = None  # the size of the whole file, if it is known
        self._has_begun = False  # until then, the part is not changed
        self._has_record = False  # the record is of xapi
        self._file: FileIO | None = None

    def open(self) -> None:
        """Open the part, and lock it against other processes.

        Raises UsageError if FILE is not a regular file, another process uses the part, or xapi did not create it. A
        part that belongs to another request will be overwritten.
        """
        try:
            self._open()
            self._restore()
        except (OSError, ValueError) as error:
            raise self._error(error) from error

    @staticmethod
    def accepts(status: int) -> bool:
        """Return whether the body of a response with *status* is, or continues, the file."""
        return 200 <= status < 300

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers of the next request: they ask for the rest of the file if there is a part."""
        return ranges.headers(self._version if self.count else None, self.count)

    def problem(self, status: int, fields: "Headers") -> str | None:
        """Return why the response to a request with `headers` does not continue the part, None if it does.

        After a failure, the part remains. Raises NetworkError for a part that was not requested, and for another
        success than the rest or the whole file.
        """
        if self._version is None or not self.count:
            if status == 206:
                raise NetworkError("the server sent a part of the file, which was not requested", headers_received=True)
            return None
        if status == 206:
            return ranges.problem(self._version, self.count, fields)
        if status != 200 and self.accepts(status):
            what = f"the server sent neither the rest of the file nor all of it: {status}"
            raise NetworkError(what, headers_received=True)
        return "the file on the server has changed" if status == 416 else None

    def why_whole(self, fields: "Headers") -> str | None:
        """Return why a response with the header *fields* has the whole file; None if there is no part to continue."""
        if self._version is None or not self.count:
            return None
        return ranges.why_whole(self._version, fields)

    def forget(self) -> None:
        """Download the whole file next; the part remains until its first bytes arrive."""
        self._version, self.count = None, 0

    def begin(self, status: int, fields: "Headers") -> None:
        """Prepare for the body of a response without a `problem`: it continues the part, or replaces it."""
        self._has_begun = True
        try:
            if status == 206:
                self._end = ranges.total_of(fields)
                self._opened().seek(self.count)
                return
            self.forget()
            self._version = ranges.version_of(fields) if status == 200 else None
            self._end = None if ranges.is_coded(fields) else ranges.length_of(fields)
            self._opened().truncate(0)
            self._opened().seek(0)
            self._write_record()
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
                self.count += written
                rest = rest[written:]
        except OSError as error:
            raise self._error(error) from error

    def commit(self) -> None:
        """Move the part, which is complete, to FILE.

        Raises NetworkError if the server sent less than it declared, OutputError if the part was replaced meanwhile.
        """
        if self._end is not None and self.count != self._end:
            raise NetworkError("the server sent only a part of the file", headers_received=True)
        try:
            if not self._is_in_place():
                raise OSError(errno.ESTALE, f"{printable(self._part)} was replaced by another process")
            put_in_place(self._opened(), self._part, self._target)
            self._opened().close()
            _remove(self._record)
        except OSError as error:
            raise self._error(error) from error

    @property
    def kept(self) -> str:
        """What is kept if the download ends now, for messages; empty if nothing is kept."""
        if self._version is None or not self.count or not self._is_in_place():
            return ""
        return f"{size_of_total(self.count, self._version.total)} kept in {printable(self.name)}.part"

    def close(self) -> None:
        """Close the part, which is kept if it can be resumed, and otherwise deleted."""
        if self._file is None or self._file.closed:
            return
        is_empty = not os.fstat(self._file.fileno()).st_size
        if self._is_in_place() and ((self._has_begun and not self.kept) or is_empty):
            if os.name == "nt":
                self._file.close()  # Windows cannot remove an open file
            _remove(self._part)
            if self._has_record:
                _remove(self._record)
        self._file.close()

    def _open(self) -> None:
        if not self.name or self.name.endswith((os.sep, "/")):
            open(self.name, "wb").close()  # fails with the reason
        mode = 0o666
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(self.name).st_mode):
                what = f"{printable(self.name)} is not a regular file, which could be continued"
                raise UsageError(what, hint="omit --continue, or choose another file")
            if not os.access(self._target, os.W_OK):
                raise PermissionError(errno.EACCES, "the file is read-only")
            mode = 0o600  # until it is complete; then it gets the mode of the file that it replaces
        flags = sum(getattr(os, each, 0) for each in _EXTRA_FLAGS)
        while self._file is None:
            self._file = FileIO(os.open(self._part, os.O_RDWR | os.O_CREAT | flags, mode), "r+b")
            try:
                self._lock(self._file)
            except BaseException:
                self._close()
                raise
            if not self._is_in_place():  # another process has just moved it to FILE, or removed it
                self._close()

    def _lock(self, file: FileIO) -> None:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or not is_trusted(status):
            raise UsageError(f"{printable(self._part)} was not created by xapi", hint="move it, or choose another file")
        if not lock.try_lock(file.fileno()):
            what = f"another process is downloading {printable(self.name)}"
            raise UsageError(what, hint="wait for it, or choose another file")

    def _close(self) -> None:
        self._opened().close()
        self._file = None

    def _restore(self) -> None:
        """Restore the state of an earlier download, unless it is of another request.

        Raises UsageError if the part or its record was not created by xapi.
        """
        found, record = os.fstat(self._opened().fileno()).st_size, _read_record(self._record)
        self._has_record = record is not None
        if found and record is None:
            what = f"{printable(self._part)} was not created by xapi"
            raise UsageError(what, hint="move it, or choose another file")
        if not found or record is None:
            return
        is_whole = record.total is None or found <= record.total
        if is_whole and record.key == _digest(self._source, record.salt) and ranges.is_validator(record.validator):
            self._salt, self.count = record.salt, found
            self._version = ranges.Version(record.validator, record.total)
        else:
            self.discarded = f"{printable(self.name)}.part cannot be continued; {size(found)} discarded"

    def _write_record(self) -> None:
        validator, total = self._version or ("", None)  # a part that cannot be resumed has a record too: it is xapi's
        self._has_record = True
        record = _Record(self._salt, _digest(self._source, self._salt), validator, total)
        with Replacement(self._record, mode=0o600) as new:
            new.write(json.dumps(record._asdict()).encode())
            new.commit()

    def _is_in_place(self) -> bool:
        """Return whether FILE.part is still the file that this process has locked."""
        try:
            return os.path.samestat(os.stat(self._part, follow_symlinks=False), os.fstat(self._opened().fileno()))
        except (FileNotFoundError, ValueError):  # the file is closed
            return False

    def _opened(self) -> FileIO:
        assert self._file is not None  # noqa: S101 - open() comes first
        return self._file

    def _error(self, error: OSError | ValueError) -> OutputError:
        return write_error(f"{self.name}.part" if getattr(error, "filename", None) == self._part else self.name, error)


def _read_record(path: str) -> _Record | None:
    """Return the record in the file *path*, None if there is none; raises UsageError if xapi did not write it."""
    try:
        flags = sum(getattr(os, each, 0) for each in _EXTRA_FLAGS)
        with open(os.open(path, os.O_RDONLY | flags), "rb") as file:
            match json.loads(file.read(_MAX_RECORD)):
                case {
                    "salt": str(salt),
                    "key": str(key),
                    "validator": str(validator),
                    "total": int() | None as total,
                }:
                    return _Record(salt, key, validator, total)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        pass
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise
    raise UsageError(f"{printable(path)} was not created by xapi", hint="move it, or choose another file")


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _digest(text: str, salt: str) -> str:
    """Return a digest of *text*, which may contain secrets that are not to be stored."""
    return sha256(f"{salt}:{text}".encode("utf-8", "surrogateescape")).hexdigest()

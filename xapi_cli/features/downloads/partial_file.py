"""A download that is kept when it is interrupted, so that it can be resumed.

The data is in FILE.part, and FILE.part.json says of which version on the server (an entity tag or a date) and of which
request it is. The record is written when the first response begins, while the part is empty: so the bytes of a part
always belong to its record, however the process ends. Of the request, which may contain secrets, it has a salted
digest.
"""

import json
import os
import re
import stat
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from xapi_cli.errors import NetworkError, UsageError
from xapi_cli.http.decoding import NO_CODINGS
from xapi_cli.system import lock
from xapi_cli.system.files import check_writable, is_trusted, put_in_place, writing
from xapi_cli.system.render import printable, size
from xapi_cli.system.standard_streams import write_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from xapi_cli.http.messages import Headers

_MAX_RECORD = 64 * 1024  # bytes
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII | re.IGNORECASE)
_STRONG_ETAG = re.compile(r'"[\x21\x23-\x7e]{0,1000}"')  # ASCII: other bytes could be sent in another encoding
_DATE = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", re.ASCII)


class _Record(NamedTuple):
    """The content of FILE.part.json: *key* is the digest of the request with *salt*; without *version*, it is final."""

    salt: str
    key: str
    version: str


class PartialFile:
    """The file *name*, downloaded to FILE.part first.

    *source* is all that the content depends on: the URL, the account and the headers. The part is kept at the end if it
    can be resumed, and deleted otherwise. The methods raise OutputError, which names the file.
    """

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.count = 0  # bytes in the part
        self.discarded = ""  # what was found and cannot be continued, for a note
        self._source, self._salt = source, os.urandom(16).hex()
        self._version = ""  # of the part; without it, the download cannot be resumed
        self._total: int | None = None  # the size of the whole file, if a range has declared it
        self._has_begun = False  # until then, the part is not changed
        self._file: BinaryIO | None = None

    def open(self) -> None:
        """Open the part, and lock it against other processes.

        Raises UsageError if FILE is not a regular file, another process uses the part, or xapi did not create it. A
        part that belongs to another request will be overwritten.
        """
        with writing(self.name):
            self._target = os.path.realpath(self.name)  # a symbolic link stays
            self._part, self._record = f"{self._target}.part", f"{self._target}.part.json"
            mode = 0o666
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(os.stat(self.name).st_mode):
                    what = f"{printable(self.name)} is not a regular file, which could be continued"
                    raise UsageError(what, hint="omit --continue, or choose another file")
                check_writable(self.name)
                mode = 0o600  # until it is complete; then it gets the mode of the file that it replaces
            _read_record(self._record)  # before the part is created
            self._file = open(self._part, "a+b", buffering=0, opener=_opener(mode))  # noqa: SIM115 - `close` does
            status = os.fstat(self._file.fileno())
            if not stat.S_ISREG(status.st_mode) or not is_trusted(status):
                self._file.close()  # what is not ours is not removed at the end
                raise _not_own(self._part)
            if not lock.try_lock(self._file.fileno()) or not os.path.samestat(os.stat(self._part), status):
                self._file.close()
                what = f"another process is downloading {printable(self.name)}"
                raise UsageError(what, hint="wait for it, or choose another file")
            self._restore(status.st_size)

    def _restore(self, found: int) -> None:
        """Restore the state of an earlier download of *found* bytes, unless it is of another request."""
        record = _read_record(self._record)
        if found and record is None:
            raise _not_own(self._part)
        if not found or record is None:
            return
        if record.key == _digest(self._source, record.salt) and (
            _STRONG_ETAG.fullmatch(record.version) or _DATE.fullmatch(record.version)
        ):
            self._salt, self._version, self.count = record.salt, record.version, found
        else:
            self.discarded = f"{printable(self.name)}.part cannot be continued; {size(found)} discarded"

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers of the next request (RFC 9110, 13.1.5 and 14): they ask for the rest of the file, or for all.

        The bytes of a content coding could not be resumed.
        """
        identity = ("Accept-Encoding", "identity")
        if not self.count or not self._version:
            return (identity,)
        return identity, ("Range", f"bytes={self.count}-"), ("If-Range", self._version)

    def is_continued_by(self, status: int, fields: "Headers") -> bool:
        """Return whether a response with *status* and the header *fields* has all of the rest of the same file."""
        found = _CONTENT_RANGE.fullmatch(fields.get("content-range").strip())
        if status != 206 or found is None or not self._version or _version(fields) != self._version:
            return False
        first, last, total = map(int, found.groups())
        return first == self.count and last == total - 1

    def forget(self) -> None:
        """Download the whole file next; the part remains until its first bytes arrive."""
        self._version, self.count = "", 0

    def begin(self, status: int, fields: "Headers") -> None:
        """Prepare for the body of a success: it continues the part, or replaces it."""
        self._has_begun = True
        if status == 206:
            if not self.count:
                raise NetworkError("the server sent a part of the file, which was not requested", headers_received=True)
            self._total = int(fields.get("content-range").rpartition("/")[2])
            return
        self.count, self._total, self._version = 0, None, _version(fields) if status == 200 else ""
        with writing(self.name):
            self._opened().truncate(0)
            record = _Record(self._salt, _digest(self._source, self._salt), self._version)
            with open(self._record, "wb", buffering=0, opener=_opener(0o600)) as file:
                file.write(json.dumps(record._asdict()).encode())

    def write(self, data: bytes) -> None:
        """Append *data* to the part."""
        with writing(self.name):
            write_all(self._opened().fileno(), data)
        self.count += len(data)

    def commit(self) -> None:
        """Move the part, which is complete, to FILE; raises NetworkError if a range was longer or shorter."""
        if self._total not in (None, self.count):
            self.forget()
            raise NetworkError("the server sent more or less data than it declared", headers_received=True)
        with writing(self.name):
            put_in_place(self._opened(), self._part, self._target)
            _remove(self._record)

    @property
    def kept(self) -> str:
        """What is kept if the download ends now, for messages; empty if nothing is kept."""
        return f"{size(self.count)} kept in {printable(self.name)}.part" if self._version and self.count else ""

    def close(self) -> None:
        """Close the part, which is kept if it can be resumed, and otherwise deleted."""
        if self._file is None or self._file.closed:
            return
        is_empty = not os.fstat(self._file.fileno()).st_size
        self._file.close()
        if is_empty or (self._has_begun and not self.kept):
            _remove(self._part)
            _remove(self._record)

    def _opened(self) -> BinaryIO:
        assert self._file is not None  # noqa: S101 - open() comes first
        return self._file


def _version(fields: "Headers") -> str:
    """Return what in *fields* identifies the version of the file for If-Range (RFC 9110, sections 8.8 and 13.1.5).

    That is a strong entity tag, or else the time of the last change, if a later change would have another. It is empty
    if the body is not the file itself, but has a content coding.
    """
    etag, changed = fields.get("etag").strip(), fields.get("last-modified").strip()
    if fields.get("content-encoding").strip().lower() not in NO_CODINGS:
        return ""
    if _STRONG_ETAG.fullmatch(etag):
        return etag
    return changed if _DATE.fullmatch(changed) and changed != fields.get("date").strip() else ""


def _opener(mode: int) -> "Callable[[str, int], int]":
    """Return what opens a file, which it creates with *mode*, but not through a symbolic link."""
    return lambda path, flags: os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), mode)


def _read_record(path: str) -> _Record | None:
    """Return the record in the file *path*, None if there is none; raises UsageError if xapi did not write it."""
    try:
        with open(path, "rb", opener=_opener(0)) as file:
            data = file.read(_MAX_RECORD)
            if not data:  # the process was killed before it wrote the record
                return None
            match json.loads(data):
                case {"salt": str(salt), "key": str(key), "version": str(version)}:
                    return _Record(salt, key, version)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        pass
    raise _not_own(path)


def _not_own(path: str) -> UsageError:
    return UsageError(f"{printable(path)} was not created by xapi", hint="move it, or choose another file")


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _digest(text: str, salt: str) -> str:
    """Return a digest of *text*, which may contain secrets that are not to be stored."""
    return sha256(f"{salt}:{text}".encode("utf-8", "surrogateescape")).hexdigest()

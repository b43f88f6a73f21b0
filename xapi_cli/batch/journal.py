"""Store results in a file, so that the same command, run again, prints them without resending requests.

The first line names the account. Each other line contains a result, the digest of the whole
input, or a count of damaged lines. Lines are only appended, each before its result is printed.
Each line ends with a checksum that also covers the account. A line that is damaged, or was
truncated by a crash or a full disk, is ignored, so that its request is sent again.
"""

import hashlib
import json
import os
import re
import stat
import time
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import BinaryIO, NamedTuple, Self
from zlib import crc32

from xapi_cli.batch.results import Result
from xapi_cli.errors import OutputError, UsageError
from xapi_cli.system import private_files
from xapi_cli.system.render import printable
from xapi_cli.system.safe_paths import place

_SYNCED_EVERY = 1.0  # seconds between calls of fsync()
_ENTRY = re.compile(
    rb'\{"line": (\d{1,15}), "code": (0|2|4|5|10|11|12), "kind": "([a-z0-9]{1,10})", "seen": "([0-9a-f]{32})", "out": '
)
_LONGEST_START = 160  # bytes of an entry before the output line
_WHOLE = re.compile(rb'\{"input": "([0-9a-f]{32})", "lines": (\d{1,15}), ')
_DAMAGED = re.compile(rb'\{"damaged": (\d{1,15}), ')
_VERSION = b"2"
_HEADER = re.compile(rb'\{"xapi-journal": (\d{1,9}), ')
_SEAL = re.compile(rb', "sum": "[0-9a-f]{8}"\}\n?')
_BLOCK = 1024 * 1024
_SHORT = 8192  # bytes; a longer entry is not kept in memory
_PAGE = 4096
_MOST_UNKNOWN = 128 * _BLOCK  # bytes to read before a file is rejected as not a journal; more than the longest entry
_CHANGED = "use the input of the first run, or another journal for another input"


class _Line(NamedTuple):
    """A line of the file: its *start* and *end*, its *length* in bytes, and whether its checksum matches."""

    start: bytes
    length: int
    end: bytes
    is_sound: bool


def _seal(checksum: int) -> bytes:
    return b', "sum": "%08x"}\n' % checksum


_SEALED = len(_seal(0))


class Journal:
    """The journal in the file *name*; it is locked while it is open.

    *account* is a text that identifies the account.
    """

    def __init__(self, name: str, account: str) -> None:
        self._name, self._shown = name, printable(name)
        header = json.dumps({"xapi-journal": int(_VERSION), "account": account}).encode()[:-1]
        self._header = header + _seal(crc32(header))
        self._seed = crc32(self._header)  # of all other checksums, so that lines of another account do not match
        self._descriptor = -1
        self._places = array("Q")  # by line number: offset of the entry plus one, or zero
        self._lengths = array("I")
        self._is_journal = False
        self._known_damage = 0
        self._input: tuple[int, str] | None = None  # number of lines and digest of the whole input
        self._pending: list[bytes] = []
        self._unwritten = 0  # bytes in _pending
        self._synced = time.monotonic()
        self._syncing: Thread | None = None
        self.kept = 0  # results of earlier runs
        self.damaged = 0  # damaged lines, without those that an earlier run recorded

    def __enter__(self) -> Self:
        try:
            self._open()
        except OSError as error:
            self._close()
            raise self._failed(error) from error
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.flush()
            os.fsync(self._descriptor)
        except OSError as error:
            if kind is None:
                raise self._failed(error) from error
        except OutputError:
            if kind is None:
                raise
        finally:
            self._close()

    def check_input(self, source: BinaryIO) -> None:
        """Raise UsageError if *source*, a seekable file, differs from the input of earlier runs."""
        start = source.tell()
        digest, lines, end = hashlib.blake2b(digest_size=16), 0, b"\n"
        while data := source.read(_BLOCK):
            digest.update(data)
            lines, end = lines + data.count(b"\n"), data[-1:]
        source.seek(start)
        self.end_input(lines + (end != b"\n"), digest.hexdigest())

    def end_input(self, lines: int, digest: str) -> None:
        """Record the number of *lines* and the *digest* of the whole input.

        Raises UsageError if they differ from those of earlier runs.
        """
        if self._input is None:
            self._input = lines, digest
            self._append(b'{"input": "%s", "lines": %d' % (digest.encode(), lines))
        elif self._input != (lines, digest):
            raise self._changed("")

    def answer(self, number: int, seen: bytes) -> Result | None:
        """Return the result of line *number* from an earlier run, or None if there is none.

        *seen* is the digest of the input up to this line. Raises UsageError if it differs from the earlier run.
        """
        if self._input is not None and number > self._input[0]:
            raise self._changed(f" (there was no line {number:,})")
        if number >= len(self._places) or not self._places[number]:
            return None
        place, length = self._places[number] - 1, self._lengths[number]
        try:
            data = self._read(place, length if length <= _SHORT else _LONGEST_START)
        except OSError as error:
            raise self._failed(error) from error
        entry = _ENTRY.match(data)
        if entry is None or entry[4] != seen.hex().encode():
            raise self._changed(f" in line {number:,} or before it")
        result = Result(number, b"", int(entry[2]), entry[3].decode(), seen)
        if length <= _SHORT:
            result.text = data[entry.end() : -_SEALED]
        else:
            result.pieces = partial(self._stored, place + entry.end(), place + length - _SEALED)
        return result

    def keep(self, result: Result) -> Result:
        """Store *result*; return the result to print after the next `flush`.

        A short result is written by `flush`, a long one immediately. The returned long result is read from the file.
        """
        facts = (
            f'"line": {result.number}, "code": {result.code}, "kind": "{result.kind}", "seen": "{result.seen.hex()}"'
        )
        start = f'{{{facts}, "out": '.encode()
        if result.pieces is None:
            self._append(start, result.text)
            return result
        self.flush()
        try:
            place = os.lseek(self._descriptor, 0, os.SEEK_END)
            length = self._write_long(start, result.pieces())
        except OSError as error:
            raise self._failed(error) from error
        first = place + len(start)
        return replace(result, pieces=partial(self._stored, first, first + length), held=0)

    def flush(self) -> None:
        """Write pending entries, so that they survive this process; call fsync() at intervals, in a thread."""
        if not self._pending:
            return
        data = b"".join(self._pending)
        self._pending.clear()
        self._unwritten = 0
        try:
            self._write(data)
        except OSError as error:
            raise self._failed(error) from error
        if time.monotonic() - self._synced > _SYNCED_EVERY and not (self._syncing and self._syncing.is_alive()):
            self._synced = time.monotonic()
            self._syncing = Thread(target=self._sync, daemon=True)
            self._syncing.start()

    def _append(self, start: bytes, text: bytes = b"") -> None:
        self._pending += (start, text, _seal(crc32(text, crc32(start, self._seed))))
        self._unwritten += len(text)
        if self._unwritten > _BLOCK:
            self.flush()

    def _write_long(self, start: bytes, pieces: Iterator[bytes]) -> int:
        """Append an entry whose output line is *pieces*; return the length of the line in bytes."""
        checksum, length = crc32(start, self._seed), 0
        self._write(start)
        for piece in pieces:
            self._write(piece)
            checksum = crc32(piece, checksum)
            length += len(piece)
        self._write(_seal(checksum))
        return length

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def _stored(self, place: int, end: int) -> Iterator[bytes]:
        """Yield the content of the file from offset *place* to *end*."""
        while place < end:
            try:
                data = self._read(place, min(_BLOCK, end - place))
            except OSError as error:
                raise self._failed(error) from error
            if not data:
                raise OutputError(f"the journal {self._shown} was truncated meanwhile", hint="run the command again")
            yield data
            place += len(data)

    def _sync(self) -> None:
        with suppress(OSError):  # the final fsync() reports the error
            os.fsync(self._descriptor)

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)
        with place(self._name, follow=True) as file:
            with suppress(FileNotFoundError):
                self._check_type(file.status())  # opening a device may have side effects
            self._descriptor = file.open(flags)
        self._check_type(os.fstat(self._descriptor))
        self._lock()
        self._load()

    def _check_type(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{self._shown} is not a regular file", hint="give a new file to --journal")

    def _lock(self) -> None:
        import filelock

        if not filelock.lock_descriptor(self._descriptor, blocking=False):
            raise UsageError(
                f"another xapi is writing to the journal {self._shown}", hint="wait for it, or give another --journal"
            )

    def _load(self) -> None:
        end = lasting = 0
        for line in self._lines():
            if end == 0:
                self._begin(line)
            else:
                self._index(line, end)
            if not line.end.endswith(b"\n"):
                break
            end, lasting = end + line.length, self.damaged
        if not (self._is_journal or self._is_blank(end)):
            raise self._no_journal()
        private_files.close_to_others(self._descriptor, Path(self._name))
        os.ftruncate(self._descriptor, end)
        if end == 0:
            self._pending.append(self._header)
            self.flush()
        if lasting > self._known_damage:
            self._append(b'{"damaged": %d' % lasting)
        self.damaged -= self._known_damage

    def _lines(self) -> Iterator[_Line]:
        with open(self._descriptor, "rb", buffering=_BLOCK, closefd=False) as file:
            file.seek(0)
            while start := file.readline(_BLOCK):
                yield self._line(start, file)

    def _line(self, start: bytes, file: BinaryIO) -> _Line:
        """Read the rest of the line that begins with *start*; a damaged line may be very long."""
        checksum, length, end, part = self._seed, 0, b"", start
        while part:
            data = end + part
            checksum, length, end = crc32(data[:-_SEALED], checksum), length + len(part), data[-_SEALED:]
            if length > _MOST_UNKNOWN and not self._is_journal:
                raise self._no_journal()
            part = b"" if end.endswith(b"\n") else file.readline(_BLOCK)
        return _Line(start, length, end, is_sound=end == _seal(checksum))

    def _begin(self, line: _Line) -> None:
        """Process *line* as the header; raises UsageError if it is for another account.

        A damaged header is counted as a damaged line.
        """
        header = _HEADER.match(line.start)
        if self._header.startswith(line.start):  # possibly truncated, if the first run was killed early
            self._is_journal = True
        elif header is None or line.start[-_SEALED:] != _seal(crc32(line.start[:-_SEALED])):
            self._index(line, 0)
        elif header[1] == _VERSION:
            raise UsageError(
                f"the journal {self._shown} was begun with another account or base URL",
                hint="use that account, or give another --journal",
            )
        else:
            raise self._no_journal()

    def _is_blank(self, end: int) -> bool:
        """Return whether the file, with complete lines up to *end*, is empty or one damaged page of NUL bytes."""
        size = os.fstat(self._descriptor).st_size
        return end == 0 and (size == 0 or (size <= _PAGE and not self._read(0, size).strip(b"\0")))

    def _no_journal(self) -> UsageError:
        return UsageError(f"{self._shown} is no journal of xapi", hint="give a new file to --journal")

    def _index(self, line: _Line, place: int) -> None:
        """Index *line* at offset *place*; even a damaged line can show that the file is a journal."""
        if not line.is_sound:
            self.damaged += 1
            self._is_journal = self._is_journal or _SEAL.search(line.end) is not None
            return
        self._is_journal = True
        if entry := _ENTRY.match(line.start):
            number = int(entry[1])
            missing = number + 1 - len(self._places)
            if missing > 2**26 or line.length >= 2**32:
                return
            if missing > 0:
                self._places.extend(bytes(missing))
                self._lengths.extend(bytes(missing))
            self.kept += not self._places[number]
            self._places[number], self._lengths[number] = place + 1, line.length
        elif whole := _WHOLE.match(line.start):
            self._input = int(whole[2]), whole[1].decode()
        elif damaged := _DAMAGED.match(line.start):
            self._known_damage = int(damaged[1])

    def _read(self, place: int, size: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._descriptor, size, place)
        os.lseek(self._descriptor, place, os.SEEK_SET)  # Windows has no pread(); O_APPEND still appends
        return os.read(self._descriptor, size)

    def _close(self) -> None:
        if self._syncing:
            self._syncing.join()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _changed(self, where: str) -> UsageError:
        return UsageError(f"the input has changed{where} since the journal {self._shown} was begun", hint=_CHANGED)

    def _failed(self, error: OSError) -> OutputError:
        reason = error.strerror or type(error).__name__
        return OutputError(f"the journal {self._shown} cannot be written: {reason}", hint="give another --journal")

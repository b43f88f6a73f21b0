"""The journal of a batch: results that the same command, run again, prints without sending their requests again.

One process writes it, and each of its lines ends with a checksum, which also covers the first line. That line names the
account and, with `--shard`, the shard. The others are results, the POST and PATCH requests that are about to be sent,
and the digest of the whole input. A result is written before it is printed. A line that is damaged, as by a crash or a
full disk, is ignored: its request is sent again.
"""

import json
import os
import re
import sys
import time
from array import array
from threading import Lock
from typing import NamedTuple, Self
from zlib import crc32

from xapi_cli.errors import OutputError, UsageError
from xapi_cli.system.lock import try_lock
from xapi_cli.system.render import printable

_SYNC_INTERVAL = 1.0  # seconds between calls of fsync()
_BLOCK = 1024 * 1024
_VERSION = 3
_NAME_LENGTH = len('{"xapi-journal": ')
_MAX_HEADER = 4096
_MAX_START = 160  # bytes of a result before its output line
_RESULT = re.compile(
    rb'\{"line": (\d{1,15}), "code": (\d{1,3}), "kind": "([a-z0-9_-]{1,32})", "seen": "(\w{32})", "out": '
)
_BEGUN = re.compile(rb'\{"begun": (\d{1,15})')
_INPUT = re.compile(rb'\{"input": "(\w{32})", "lines": (\d{1,15})')
_END = b', "sum": "%08x"}\n'
_END_LENGTH = len(_END % 0)


class Stored(NamedTuple):
    """A result of an earlier run: its exit code, its kind, and where its output line is in the file."""

    code: int
    kind: str
    offset: int
    length: int


class Journal:
    """The journal in the file *name* for *account*, a text; *shard* is the shard of the input, or None for all lines.

    It is locked while it is open. `begun` are the numbers of the lines whose request may have been sent, without a
    result; `damaged` is the number of ignored lines. The methods raise UsageError for a journal of something else, and
    OutputError if it cannot be read or written.
    """

    def __init__(self, name: str, account: str, shard: str | None = None) -> None:
        self._shown = printable(name) or "a file without a name"
        members = {"xapi-journal": _VERSION, "account": account} | ({"shard": shard} if shard else {})
        self._header = json.dumps(members).encode() + b"\n"
        self._seed = crc32(self._header)
        self._offsets, self._lengths = array("Q"), array("I")  # by line; an offset of zero: there is no result
        self._input: tuple[str, int] | None = None  # digest and number of lines of the whole input
        self._synced_at = time.monotonic()
        self._position = Lock()  # a thread restores while the main thread writes
        self.begun: set[int] = set()
        self.damaged = 0
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            self._file = os.open(name, flags, 0o600)
            try:
                self._lock()
                self._load()
            except BaseException:
                os.close(self._file)
                raise
        except (OSError, ValueError) as error:
            raise self._failure(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            os.fsync(self._file)
        except OSError as error:
            if kind is None:
                raise self._failure(error) from None
        finally:
            os.close(self._file)

    def restore(self, number: int, digest: bytes) -> Stored | None:
        """Return the result of line *number*, None without one; *digest* is that of the input up to its end."""
        if self._input is not None and number > self._input[1]:
            raise self._input_changed(f" (it had no line {number:,})")
        if number >= len(self._offsets) or not self._offsets[number]:
            return None
        offset, length = self._offsets[number], self._lengths[number]
        found = _RESULT.match(self._read(offset, min(length, _MAX_START)))
        if found is None or found[4] != digest.hex().encode():
            raise self._input_changed(f" in line {number:,} or before it")
        start = found.end()
        return Stored(int(found[2]), found[3].decode(), offset + start, length - start - _END_LENGTH)

    def line(self, stored: Stored) -> bytes:
        """Return the output line of the result *stored*."""
        return self._read(stored.offset, stored.length)

    def store(self, number: int, digest: bytes, code: int, kind: str, line: bytes) -> None:
        """Store the output *line* of line *number*, with its exit *code* and *kind*."""
        start = f'{{"line": {number}, "code": {code}, "kind": "{kind}", "seen": "{digest.hex()}", "out": '
        self._append(start.encode(), line)
        self.begun.discard(number)

    def begin(self, number: int) -> None:
        """Record that the request of line *number*, which may not be repeated, is about to be sent."""
        self._append(b'{"begun": %d' % number)

    def end_input(self, digest: str, lines: int) -> None:
        """Record the *digest* and the number of *lines* of the whole input; raises UsageError if it has changed."""
        if self._input is None:
            if lines < len(self._offsets) - 1:
                raise self._input_changed(f" (it had more than {lines:,} {'line' if lines == 1 else 'lines'})")
            self._input = digest, lines
            self._append(b'{"input": "%s", "lines": %d' % (digest.encode(), lines))
        elif self._input != (digest, lines):
            raise self._input_changed("")

    def _append(self, start: bytes, text: bytes = b"") -> None:
        self._write(start + text + _END % crc32(text, crc32(start, self._seed)))

    def _write(self, data: bytes) -> None:
        """Write *data*, so that it survives this process, and at intervals a crash of the machine."""
        try:
            with self._position:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._file, rest) :]
            if time.monotonic() - self._synced_at > _SYNC_INTERVAL:
                os.fsync(self._file)
                self._synced_at = time.monotonic()
        except OSError as error:
            raise self._failure(error) from error

    def _read(self, offset: int, size: int) -> bytes:
        parts = []
        try:
            with self._position:
                os.lseek(self._file, offset, os.SEEK_SET)  # O_APPEND still appends
                while size > 0 and (data := os.read(self._file, size)):
                    parts.append(data)
                    size -= len(data)
        except OSError as error:
            raise self._failure(error) from error
        return b"".join(parts)

    # opening

    def _lock(self) -> None:
        if not try_lock(self._file):
            raise UsageError(
                f"another xapi process is writing to the journal {self._shown}",
                hint="wait for it, or pass another --journal",
            )

    def _load(self) -> None:
        """Index the lines, truncate an incomplete last one, and write the header of a new journal."""
        with open(self._file, "rb", buffering=_BLOCK, closefd=False) as file:
            header = file.readline(_MAX_HEADER)
            end = 0
            if header != self._header:
                self._check_new(header)
            else:
                end = len(header)
                for line in file:
                    if line.endswith(b"\n"):
                        self._index(line, end)
                        end += len(line)
        if sys.platform != "win32":
            os.fchmod(self._file, 0o600)
        os.ftruncate(self._file, end)
        if end == 0:
            self._write(self._header)

    def _check_new(self, header: bytes) -> None:
        """Raise UsageError unless *header*, the first line, is only a part of the right one."""
        if self._header.startswith(header) or not header.strip(b"\0"):  # NUL after a crash of the machine
            return
        if not header.startswith(self._header[:_NAME_LENGTH]):
            raise UsageError(f"{self._shown} is not a journal of xapi", hint="pass a new file to --journal")
        raise UsageError(
            f"the journal {self._shown} belongs to another account, base URL or shard, or to another version of xapi",
            hint="use those of the first run, or pass another --journal",
        )

    def _index(self, line: bytes, offset: int) -> None:
        data = memoryview(line)[:-_END_LENGTH]
        if line[-_END_LENGTH:] != _END % crc32(data, self._seed):
            self.damaged += 1
        elif stored := _RESULT.match(line):
            number = int(stored[1])
            if (missing := number + 1 - len(self._offsets)) > 0:
                self._offsets.extend(bytes(missing))
                self._lengths.extend(bytes(missing))
            self._offsets[number], self._lengths[number] = offset, len(line)
            self.begun.discard(number)
        elif begun := _BEGUN.match(line):
            self.begun.add(int(begun[1]))
        elif found := _INPUT.match(line):
            self._input = found[1].decode(), int(found[2])
        else:
            self.damaged += 1

    def _input_changed(self, where: str) -> UsageError:
        return UsageError(
            f"the input has changed{where} since the journal {self._shown} was created",
            hint="use the input of the first run, or another journal for another input",
        )

    def _failure(self, error: OSError | ValueError) -> OutputError:
        reason = getattr(error, "strerror", None) or "its name is not valid"
        return OutputError(f"the journal {self._shown} cannot be written: {reason}", hint="pass another --journal")

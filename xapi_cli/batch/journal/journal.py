"""The lines of the journal: results that the same command, run again, prints without resending requests.

The first line names the account and, with `--shard`, the shard. Each other line contains a result, the digest of the
whole input, or a count of damaged lines. A result is stored before it is printed. A
line that is damaged, of an unknown kind, or was truncated by a crash or a full disk is counted, and its request is sent
again.
"""

import json
import re
import time
from array import array
from dataclasses import replace
from functools import partial
from typing import BinaryIO, Self
from zlib import crc32

from xapi_cli.batch.input.line_reader import InputDigest
from xapi_cli.batch.journal.checksummed_file import BLOCK, CHECKSUM_LENGTH, JournalFile, JournalLine, checksum
from xapi_cli.batch.output.results import Result
from xapi_cli.errors import OutputError, UsageError
from xapi_cli.system.render import printable

_SYNC_INTERVAL = 1.0  # seconds between calls of fsync()
_RESULT = re.compile(
    rb'\{"line": (\d{1,15}), "code": (\d{1,3}), "kind": "([a-z0-9_-]{1,32})", "seen": "([0-9a-f]{32})", "out": '
)
_MAX_RESULT_START = 160  # bytes of a stored result before its output line
_INPUT = re.compile(rb'\{"input": "([0-9a-f]{32})", "lines": (\d{1,15}), ')
_DAMAGED = re.compile(rb'\{"damaged": (\d{1,15}), ')
_VERSION = b"2"  # of the format, which the patterns here and the checksums define
_HEADER = re.compile(rb'\{"xapi-journal": (\d{1,9}), ')
_SHORT = 8192  # bytes; a longer line is not kept in memory


class Journal:
    """The journal in the file *name*; it is locked while it is open.

    *account* is a text that identifies the account; *shard* is the shard of the input, or None if all lines are sent.
    """

    def __init__(self, name: str, account: str, *, shard: str | None = None) -> None:
        self._shown, self._account = printable(name), account
        members = {"xapi-journal": int(_VERSION), "account": account} | ({"shard": shard} if shard else {})
        self._file = JournalFile(name, json.dumps(members).encode()[:-1])
        self._offsets = array("Q")  # by line number: offset of the stored result plus one, or zero
        self._lengths = array("I")
        self._recorded_damage = 0
        self._input: tuple[int, str] | None = None  # number of lines and digest of the whole input
        self._pending: list[bytes] = []
        self._pending_size = 0  # bytes
        self._synced_at = time.monotonic()
        self.restored = 0  # results of earlier runs
        self.damaged = 0  # damaged lines, without those that an earlier run recorded

    def __enter__(self) -> Self:
        try:
            self._file.open()
            self._load()
        except OSError as error:
            self._file.close()
            raise self._file.failure(error) from error
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.flush()
            self._file.sync()
        except OSError as error:
            if kind is None:
                raise self._file.failure(error) from error
        except OutputError:
            if kind is None:
                raise
        finally:
            self._file.close()

    def check_input(self, source: BinaryIO) -> None:
        """Raise UsageError if *source*, a seekable file, differs from the input of earlier runs."""
        start, digest = source.tell(), InputDigest()
        while data := source.read(BLOCK):
            digest.add(data)
        source.seek(start)
        self.end_input(digest)

    def end_input(self, digest: InputDigest) -> None:
        """Record the number of lines and the *digest* of the whole input.

        Raises UsageError if they differ from those of earlier runs, or if one of those recorded the result of a later
        line.
        """
        lines, text = digest.lines(), digest.text()
        if self._input is None:
            if lines < len(self._offsets) - 1:
                raise self._input_changed(f" (it had more than {lines:,} {'line' if lines == 1 else 'lines'})")
            self._input = lines, text
            self._append(b'{"input": "%s", "lines": %d' % (text.encode(), lines))
        elif self._input != (lines, text):
            raise self._input_changed("")

    def restore(self, number: int, digest: bytes) -> Result | None:
        """Return the result of line *number* from an earlier run, or None if there is none.

        *digest* is the digest of the input up to this line. Raises UsageError if it differs from the earlier run.
        """
        if self._input is not None and number > self._input[0]:
            raise self._input_changed(f" (it had no line {number:,})")
        if number >= len(self._offsets) or not self._offsets[number]:
            return None
        offset, length = self._offsets[number] - 1, self._lengths[number]
        try:
            data = self._file.read(offset, length if length <= _SHORT else _MAX_RESULT_START)
        except OSError as error:
            raise self._file.failure(error) from error
        stored = _RESULT.match(data)
        if stored is None or stored[4] != digest.hex().encode():
            raise self._input_changed(f" in line {number:,} or before it")
        result = Result(number, b"", int(stored[2]), stored[3].decode(), digest)
        if length <= _SHORT:
            result.text = data[stored.end() : -CHECKSUM_LENGTH]
        else:
            result.chunks = partial(self._file.read_chunks, offset + stored.end(), offset + length - CHECKSUM_LENGTH)
        return result

    def store(self, result: Result) -> Result:
        """Store *result*; return the result to print after the next `flush`.

        A short result is written by `flush`, a long one immediately. The returned long result is read from the file.
        """
        members = (
            f'"line": {result.number}, "code": {result.code}, "kind": "{result.kind}", "seen": "{result.digest.hex()}"'
        )
        start = f'{{{members}, "out": '.encode()
        if result.chunks is None:
            self._append(start, result.text)
            return result
        self.flush()
        try:
            offset, length = self._file.append(start, result.chunks())
        except OSError as error:
            raise self._file.failure(error) from error
        return replace(result, chunks=partial(self._file.read_chunks, offset, offset + length), held=0)

    def flush(self) -> None:
        """Write pending lines, so that they survive this process; flush them to disk at intervals, in a thread."""
        if not self._pending:
            return
        data = b"".join(self._pending)
        self._pending.clear()
        self._pending_size = 0
        try:
            self._file.write(data)
        except OSError as error:
            raise self._file.failure(error) from error
        if time.monotonic() - self._synced_at > _SYNC_INTERVAL:
            self._synced_at = time.monotonic()
            self._file.sync_in_background()

    def _append(self, start: bytes, text: bytes = b"") -> None:
        self._pending += self._file.line(start, text)
        self._pending_size += len(text)
        if self._pending_size > BLOCK:
            self.flush()

    def _load(self) -> None:
        end = recorded = 0
        for line in self._file.lines():
            if end == 0:
                self._read_header(line)
            else:
                self._index(line, end)
            if not line.is_complete:
                break
            end, recorded = end + line.length, self.damaged
        self._file.prepare(end)
        if recorded > self._recorded_damage:
            self._append(b'{"damaged": %d' % recorded)
        self.damaged -= self._recorded_damage

    def _read_header(self, line: JournalLine) -> None:
        """Process *line* as the header; raises UsageError if it is for another account or shard, or of another format.

        A damaged header is counted as a damaged line.
        """
        header = _HEADER.match(line.start)
        if self._file.header.startswith(line.start):  # possibly truncated, if the first run was killed early
            self._file.is_journal = True
        elif header is None or line.start[-CHECKSUM_LENGTH:] != checksum(crc32(line.start[:-CHECKSUM_LENGTH])):
            self._index(line, 0)
        elif header[1] == _VERSION:
            raise self._other_header(json.loads(line.start[:-CHECKSUM_LENGTH] + b"}"))
        else:
            raise UsageError(
                f"the journal {self._shown} was written by another version of xapi (format {header[1].decode()})",
                hint="complete the batch with that version, or pass another --journal",
            )

    def _other_header(self, members: dict[str, str]) -> UsageError:
        """Return the error for a journal with the header *members*, which differ from those of this journal."""
        if members.get("account") != self._account:
            return UsageError(
                f"the journal {self._shown} belongs to another account or base URL",
                hint="use that account, or pass another --journal",
            )
        shard = members.get("shard")
        what, use = (f"shard {shard}", f"use --shard {shard}") if shard else ("a batch without --shard", "omit --shard")
        return UsageError(f"the journal {self._shown} belongs to {what}", hint=f"{use}, or pass another --journal")

    def _index(self, line: JournalLine, offset: int) -> None:
        """Index *line* at *offset*; even a damaged line can show that the file is a journal."""
        if not line.is_intact:
            self.damaged += 1
            self._file.is_journal = self._file.is_journal or line.has_checksum
            return
        self._file.is_journal = True
        if stored := _RESULT.match(line.start):
            self._index_result(int(stored[1]), offset, line.length)
        elif input_line := _INPUT.match(line.start):
            self._input = int(input_line[2]), input_line[1].decode()
        elif damaged := _DAMAGED.match(line.start):
            self._recorded_damage = int(damaged[1])
        else:
            self.damaged += 1

    def _index_result(self, number: int, offset: int, length: int) -> None:
        missing = number + 1 - len(self._offsets)
        if missing > 2**26 or length >= 2**32:
            return
        if missing > 0:
            self._offsets.extend(bytes(missing))
            self._lengths.extend(bytes(missing))
        self.restored += not self._offsets[number]
        self._offsets[number], self._lengths[number] = offset + 1, length

    def _input_changed(self, where: str) -> UsageError:
        return UsageError(
            f"the input has changed{where} since the journal {self._shown} was created",
            hint="use the input of the first run, or another journal for another input",
        )

"""Keep the answers in a file, so that the same command, run again, prints them without sending anything twice.

The first line names the account; each further one holds an answer, or the digest
of the whole input. Lines are only ever appended, each before its answer is printed;
one that is cut short, by a crash or a full disk, is dropped.
"""

import hashlib
import json
import os
import re
import time
from array import array
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import BinaryIO, Self

from xapi_cli import folders
from xapi_cli.batch.output import Result
from xapi_cli.errors import OutputError, UsageError
from xapi_cli.paths import place
from xapi_cli.render import printable

_SYNCED_EVERY = 1.0  # seconds
_ENTRY = re.compile(
    rb'\{"line": (\d{1,15}), "code": (0|2|4|5|10|11|12), "kind": "([a-z0-9]{1,10})", "seen": "([0-9a-f]{32})", "out": '
)
_WHOLE = re.compile(rb'\{"input": "([0-9a-f]{32})", "lines": (\d{1,15})\}\n')
_BLOCK = 1024 * 1024
_CHANGED = "use the input of the first run, or another journal for another input"


class Journal:
    """The journal in the file *name*, for *account*, any text that tells accounts apart; locked while it is open."""

    def __init__(self, name: str, account: str) -> None:
        self._name, self._shown = name, printable(name)
        self._header = json.dumps({"xapi-journal": 1, "account": account}).encode() + b"\n"
        self._descriptor = -1
        self._places = array("Q")  # by line: where its entry starts, plus one
        self._input: tuple[int, str] | None = None  # lines and digest of the whole
        self._pending: list[bytes] = []
        self._synced = time.monotonic()
        self._syncing: Thread | None = None
        self.kept = 0  # answers of earlier runs

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
        """Raise UsageError where *source*, a file that can be read twice, is not the input of the earlier runs."""
        start = source.tell()
        digest, lines, end = hashlib.blake2b(digest_size=16), 0, b"\n"
        while data := source.read(_BLOCK):
            digest.update(data)
            lines, end = lines + data.count(b"\n"), data[-1:]
        source.seek(start)
        self.end_input(lines + (end != b"\n"), digest.hexdigest())

    def end_input(self, lines: int, digest: str) -> None:
        """Raise UsageError where the whole input, of so many *lines*, has another *digest* than in earlier runs."""
        if self._input is None:
            self._input = lines, digest
            self._pending.append(b'{"input": "%s", "lines": %d}\n' % (digest.encode(), lines))
        elif self._input != (lines, digest):
            raise self._changed("")

    def answer(self, number: int, seen: bytes) -> Result | None:
        """Return the answer to line *number* from an earlier run, None where there is none.

        Raises UsageError where the input up to there, whose digest is *seen*, was another one.
        """
        if self._input is not None and number > self._input[0]:
            raise self._changed(f" (there was no line {number:,})")
        if number >= len(self._places) or not self._places[number]:
            return None
        try:
            line = self._line_at(self._places[number] - 1)
        except OSError as error:
            raise self._failed(error) from error
        entry = _ENTRY.match(line)
        if entry is None or entry[4] != seen.hex().encode():
            raise self._changed(f" in line {number:,} or before it")
        return Result(number, line[entry.end() : -2] + b"\n", int(entry[2]), entry[3].decode(), seen)

    def keep(self, result: Result) -> None:
        """Write *result* with the next `flush`."""
        facts = (
            f'"line": {result.number}, "code": {result.code}, "kind": "{result.kind}", "seen": "{result.seen.hex()}"'
        )
        head = f'{{{facts}, "out": '
        self._pending += (head.encode(), result.text[:-1], b"}\n")

    def flush(self) -> None:
        """Write what there is, so that it outlives this process; now and then also a crash of the computer."""
        if not self._pending:
            return
        data = memoryview(b"".join(self._pending))
        self._pending.clear()
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            raise self._failed(error) from error
        if time.monotonic() - self._synced > _SYNCED_EVERY and not (self._syncing and self._syncing.is_alive()):
            self._synced = time.monotonic()
            self._syncing = Thread(target=self._sync, daemon=True)
            self._syncing.start()

    def _sync(self) -> None:
        with suppress(OSError):  # the last sync, at the end, complains
            os.fsync(self._descriptor)

    def _open(self) -> None:
        with place(self._name, follow=True) as file:
            self._descriptor = file.open(os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0))
        self._lock()
        self._load()

    def _lock(self) -> None:
        import filelock

        if not filelock.lock_descriptor(self._descriptor, blocking=False):
            raise UsageError(
                f"another xapi is writing to the journal {self._shown}", hint="wait for it, or give another --journal"
            )

    def _load(self) -> None:
        place = 0
        for line in self._lines():
            if place == 0 and line != self._header:
                self._refuse_header(line)
            if not line.endswith(b"\n"):
                break
            self._index(line, place)
            place += len(line)
        folders.close_to_others(self._descriptor, Path(self._name))
        os.ftruncate(self._descriptor, place)
        if place == 0:
            self._pending.append(self._header)
            self.flush()

    def _refuse_header(self, line: bytes) -> None:
        """Raise UsageError for a journal that is none, or another account's; one that was cut off at once is empty."""
        if not line.endswith(b"\n") and self._header.startswith(line):
            return
        if line.startswith(b'{"xapi-journal": 1, '):
            raise UsageError(
                f"the journal {self._shown} was begun with another account or base URL",
                hint="use that account, or give another --journal",
            )
        raise UsageError(f"{self._shown} is no journal of xapi", hint="give a new file to --journal")

    def _index(self, line: bytes, place: int) -> None:
        if (entry := _ENTRY.match(line)) and line.endswith(b"}}\n"):
            number = int(entry[1])
            if number >= len(self._places):
                if number > len(self._places) + 2**26:
                    return
                self._places.extend(bytes(number + 1 - len(self._places)))
            self.kept += not self._places[number]
            self._places[number] = place + 1
        elif whole := _WHOLE.fullmatch(line):
            self._input = int(whole[2]), whole[1].decode()

    def _lines(self) -> Iterator[bytes]:
        with open(self._descriptor, "rb", buffering=_BLOCK, closefd=False) as file:
            file.seek(0)
            yield from file

    def _line_at(self, place: int) -> bytes:
        """Return the line that starts at *place*."""
        line, size = b"", 8192
        while not line.endswith(b"\n"):
            data = self._read(place + len(line), size)
            if not data:
                break
            end = data.find(b"\n") + 1
            line += data[:end] if end else data
            size = _BLOCK
        return line

    def _read(self, place: int, size: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._descriptor, size, place)
        os.lseek(self._descriptor, place, os.SEEK_SET)  # Windows has no pread(); appending goes to the end all the same
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

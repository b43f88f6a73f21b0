"""Read the output of a batch, line by line, with the number of the input line that each belongs to."""

import re
from typing import BinaryIO

from xapi_cli.errors import UsageError
from xapi_cli.request.json.syntax import Number, strict
from xapi_cli.system.render import printable

BLOCK = 64 * 1024
_BOM = b"\xef\xbb\xbf"  # byte order mark, which Windows programs write before UTF-8
_MAX_LINE = 128 * 1024 * 1024  # bytes; the longest line has a body of 10 MiB as text in which each byte is escaped
_FAST_PATH = re.compile(rb'\{"id": ?(?:null|true|false|-?\d[\d.eE+-]*|"[^"\\]*+"), ?"line": ?([1-9]\d{0,14}),')
_MAX_PARSED = 1024 * 1024  # bytes; parsing a longer line would take too much memory
_NUMBER = rb"[1-9]\d{0,14}"
_TOKEN = re.compile(rb'"[^"\\\0-\x1f]*+(?:\\[^\0-\x1f][^"\\\0-\x1f]*+)*+"|[\[{]|[\]}]|["\0-\x08\x0a-\x1f]')
_VALUE = re.compile(rb"\s*:\s*(%s)\s*[,}]" % _NUMBER)
_TRACE = re.compile(rb'^\s*\{\s*"id"|"line"\s*:\s*%s' % _NUMBER)  # of a line that was output of a batch
_DECODER = strict(Number, object_pairs_hook=tuple)


class Damage:
    """Where outputs are damaged: the names of the truncated ones, and the damaged lines by the name of the output."""

    def __init__(self) -> None:
        self.truncated = set[str]()
        self._lines: dict[str, tuple[int, int]] = {}  # the first line, and how many there are

    def add(self, name: str, line: int) -> None:
        """Add line *line* of the output *name*."""
        first, count = self._lines.get(name, (line, 0))
        self._lines[name] = first, count + 1

    def __str__(self) -> str:
        parts = []
        for name, (first, count) in sorted(self._lines.items()):
            others = f" and {count - 1:,} more" if count > 1 else ""
            parts.append(f"line {first:,}{others} of {printable(name)} {'are' if others else 'is'} damaged")
        parts += [f"the last line of {printable(name)} is truncated" for name in sorted(self.truncated)]
        return ", ".join(parts)


class OutputReader:
    """Read *file*, the output of `xapi batch`, which messages call *name*.

    The methods raise UsageError if it cannot be read or is something else. A damaged line, and a truncated last line,
    are ignored and added to *damage*: the program that wrote them was killed, or the disk was full. Without *damage*, a
    line that starts as usual is not checked. Of a *file* that can be read again, a long line is in memory only while it
    is printed, because many files may be open.
    """

    def __init__(self, file: BinaryIO, name: str, damage: Damage | None) -> None:
        self.number = 0  # of the input line that the current line belongs to
        self._file, self._name, self._damage = file, name, damage
        self._lines = 0  # read so far
        self._start = b""  # of the current line, or all of it; empty if nothing is left to return or to skip
        self._offset: int | None = None  # of the current line, if it has been read and must be read again

    def advance(self) -> bool:
        """Go to the next line; return False if there is none."""
        if self._offset is None and self._start and not self._start.endswith(b"\n"):
            self._skip_rest()
        self._offset = None
        while self._read_start():
            if self._parse():
                return True
        return False

    def line(self) -> bytes | None:
        """Return the current line with its newline, or None if it is truncated or damaged."""
        if self._offset is not None:
            self._file.seek(self._offset)
            self._offset = None
        elif self._start.endswith(b"\n"):
            return self._start
        line = self._whole()
        if line is None or (self._damage is not None and self._check(line) != self.number):
            return None
        return line

    def _skip_rest(self) -> None:
        while part := self._read():
            if part.endswith(b"\n"):
                return
        self._record_truncation()

    def _read_start(self) -> bool:
        """Read the start of the next line that is not blank; return False if there is none."""
        while part := self._read():
            self._lines += 1
            self._start = part.removeprefix(_BOM) if self._lines == 1 else part
            if self._start.strip():
                return True
        self._start = b""
        return False

    def _whole(self) -> bytes | None:
        """Return the current line, of which only the start has been read, or None if it is truncated."""
        line, self._start = bytearray(self._start), b""
        while not line.endswith(b"\n"):
            part = self._read()
            if not part and _is_complete(line):  # another program has removed the last newline
                part = b"\n"
            if not part:
                self._record_truncation()
                return None
            line += part
            if len(line) > _MAX_LINE:
                raise self._not_output()
        return bytes(line)

    def _parse(self) -> bool:
        """Set the number of the current line; return False if the line is truncated or damaged."""
        usual = _FAST_PATH.match(self._start)
        is_whole = self._start.endswith(b"\n")
        if usual is not None and (len(self._start) == BLOCK if not is_whole else self._damage is None):
            self.number = int(usual[1])
            return True
        offset = self._file.tell() - len(self._start) if not is_whole and self._file.seekable() else None
        line = self._start if is_whole else self._whole()
        number = None if line is None else self._check(line)
        if line is None or number is None:
            self._start = b""
            return False
        self.number, self._offset = number, offset
        self._start = line if offset is None else b""
        return True

    def _check(self, line: bytes) -> int | None:
        """Return the number in *line*, or None if it is damaged."""
        try:
            number = _number_in(line)
        except _NotOutput:
            raise self._not_output() from None
        if number is None and self._damage is not None:
            self._damage.add(self._name, self._lines)
        return number

    def _record_truncation(self) -> None:
        if self._damage is not None:
            self._damage.truncated.add(self._name)

    def _read(self) -> bytes:
        """Return the next part of a line, or nothing at the end; only the last part ends with a newline."""
        try:
            return self._file.readline(BLOCK)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise UsageError(f"{printable(self._name)} cannot be read: {reason}", hint="check the file") from error

    def _not_output(self) -> UsageError:
        message = f"line {self._lines:,} of {printable(self._name)} is not a line of `xapi batch` output"
        error = UsageError(message, hint="each line must be a JSON object with the key `line`")
        return error.concerning(line=self._lines)


class _NotOutput(Exception):
    """The line is not output of a batch, whether damaged or not."""


def _number_in(line: bytes) -> int | None:
    """Return the value of the member `line` of the JSON object in *line*, or None if *line* is damaged.

    A line of more than 1 MiB is checked for complete strings and balanced brackets only. Raises _NotOutput.
    """
    text = line.strip(b" \t\r\n")
    try:
        values = _scanned(text) if len(text) > _MAX_PARSED else _parsed(text.decode())
    except RecursionError:
        values = _scanned(text)
    except ValueError:
        values = None
    if values is None:
        if _TRACE.search(text):
            return None
        raise _NotOutput
    if len(values) > 1:
        return None
    if not values or not values[0]:
        raise _NotOutput
    return values[0]


def _is_complete(line: bytes | bytearray) -> bool:
    """Return whether *line*, which has no newline, is nevertheless a line of output and not the beginning of one."""
    try:
        return _number_in(bytes(line)) is not None
    except _NotOutput:
        return False


def _parsed(text: str) -> list[int]:
    """Return the values of the members `line` of the object *text*, 0 for an invalid one; raises ValueError."""
    members = _DECODER.decode(text)
    if not isinstance(members, tuple):  # an object, because an array is a list
        return []
    return [_valid(value) for name, value in members if name == "line"]


def _valid(value: object) -> int:
    return int(value) if isinstance(value, Number) and re.fullmatch(_NUMBER.decode(), value) else 0


def _scanned(text: bytes) -> list[int] | None:
    """Return the values as `_parsed` does, or None if *text* is not balanced or contains control characters."""
    values, depth, end = list[int](), 0, len(text)
    if not text.startswith(b"{"):
        return None
    for token in _TOKEN.finditer(text):
        first = token[0][:1]
        if first in b"[{":
            depth += 1
        elif first in b"]}":
            depth -= 1
            if depth < 1 and token.end() < end:
                return None
        elif first != b'"' or token[0] == b'"':
            return None
        elif depth == 1 and token[0] == b'"line"' and (found := _VALUE.match(text, token.end())) is not None:
            values.append(int(found[1]))
    return values if depth == 0 and text.endswith(b"}") else None

"""Read the output of a batch, line by line, with the number of the input line that each belongs to."""

import re
from typing import BinaryIO

from xapi_cli.errors import UsageError
from xapi_cli.system.render import printable

BLOCK = 64 * 1024
_MAX_LINE = 128 * 1024 * 1024  # bytes; the longest line has a body of 10 MiB as text in which each byte is escaped
_NUMBER = rb"[1-9]\d{0,14}"
_FAST_PATH = re.compile(rb'\{"id": ?(?:null|true|false|-?\d[\d.eE+-]*|"[^"\\]*+"), ?"line": ?(%s),' % _NUMBER)
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{]|[\]}]', re.DOTALL)
_VALUE = re.compile(rb"\s*:\s*(%s)\s*[,}]" % _NUMBER)


class OutputReader:
    """Read *file*, the output of `xapi batch`, which messages call *name*.

    The methods raise UsageError if it cannot be read or is something else. A last line without a newline is ignored,
    because the program that wrote it was killed; *truncated* receives *name* then.
    """

    def __init__(self, file: BinaryIO, name: str, truncated: set[str]) -> None:
        self.number = 0  # of the input line that the current line belongs to
        self._file, self._name, self._truncated = file, name, truncated
        self._lines = 0  # read so far
        self._start = b"\n"  # of the current line, or all of it

    def advance(self) -> bool:
        """Go to the next line; return False if there is none."""
        while not self._start.endswith(b"\n"):  # the rest of a long line
            self._start = self._read() or self._end()
        self._start = b"\n"
        while not self._start.strip():
            self._start = self._read()
            self._lines += 1
            if not self._start:
                self._start = b"\n"
                return False
        return self._parse()

    def line(self) -> bytes | None:
        """Return the current line with its newline, or None if the file ends before that."""
        if self._start.endswith(b"\n"):
            return self._start
        line = bytearray(self._start)
        while not line.endswith(b"\n"):
            part = self._read()
            if not part:
                self._start = self._end()
                return None
            line += part
            if len(line) > _MAX_LINE:
                raise self._not_output()
        self._start = bytes(line)
        return self._start

    def _parse(self) -> bool:
        """Set the number of the current line; return False if the line is truncated."""
        usual = _FAST_PATH.match(self._start)
        if usual is not None and (self._start.endswith(b"\n") or len(self._start) == BLOCK):
            self.number = int(usual[1])
            return True
        line = self.line()
        if line is None:
            return False
        number = _number_in(line)
        if number is None:
            raise self._not_output()
        self.number = number
        return True

    def _end(self) -> bytes:
        """Record that the file ends in the middle of a line; return what ends it."""
        self._truncated.add(self._name)
        return b"\n"

    def _read(self) -> bytes:
        """Return the next part of a line, or nothing at the end; only the last part ends with a newline."""
        try:
            return self._file.readline(BLOCK)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise UsageError(f"{printable(self._name)} cannot be read: {reason}", hint="check the file") from error

    def _not_output(self) -> UsageError:
        return UsageError(
            f"line {self._lines:,} of {printable(self._name)} is not a line of `xapi batch` output",
            hint="each line must be a JSON object with the key `line`",
        )


def _number_in(line: bytes) -> int | None:
    """Return the value of the key `line` of the JSON object in *line*, wherever it is; None if there is none."""
    if not (line.lstrip().startswith(b"{") and line.rstrip().endswith(b"}")):
        return None
    depth = 0
    for token in _TOKEN.finditer(line):
        if token[0] in b"[{":
            depth += 1
        elif token[0] in b"]}":
            depth -= 1
        elif depth == 1 and token[0] == b'"line"' and (found := _VALUE.match(line, token.end())) is not None:
            return int(found[1])
    return None

"""The rows of an input: the elements of a JSON array, JSON objects, the lines of a text, or the rows of a CSV table.

The first character decides. An input is read as a stream; what is before an error is returned first.
"""

import codecs
import csv
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from xapi_cli.errors import UsageError
from xapi_cli.request.json_values import InvalidValue, JsonReader
from xapi_cli.system.render import printable

_MAX_CELL = 10 * 2**20  # characters
_EMPTY = "the command before the pipe has failed, or it selected nothing: let jq print an array, `jq 'map(select(…))'`"


class Row(NamedTuple):
    """Row *number*, whose first line in the input is *line*.

    *value* is a JSON value; the cells of a row of a table are strings, and so is a line of a text. *is_text* tells
    these from JSON. *surplus* is whether a row of a table has more cells than the header.
    """

    number: int
    line: int
    value: Any
    is_text: bool = False
    surplus: bool = False


class Rows:
    """The rows in *blocks*, bytes; `header` is, once rows are read, the header of a CSV table.

    *takes_lines* is whether a text consists of lines and not of a table. With *items*, the rows are the elements of the
    array in that field. *needed* are the names of fields: a single object that has none of them, but an array, is
    not meant as a row. Iteration raises UsageError.
    """

    def __init__(
        self, blocks: Iterable[bytes], *, takes_lines: bool, items: str | None = None, needed: Iterable[str] = ()
    ) -> None:
        self._takes_lines, self._items, self._needed = takes_lines, items, list(needed)
        self._text = _decoded(blocks)
        self.header: list[str] | None = None

    def elements(self) -> Iterator[Row]:
        """Yield the rows of an input that must be a JSON array, or an object with one; raises UsageError."""
        return self._rows("{" if self._items else "[")

    def __iter__(self) -> Iterator[Row]:
        return self._rows("")

    def _rows(self, required: str) -> Iterator[Row]:
        start = ""
        for part in self._text:
            start += part
            if start.strip():
                break
        reader = JsonReader(_chain(start, self._text))
        kind = start.lstrip()[:1]
        if not kind:
            raise UsageError("the input is empty", hint=_EMPTY)
        if required and kind != required:
            hint = "use --items FIELD if it is in a field" if kind == "{" else "omit --items" if kind == "[" else None
            raise UsageError(f"it is not a JSON {'object' if required == '{' else 'array'}", hint=hint)
        if self._items and kind != "{":
            raise UsageError("the input is not a JSON object", hint="omit --items")
        try:
            if kind in "[{":
                yield from self._json(reader, kind)
            elif self._takes_lines:
                yield from self._lines(_chain(start, self._text))
            else:
                yield from self._table(_chain(start, self._text))
        except InvalidValue as error:
            raise UsageError(f"line {error.line} of the input is not valid: {error}") from None

    def _json(self, reader: JsonReader, kind: str) -> Iterator[Row]:
        if self._items is not None:
            try:
                values = reader.elements_at(self._items)
                yield from self._numbered(reader, values)
            except KeyError:
                raise UsageError(
                    f"the input has no array {printable(self._items)}", hint="check the field in --items"
                ) from None
        elif kind == "[":
            yield from self._numbered(reader, reader.elements())
        else:
            yield from self._numbered(reader, self._objects(reader))
        if reader.peek():
            raise UsageError(f"line {reader.line} of the input is not valid: there is more after the array")

    @staticmethod
    def _numbered(reader: JsonReader, values: Iterator[Any]) -> Iterator[Row]:
        for number, value in enumerate(values, 1):
            yield Row(number, reader.value_line, value)

    def _objects(self, reader: JsonReader) -> Iterator[Any]:
        first = reader.value()
        if not reader.peek():
            self._check_single(first)
        yield first
        while reader.peek():
            yield reader.value()

    def _check_single(self, value: dict[str, Any]) -> None:
        """Raise UsageError if the only object *value* contains the rows and is none."""
        from xapi_cli.request.json_values import lookup

        def has(name: str) -> bool:
            try:
                lookup(value, name)
            except KeyError:
                return False
            return True

        array = next((name for name, each in value.items() if isinstance(each, list)), None)
        if array is not None and not all(map(has, self._needed)):
            raise UsageError(
                f"the input is one object, whose field {printable(array)} is an array",
                hint=f"use --items {printable(array)} for its elements",
            )

    @staticmethod
    def _lines(parts: Iterator[str]) -> Iterator[Row]:
        count = 0
        for number, text in enumerate(_split(parts), 1):
            line = text.rstrip("\r\n")
            if not line.strip():
                continue
            count += 1
            value: Any = line
            if line.startswith('"') and line.endswith('"') and len(line) > 1:
                try:
                    value = JsonReader([line]).value()  # as jq prints it without -r
                except InvalidValue:
                    value = line
            yield Row(count, number, value, is_text=True)

    def _table(self, parts: Iterator[str]) -> Iterator[Row]:
        lines, blank = _split(parts), 0
        while not (first := next(lines, "")).strip():
            blank += 1
        delimiter = max(",;\t", key=first.count)
        csv.field_size_limit(_MAX_CELL)
        reader = csv.reader(_chain(first, lines), delimiter=delimiter, strict=True)
        count, start = 0, blank + 1
        try:
            for cells in reader:
                line, start = start, blank + reader.line_num + 1
                if self.header is None:
                    self.header = cells
                elif cells:
                    count += 1
                    named = dict(zip(self.header, cells, strict=False))
                    yield Row(count, line, named, is_text=True, surplus=len(cells) > len(self.header))
        except csv.Error as error:
            raise UsageError(f"line {start} of the CSV input is not valid: {error}") from None


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _decoded(blocks: Iterable[bytes]) -> Iterator[str]:
    """Yield the text of *blocks*: UTF-8, or UTF-16 with a byte order mark; raises UsageError for anything else."""
    decoder, line, start = None, 1, b""
    iterator = iter(blocks)
    for block in iterator:
        if decoder is None:
            start += block
            if len(start) < 3 and start[:1] in (b"\xef", b"\xfe", b"\xff"):  # of a byte order mark
                continue
            decoder, arrived = _decoder_for(start), start
        else:
            arrived = block
        try:
            text = decoder.decode(arrived)
        except UnicodeDecodeError as error:
            raise _not_utf8(line + error.object[: error.start].count(b"\n")) from None
        line += text.count("\n")
        yield text
    try:
        yield (decoder or _decoder_for(start)).decode(b"" if decoder else start, final=True)
    except UnicodeDecodeError:
        raise _not_utf8(line) from None


def _decoder_for(start: bytes) -> codecs.IncrementalDecoder:
    is_utf16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return codecs.getincrementaldecoder("utf-16" if is_utf16 else "utf-8-sig")()


def _not_utf8(line: int) -> UsageError:
    return UsageError(
        f"line {line} of the input is not valid UTF-8",
        hint="convert it, for example with `iconv -f WINDOWS-1252 -t UTF-8`",
    )


def _split(parts: Iterator[str]) -> Iterator[str]:
    """Yield the lines in *parts*, with their ends; raises UsageError if one is too long."""
    rest = ""
    for part in parts:
        rest += part
        if "\n" in part:
            *lines, rest = rest.split("\n")
            for line in lines:
                yield f"{line}\n"
        if len(rest) > _MAX_CELL:
            raise UsageError(f"a line of the input has more than {_MAX_CELL // 2**20} MiB")
    if rest:
        yield rest

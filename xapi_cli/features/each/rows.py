"""The rows of an input: the elements of a JSON array, JSON objects, the lines of a text, or the rows of a CSV table.

The first character decides. An input is read as a stream; what is before an error is returned first.
"""

import codecs
import csv
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

from xapi_cli.errors import UsageError
from xapi_cli.request.json_values import InvalidValue, JsonReader, loads, lookup
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


def rows(
    blocks: Iterable[bytes], *, needed: Collection[str] = (), items: str | None = None, list_: str | None = None
) -> Iterator[Row]:
    """Yield the rows in *blocks*, bytes; raises UsageError.

    *needed* are the names of the fields that are used; a text without any consists of lines, otherwise it is a table.
    With *items*, the rows are the elements of the array in that field. *list_* is what messages call an input
    that must be an array, or an object with *items*.
    """
    what = list_ or "the input"
    parts = _decoded(blocks, what)
    start = ""
    for part in parts:
        start += part
        if start.strip():
            break
    kind, text = start.lstrip()[:1], chain([start], parts)
    if not kind:
        raise UsageError(f"{what} is empty", hint=_EMPTY)
    required = "{" if items else "[" if list_ else kind
    if kind != required:
        hint = "omit --items" if kind == "[" else "use --items FIELD if it is in a field" if kind == "{" else None
        raise UsageError(f"{what} is not a JSON {'object' if items else 'array'}", hint=hint)
    try:
        if kind in "[{":
            reader = JsonReader(text)
            for number, value in enumerate(_values(reader, kind, items, needed), 1):
                yield Row(number, reader.value_line, value)
            if reader.peek():
                raise InvalidValue("there is more after the array", reader.line)
        elif needed:
            yield from _table(text, needed)
        else:
            yield from _lines(text)
    except InvalidValue as error:
        raise UsageError(f"line {error.line} of {what} is not valid: {error}") from None


def _values(reader: JsonReader, kind: str, items: str | None, needed: Collection[str]) -> Iterator[Any]:
    if items:
        try:
            yield from reader.elements_at(items)
        except KeyError:
            raise UsageError(f"there is no array {printable(items)}", hint="check the field in --items") from None
    elif kind == "[":
        yield from reader.elements()
    else:
        first = reader.value()
        if not reader.peek():
            _check_single(first, needed)
        yield first
        while reader.peek():
            yield reader.value()


def _check_single(value: dict[str, Any], needed: Collection[str]) -> None:
    """Raise UsageError if the only object *value* contains the rows and is none."""
    array = next((printable(name) for name, each in value.items() if isinstance(each, list)), None)
    if array is None:
        return
    try:
        for name in needed:
            lookup(value, name)
    except KeyError:
        message = f"the input is one object, whose field {array} is an array"
        raise UsageError(message, hint=f"use --items {array} for its elements") from None


def _lines(parts: Iterator[str]) -> Iterator[Row]:
    count = 0
    for number, text in enumerate(_split(parts), 1):
        value: Any = text.rstrip("\r\n")
        if not value.strip():
            continue
        count += 1
        if value.startswith('"'):
            with suppress(InvalidValue):
                value = loads(value)  # as jq prints it without -r
        yield Row(count, number, value, is_text=True)


def _table(parts: Iterator[str], needed: Collection[str]) -> Iterator[Row]:
    lines, blank = _split(parts), 0
    while not (first := next(lines)).strip():
        blank += 1
    csv.field_size_limit(_MAX_CELL)
    reader = csv.reader(chain([first], lines), delimiter=max(",;\t", key=first.count), strict=True)
    count, start = 0, blank + 1
    header: list[str] | None = None
    try:
        for cells in reader:
            line, start = start, blank + reader.line_num + 1
            if header is None:
                header = cells
                _check_header(header, needed)
            elif cells:
                count += 1
                value = dict(zip(header, cells, strict=False))
                yield Row(count, line, value, is_text=True, surplus=len(cells) > len(header))
    except csv.Error as error:
        reason = str(error).partition(" - ")[0]  # then Python asks about the mode of the file
        raise UsageError(f"line {start} of the CSV input is not valid: {reason}") from None


def _check_header(header: Sequence[str], needed: Collection[str]) -> None:
    """Raise UsageError if a CSV table with *header* does not have a field that is needed, or has it twice."""
    for name in needed:
        if header.count(name) > 1:
            raise UsageError(f"the CSV header has the column {printable(name)} twice", hint="rename one of them")
        if name not in header:
            columns = ", ".join(printable(each) for each in header)
            hint = "check the name, or use {} for lines without a header"
            raise UsageError(f"the CSV header has no column {printable(name)}; it has {columns}", hint=hint)


def _decoded(blocks: Iterable[bytes], what: str) -> Iterator[str]:
    """Yield the text of *blocks*: UTF-8, or UTF-16 with a byte order mark; raises UsageError for anything else."""
    rest, start = iter(blocks), b""
    try:
        while len(start) < len(codecs.BOM_UTF16) and (block := next(rest, b"")):
            start += block
        is_utf16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        yield from codecs.iterdecode(chain([start], rest), "utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeError:
        hint = "convert it, for example with `iconv -f WINDOWS-1252 -t UTF-8`"
        raise UsageError(f"{what} is not valid UTF-8", hint=hint) from None


def _split(parts: Iterator[str]) -> Iterator[str]:
    """Yield the lines in *parts*, with their ends; raises UsageError if one is too long."""
    rest = ""
    for part in parts:
        *lines, rest = (rest + part).split("\n")
        for line in lines:
            yield f"{line}\n"
        if len(rest) > _MAX_CELL:
            raise UsageError(f"a line of the input has more than {_MAX_CELL // 2**20} MiB")
    if rest:
        yield rest

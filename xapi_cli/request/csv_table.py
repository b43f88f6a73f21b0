"""Write JSON objects as CSV (RFC 4180) with a header row: UTF-8 without a byte order mark, lines end with LF.

The columns are the given fields, or else those of the first rows, in the order in which they appear: nested objects are
flattened with dots, arrays stay JSON.
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from xapi_cli.errors import ExpectationFailed
from xapi_cli.request.json_values import InvalidValue, JsonReader, dumps, lookup
from xapi_cli.request.media_types import utf8
from xapi_cli.system.render import printable

_SAMPLE = 1000  # rows from which the columns are taken
_MAX_SAMPLE = 10 * 2**20  # characters of these rows, as JSON


class CsvTable:
    """Write rows with `write_with`, which takes bytes; *warn* gets the warning about a field that comes too late."""

    write_with: Callable[[bytes], object]

    def __init__(self, fields: Sequence[str], warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._fields, self._missing = fields, set(fields)
        self._columns = dict.fromkeys(fields)
        self._sample: list[dict[str, str]] = []
        self._sample_size = self._count = 0
        self._is_open = self._has_warned = False
        self._writer = csv.writer(self, lineterminator="\n")

    def add(self, value: Any) -> None:
        """Add the row *value*, an object, or the rows of an array; raises ExpectationFailed for anything else."""
        for row in value if isinstance(value, list) else [value]:
            if not isinstance(row, dict):
                raise ExpectationFailed(
                    "the response is not a JSON object or an array of objects", hint="omit --csv to see it"
                )
            self._count += 1
            self._add(self._cells(row))

    def finish(self) -> None:
        """Write what is left; raises ExpectationFailed if no row has a field that was asked for."""
        if not self._is_open:
            self._open()
        if self._missing and self._count:
            names = ", ".join(printable(name) for name in sorted(self._missing))
            raise ExpectationFailed(f"no row has the field {names}", hint="check the names in --fields")

    def _cells(self, row: dict[str, Any]) -> dict[str, str]:
        if not self._fields:
            return dict(_flattened(row))
        cells = {}
        for name in self._fields:
            with suppress(KeyError):
                cells[name] = _text(lookup(row, name))
        self._missing.difference_update(cells)
        return cells

    def _add(self, cells: dict[str, str]) -> None:
        if not self._is_open:
            self._columns |= dict.fromkeys(cells)
            self._sample.append(cells)
            self._sample_size += sum(map(len, cells.values()))
            if self._fields or len(self._sample) >= _SAMPLE or self._sample_size >= _MAX_SAMPLE:
                self._open()
            return
        if not self._has_warned and (late := next((name for name in cells if name not in self._columns), None)):
            self._has_warned = True
            self._warn(
                f"the field {printable(late)} first appears in row {self._count:,}, and is left out; use --fields"
            )
        self._write_row(cells)

    def _open(self) -> None:
        """Write the header row, and the rows from which the columns were taken."""
        self._is_open = True
        if self._columns:
            self._writer.writerow(self._columns)
        for cells in self._sample:
            self._write_row(cells)
        self._sample.clear()

    def _write_row(self, cells: dict[str, str]) -> None:
        self._writer.writerow([cells.get(name, "") for name in self._columns])

    def write(self, text: str) -> None:
        """Write *text*, a line of the csv module."""
        self.write_with(text.encode("utf-8", "backslashreplace"))


def _flattened(row: dict[str, Any], prefix: str = "") -> "list[tuple[str, str]]":
    cells: list[tuple[str, str]] = []
    for name, value in row.items():
        if isinstance(value, dict) and value:
            cells += _flattened(value, f"{prefix}{name}.")
        else:
            cells.append((f"{prefix}{name}", _text(value)))
    return cells


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, str) else dumps(value)


class TableFilter:
    """The output of --csv: the rows of each body go to one table, with the columns *fields*."""

    makes_json = False

    def __init__(self, fields: Sequence[str], warn: Callable[[str], None]) -> None:
        self._table = CsvTable(fields, warn)

    def apply(self, chunks: Iterable[bytes], write: Callable[[bytes], None], content_type: str = "") -> None:
        """Write the JSON values in *chunks*, arrays by their elements; raises ExpectationFailed for anything else."""
        self._table.write_with = write
        reader = JsonReader(each.decode() for each in utf8(chunks, content_type, reader="--csv"))
        try:
            while kind := reader.peek():
                for value in reader.elements() if kind == "[" else [reader.value()]:
                    self._table.add(value)
        except InvalidValue as error:
            what = f"line {error.line} of the response is not valid: {error}"
            raise ExpectationFailed(what, hint="omit --csv to see it") from None

    def finish(self, write: Callable[[bytes], None]) -> None:
        """Write what is left; raises ExpectationFailed for a field that no row has."""
        self._table.write_with = write
        self._table.finish()


def parse_fields(text: str) -> list[str]:
    """Return the names in *text*, the value of --fields."""
    return [name.strip() for name in text.split(",") if name.strip()]

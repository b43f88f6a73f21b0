r"""A request with placeholders, and the request for a row, as a line of `batch`.

`{name}` stands for a field of the row, and `{}` for a row that is not an object; `\{` is a brace. The ITEMs are parsed
before placeholders are replaced, so a value is never syntax.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from xapi_cli.errors import InvalidLine, UsageError
from xapi_cli.features.each.rows import Row
from xapi_cli.http import urls
from xapi_cli.request import items, nested_json
from xapi_cli.request.items import Field
from xapi_cli.request.json_values import InvalidValue, Number, dumps, loads, lookup
from xapi_cli.system.render import printable

ROW = ""  # the name in the placeholder `{}`
_PLACEHOLDER = re.compile(r'\\\{|\{([^{}":,]*)\}')
_OTHER_NOTATION = re.compile(r"(?<=[/=])[:$](\w+)|\$\{(\w+)\}|\{\{\s*([\w.]+)\s*\}\}|\{\s*([\w.]+)\s*\}")
_SPREADSHEET = {"TRUE": True, "True": True, "FALSE": False, "False": False}


class Value(NamedTuple):
    """What the value of an ITEM is for a row; *names* are those of its placeholders."""

    names: Sequence[str]
    of: Callable[[Row], Any]


class Template:
    """The request *method* for *path*, with the ITEMs *arguments*, *headers* of `-H` and *data* of `-d`.

    *base_url* is the one to which links must lead. Raises UsageError.
    """

    def __init__(
        self,
        method: str | None,
        path: str,
        arguments: Sequence[str] = (),
        headers: Sequence[str] = (),
        data: str | None = None,
        *,
        base_url: str,
    ) -> None:
        self._base_url = base_url
        self._path = _path_parts(path)
        found = items.parse(_checked_arguments(arguments), headers=headers, read=_read_text, check_json=False)
        if found.uploads:
            raise UsageError("`each` uploads no files", hint="use `xapi request` for each of them")
        if data is not None and found.parts:
            raise UsageError("-d cannot be combined with fields", hint="omit one of them")
        self._query = [(name, _text(value)) for name, value in found.query]
        self._headers = [(name, None if value is None else _text(value, _filled)) for name, value in found.headers]
        self._fields = [(field, _field(field)) for field in found.fields]
        self._data = None if data is None else _data(data)
        self.method = items.sent_method(method, has_body=found.has_body(data))
        names = {name for value in self._values() for name in value.names}
        self.names = sorted(names - {ROW})  # of the fields that are used
        if not names:
            raise UsageError("there is no placeholder: every row would send the same request", hint=_notation(path))
        has_row = any(ROW in value.names for value in self._values() if value is not self._data)
        if has_row and self.names:
            raise UsageError("{} and the placeholder of a field cannot be combined", hint="use one of them")
        self.takes_lines = has_row or not self.names  # a text has one value in each line

    def _values(self) -> Iterator[Value]:
        yield Value([part[0] for part in self._path if isinstance(part, tuple)], lambda row: None)
        yield from (value for _, value in self._query)
        yield from (value for _, value in self._headers if value is not None)
        yield from (value for _, value in self._fields)
        if self._data is not None:
            yield self._data

    def check_header(self, header: Sequence[str]) -> None:
        """Raise UsageError if the CSV table with *header* does not have a field that is used, or has it twice."""
        for name in self.names:
            if header.count(name) > 1:
                raise UsageError(f"the CSV header has the column {printable(name)} twice", hint="rename one of them")
            if name not in header:
                columns = ", ".join(printable(each) for each in header)
                hint = "check the name, or use {} for lines without a header"
                raise UsageError(f"the CSV header has no column {printable(name)}; it has {columns}", hint=hint)

    def line(self, row: Row) -> dict[str, Any]:
        """Return the line of `batch` for *row*; raises InvalidLine, whose message contains no value."""
        if row.surplus:
            raise InvalidLine("the row has more cells than the header")
        line: dict[str, Any] = {"id": Number(row.number), "method": self.method, "path": self._path_of(row)}
        query: dict[str, list[str]] = {}
        for name, value in self._query:
            query.setdefault(name, []).append(value.of(row))
        if query:
            line["query"] = {name: texts if len(texts) > 1 else texts[0] for name, texts in query.items()}
        if self._headers:
            line["headers"] = {name: None if value is None else value.of(row) for name, value in self._headers}
        if self._data is not None:
            line["json"] = self._data.of(row)
        elif self._fields:
            resolved = [Field(field.name, dumps(value.of(row)), is_json=True) for field, value in self._fields]
            pieces = nested_json.pieces(nested_json.build(resolved))
            line["json"] = loads("".join(each if isinstance(each, str) else each.text or "" for each in pieces))
        return line

    def _path_of(self, row: Row) -> str:
        resolved = ""
        for number, part in enumerate(self._path):
            if isinstance(part, str):
                resolved += part
                continue
            text = _filled(row, part[0])
            resolved += self._link(text) if number == 0 else quote(text, safe="")
        if any(segment in (".", "..") for segment in re.split(r"[/\\]", resolved.partition("?")[0])):
            raise InvalidLine("the path has a segment . or ..")
        return resolved

    def _link(self, value: str) -> str:
        """Return *value*, a link, as PATH: without the base URL's origin and path prefix."""
        prefix = urls.path_of(f"{self._base_url}/")
        if value.lower().startswith(("http://", "https://")):
            rest = urls.after_origin(value, urls.split_server(f"{self._base_url}/")[0])
            if rest is None:
                raise InvalidLine("the link leads to another origin")
            if not rest.startswith(prefix):
                return value  # beside the base URL
            value = rest
        if not value.startswith("/") or value.startswith("//"):
            raise InvalidLine("the link is neither a path that starts with / nor a URL")
        return value[len(prefix) - 1 :] if value.startswith(prefix) else value


def _path_parts(path: str) -> list[str | tuple[str]]:
    parts = _parsed(path)
    for position, part in enumerate(parts):
        # a brace that was escaped is a part of its own
        if (isinstance(part, str) and part != "{" and "{" in part) or (part == "{" and not path.count("\\{")):
            raise UsageError("PATH has a { that is not part of a placeholder", hint=_notation(path))
        if isinstance(part, str) and position == 0 and not part.startswith("/"):
            parts[0] = f"/{part}"
    return parts


def _notation(path: str) -> str:
    """Return a hint for a *path* with placeholders of another notation, or without any."""
    found = _OTHER_NOTATION.search(path)
    return f"write {{{next((name for name in found.groups() if name), 'name')}}}" if found else "write {name}"


def _parsed(text: str) -> list[str | tuple[str]]:
    """Return the parts of *text*: strings, and the name of each placeholder in a tuple; an escaped brace is a part."""
    parts: list[str | tuple[str]] = []
    at = 0
    for found in _PLACEHOLDER.finditer(text):
        name = found[1]
        if name is not None and name != name.strip():
            continue
        parts += [text[at : found.start()], "{" if name is None else (name,)]
        at = found.end()
    return [part for part in [*parts, text[at:]] if part]


def _checked_arguments(arguments: Sequence[str]) -> Sequence[str]:
    for argument in arguments:
        if argument.startswith("/"):
            raise UsageError("there is a second path", hint="write --list LIST_PATH for the path of the list")
        if not items.is_item(argument) and os.path.exists(argument):
            raise UsageError("there is a file among the arguments", hint="write --from FILE for the file with the rows")
    return arguments


def _read_text(path: str) -> str:
    from xapi_cli.request.body.sources import read_text

    if path == "-":
        raise UsageError("the rows are read from stdin, so no value can be", hint="name a file after the @")
    return "".join(read_text(path, lambda: None))


# values


def _text(text: str, read: Callable[[Row, str], str] | None = None) -> Value:
    """Return the value of a query parameter, a header or a string field; *read* returns a field of a row."""
    parts, read = _parsed(text), read or _plain
    names = [part[0] for part in parts if isinstance(part, tuple)]
    return Value(names, lambda row: "".join(part if isinstance(part, str) else read(row, part[0]) for part in parts))


def _field(field: Field) -> Value:
    if field.path is not None:
        text = _read_text(field.path)
        value = _json(text, field.name) if field.is_json else text
        return Value((), lambda row: value)
    if not field.is_json:
        return _text(field.text or "")
    text = (field.text or "").strip()
    parts = _parsed(text)
    if len(parts) == 1 and isinstance(parts[0], tuple):
        (name,) = parts[0]
        return Value([name], lambda row: _json_of(row, name))
    return _within(_json(text, field.name))


def _within(value: Any) -> Value:
    """Return the JSON *value* with the placeholders in its strings replaced."""
    if isinstance(value, str) and not isinstance(value, Number):
        return _text(value)
    if isinstance(value, list):
        elements = [_within(each) for each in value]
        names = [name for each in elements for name in each.names]
        return Value(names, lambda row: [each.of(row) for each in elements])
    if isinstance(value, dict):
        members = {name: _within(each) for name, each in value.items()}
        names = [name for each in members.values() for name in each.names]
        return Value(names, lambda row: {name: each.of(row) for name, each in members.items()})
    return Value((), lambda row: value)


def _data(text: str) -> Value:
    parts = _parsed(text)
    if len(parts) != 1 or isinstance(parts[0], str):
        raise UsageError(
            "-d is neither '{}', the row, nor '{field}'",
            hint="let jq build the body: jq -c '.[] | {id, body: {…}}' | xapi each PUT '/x/{id}' -d '{body}'",
        )
    (name,) = parts[0]
    return Value([name], lambda row: row.value if name == ROW else _json_of(row, name))


def _json(text: str, name: str) -> Any:
    try:
        return loads(text)
    except InvalidValue as error:
        hint = f"for a string, write {printable(name)}=…"
        raise UsageError(f"{printable(name)} has a value that is not valid JSON: {error}", hint=hint) from None


def _value(row: Row, name: str) -> Any:
    """Return the field *name* of *row*, or the row itself."""
    if name == ROW:
        if isinstance(row.value, dict):
            raise InvalidLine("the row is an object, and {} stands for other values")
        return row.value
    if not isinstance(row.value, dict):
        raise InvalidLine(f"the row is not an object, so it has no field {printable(name)}")
    try:
        return lookup(row.value, name)
    except KeyError:
        raise InvalidLine(f"the row has no field {printable(name)}") from None


def _plain(row: Row, name: str) -> str:
    """Return the field as text."""
    value = _value(row, name)
    if value is None or isinstance(value, dict | list):
        kind = "null" if value is None else "an array" if isinstance(value, list) else "an object"
        raise InvalidLine(f"{_named(name)} is {kind}; only := and -d take it")
    return str(value) if isinstance(value, str) else dumps(value)


def _filled(row: Row, name: str) -> str:
    """Return the field as text for a path or a header."""
    if not (text := _plain(row, name)):
        raise InvalidLine(f"{_named(name)} is empty")
    if "\n" in text or "\r" in text:
        raise InvalidLine(f"{_named(name)} has a line break")
    return text


def _json_of(row: Row, name: str) -> Any:
    """Return the field as a JSON value; a cell of a table, or a line of text, is JSON text."""
    value = _value(row, name)
    if not row.is_text:
        if value == "" and not isinstance(value, Number):
            raise InvalidLine(f"{_named(name)} is empty")
        return value
    if not value:
        raise InvalidLine(f"{_named(name)} is empty")
    if value in _SPREADSHEET:
        return _SPREADSHEET[value]
    try:
        return loads(value)
    except InvalidValue:
        raise InvalidLine(f"{_named(name)} is not valid JSON") from None


def _named(name: str) -> str:
    return "the row" if name == ROW else f"the field {printable(name)}"

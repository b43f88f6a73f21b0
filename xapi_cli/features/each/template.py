r"""A request with placeholders, and the request for each row: a line of `batch`, and the call that it describes.

`{name}` stands for a field of the row, and `{}` for a row that is not an object; `\{` is a brace. The ITEMs are parsed
before placeholders are replaced, so a value is never syntax.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from tempfile import SpooledTemporaryFile
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote

from xapi_cli.errors import InvalidLine, UsageError
from xapi_cli.features.batch import lines
from xapi_cli.features.batch.results import Result, Task
from xapi_cli.features.each.rows import Row
from xapi_cli.http import urls
from xapi_cli.http.send import Call
from xapi_cli.request import items, nested_json
from xapi_cli.request.body.sources import read_text, read_value
from xapi_cli.request.body.spool import disk_errors
from xapi_cli.request.items import Field
from xapi_cli.request.json_values import InvalidValue, Number, dumps, loads, lookup
from xapi_cli.system.redact import secret_values
from xapi_cli.system.render import counted, printable

ROW = ""  # the name in the placeholder `{}`
_PLACEHOLDER = re.compile(r'\\\{|\{((?!\s)[^{}":,]*(?<!\s))\}')  # or an escaped brace
_OTHER_NOTATION = re.compile(r"(?<=[/=])[:$](\w+)|\$\{(\w+)\}|\{\{\s*([\w.]+)\s*\}\}|\{\s*([\w.]+)\s*\}")
_IN_MEMORY = 10 * 2**20  # bytes of the resolved requests
_SPREADSHEET = {"TRUE": True, "True": True, "FALSE": False, "False": False}

ValueOf = Callable[[Row], Any]  # the value of a part of the request for a row


class Source(NamedTuple):
    """What a result needs of its *row*; *text* is the request as a line of `batch`, "" if it has none."""

    row: Row
    text: str = ""


class Template(NamedTuple):
    """A request with placeholders: its *method*, the *names* of the fields that it uses, and its *line* for a row.

    *secrets* are the values of headers such as an API key.
    """

    method: str
    names: Sequence[str]
    line: ValueOf
    secrets: Sequence[str]


def parse(
    method: str | None, path: str, arguments: Sequence[str], headers: Sequence[str], data: str | None, *, base_url: str
) -> Template:
    """Return the request *method* for *path* with the ITEMs *arguments*, *headers* of `-H` and *data* of `-d`.

    *base_url* is the one to which links must lead. Raises UsageError.
    """
    found = _items(arguments, headers, data)
    names: set[str] = set()
    sent = items.sent_method(method, has_body=found.has_body(data))
    line: dict[str, Any] = {"id": lambda row: row.number, "method": sent, "path": _path(path, names, base_url)}
    if query := _by_name(found.query):
        line["query"] = {name: texts if len(texts) > 1 else texts[0] for name, texts in query.items()}
    if by_name := _by_name(found.headers):  # None removes one; the values of a repeated one are joined (RFC 9110, 5.3)
        joined = {name: None if None in texts else ", ".join(filter(None, texts)) for name, texts in by_name.items()}
        line["headers"] = {name: text and _text(text, names, _filled) for name, text in joined.items()}
    if data is not None:
        line["json"] = _data(data, names)
    elif found.fields:
        line["json"] = nested_json.build(found.fields)
    line_of = _value_of(line, names)
    if not names and data is None:
        raise UsageError("there is no placeholder: every row would send the same request", hint=_notation(path))
    fields = sorted(names - {ROW})
    if ROW in names and fields:
        raise UsageError("{} and the placeholder of a field cannot be combined", hint="use one of them")
    secrets = secret_values((name, text.replace("\\{", "{")) for name, text in found.headers if text)
    return Template(sent, fields, line_of, list(secrets))


def resolved(rows: Iterable[Row], template: Template, resolve: Callable[[lines.Members], Call]) -> Iterator[Task]:
    """Yield the task of each row; *resolve* makes its call."""
    for row in rows:
        text, call, failure = "", None, None
        try:
            if row.surplus:
                raise InvalidLine("the row has more cells than the header")
            text = dumps(template.line(row))
            call = resolve(lines.members(text.encode()))
        except UnicodeEncodeError:
            failure = InvalidLine("the row has an unpaired surrogate")
        except UsageError as error:
            failure = lines.as_invalid(error)
        yield Task(row.number, call, failure, source=Source(row, text))


def all_first(tasks: Iterable[Task], report: Callable[[list[Result]], None], stack: ExitStack) -> Iterator[Task]:
    """Return all *tasks*, from a temporary file; raises UsageError, after *report*, if one has a failure."""
    import pickle

    count = invalid = 0
    file = stack.enter_context(SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 - the stack closes it
    with disk_errors("the list of requests"):
        for task in tasks:
            count += 1
            if task.failure is None:
                pickle.dump(task, file)
            else:
                invalid += 1
                report([Result(task, task.failure)])
        file.seek(0)
    if invalid:
        message = f"{counted(invalid, 'row')} cannot be sent, so nothing was sent"
        raise UsageError(message, hint="correct the input")
    return (pickle.load(file) for _ in range(count))  # noqa: S301 - only this process has written it


def _items(arguments: Sequence[str], headers: Sequence[str], data: str | None) -> items.Items:
    for argument in arguments:
        if argument.startswith("/"):
            raise UsageError("there is a second path", hint="write --list LIST_PATH for the path of the list")
        if not items.is_item(argument) and os.path.exists(argument):
            raise UsageError("there is a file among the arguments", hint="write --from FILE for the file with the rows")
    found = items.parse(arguments, headers=headers, read=_read_value, check_json=False)
    if found.uploads:
        raise UsageError("`each` uploads no files", hint="use `xapi request` for each of them")
    if data is not None and found.parts:
        raise UsageError("-d cannot be combined with fields", hint="omit one of them")
    return found


def _by_name(pairs: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def _read_value(path: str) -> str:
    """Return the value of a header or parameter in the file at *path*, with its braces escaped."""
    return read_value(path, _no_stdin).replace("{", "\\{")


def _no_stdin() -> NoReturn:
    raise UsageError("the rows are read from stdin, so no value can be", hint="name a file after the @")


# parts of the request; each adds the names of its placeholders to *names*


def _text(text: str, names: set[str], read: Callable[[Row, str], str] | None = None) -> ValueOf:
    """Return the value of *text*, in which *read* returns what replaces a placeholder: by default the field as text."""
    read = read or _plain
    names.update(found[1] for found in _PLACEHOLDER.finditer(text) if found[1] is not None)
    return lambda row: _PLACEHOLDER.sub(lambda found: "{" if found[1] is None else read(row, found[1]), text)


def _path(path: str, names: set[str], base_url: str) -> ValueOf:
    if not path:
        raise UsageError("PATH is empty", hint="check for an unset shell variable")
    if "{" in _PLACEHOLDER.sub("", path):
        raise UsageError("PATH has a { that is not part of a placeholder", hint=_notation(path))
    if not path.startswith(("/", "{")):
        path = f"/{path}"
    end = path.index("}") + 1 if path.startswith("{") else 0
    link = _text(path[:end], names, lambda row, name: _link(_filled(row, name), base_url))
    rest = _text(path[end:], names, lambda row, name: quote(_filled(row, name), safe=""))

    def value(row: Row) -> str:
        text = f"{link(row)}{rest(row)}"
        if any(segment in (".", "..") for segment in re.split(r"[/\\]", text.partition("?")[0])):
            raise InvalidLine("the path has a segment . or ..")
        return text

    return value


def _link(value: str, base_url: str) -> str:
    """Return *value*, a link, as PATH: without the origin and path prefix of *base_url*."""
    root = urls.root(base_url)
    prefix = f"{base_url.removeprefix(root)}/"
    if value.lower().startswith(("http://", "https://")):
        rest = urls.after_origin(value, base_url)
        if rest is None:
            raise InvalidLine("the link leads to another origin")
        if not rest.startswith(prefix):
            return value  # beside the base URL
        value = rest
    if not value.startswith("/") or value.startswith("//"):
        raise InvalidLine("the link is neither a path that starts with / nor a URL")
    if value.partition("?")[0] == prefix[:-1]:
        return f"{root}{value}"  # the base URL itself, which no path denotes
    return value[len(prefix) - 1 :] if value.startswith(prefix) else value


def _notation(path: str) -> str:
    """Return a hint for a *path* with placeholders of another notation, or without any."""
    found = _OTHER_NOTATION.search(path)
    return f"write {{{next((name for name in found.groups() if name), 'name')}}}" if found else "write {name}"


def _field(field: Field, names: set[str]) -> ValueOf:
    text = field.text or ""
    if field.path is not None:
        text = "".join(read_text(field.path, _no_stdin))
        value = _json(text, field.name) if field.is_json else text
        return lambda row: value  # its braces are no placeholders
    if not field.is_json:
        return _text(text, names)
    return _whole(text.strip(), names) or _value_of(_json(text, field.name), names)


def _value_of(value: Any, names: set[str]) -> ValueOf:
    """Return the JSON *value* with the placeholders in its strings and fields replaced."""
    if callable(value):
        return value  # type: ignore[no-any-return]  # it is a ValueOf
    if isinstance(value, Field):
        return _field(value, names)
    if isinstance(value, str) and not isinstance(value, Number):
        return _text(value, names)
    if isinstance(value, list):
        elements = [_value_of(each, names) for each in value]
        return lambda row: [each(row) for each in elements]
    if isinstance(value, dict):
        members = {name: _value_of(each, names) for name, each in value.items()}
        return lambda row: {name: each(row) for name, each in members.items()}
    return lambda row: value


def _data(text: str, names: set[str]) -> ValueOf:
    if text == "{}":
        return lambda row: row.value  # even if it is an object
    if (value := _whole(text, names)) is None:
        raise UsageError(
            "-d is neither '{}', the row, nor '{field}'",
            hint="let jq build the body: jq -c '.[] | {id, body: {…}}' | xapi each PUT '/x/{id}' -d '{body}'",
        )
    return value


def _whole(text: str, names: set[str]) -> ValueOf | None:
    """Return the JSON value of the placeholder that *text* is as a whole, None if it is not one."""
    found = _PLACEHOLDER.fullmatch(text)
    if not found or found[1] is None:
        return None
    names.add(name := found[1])
    return lambda row: _json_of(row, name)


def _json(text: str, name: str) -> Any:
    return loads(items.checked_json(text, printable(name), name))


# fields of a row


def _value(row: Row, name: str) -> Any:
    """Return the field *name* of *row*, or the row itself."""
    if name == ROW:
        if isinstance(row.value, dict):
            raise InvalidLine("the row is an object, and {} stands for other values: write {name} for a field")
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
    if value == "":
        raise InvalidLine(f"{_named(name)} is empty")
    if not row.is_text:
        return value
    if value in _SPREADSHEET:
        return _SPREADSHEET[value]
    try:
        return loads(value)
    except InvalidValue:
        raise InvalidLine(f"{_named(name)} is not valid JSON: for text, write = in place of :=") from None


def _named(name: str) -> str:
    return "the row" if name == ROW else f"the field {printable(name)}"

"""Parse one input line: `{"id", "method", "path", "query", "headers", "json" | "data"}`.

The text of `id` and `json` is passed through verbatim, so that the notation of numbers does not change.
"""

from dataclasses import dataclass
from typing import Any

from xapi_cli.batch.input.line_reader import MAX_LINE, Line
from xapi_cli.errors import InvalidLine, UsageError
from xapi_cli.http import urls
from xapi_cli.request import items
from xapi_cli.request.body.build import JSON
from xapi_cli.request.body.spool import Text
from xapi_cli.request.calls import Call, Header
from xapi_cli.request.json.members import DuplicateName, ExtraData, TooDeep, members
from xapi_cli.request.json.syntax import InvalidJSON, Number
from xapi_cli.request.read_only import check as check_read_only
from xapi_cli.system.encoding import UNPAIRED_SURROGATE
from xapi_cli.system.render import shortened

KEYS = ("id", "method", "path", "query", "headers", "json", "data")


@dataclass(slots=True)
class Entry:
    """A parsed line: either a *call* or, if the line is not valid, its *error*; *id* is JSON text."""

    number: int
    id: str = "null"
    call: Call | None = None
    error: str | None = None
    digest: bytes = b""
    size: int = 0  # bytes in memory
    source: bytes = b""  # the line itself, if it may be needed again


def parse(line: Line, base_url: str, *, write_remedy: str | None = None) -> Entry:
    """Parse *line* into an entry for the API at *base_url*; an invalid line sets its *error*.

    *write_remedy* is given in read-only mode, and says how to allow writes: a line that may change something on the
    server is then invalid too.
    """
    entry = Entry(line.number, digest=line.digest, size=len(line.data or b""))
    try:
        values, texts = _members(line.data)
        if not isinstance(values.get("id"), TooDeep):  # the reader of the output could not decode it
            entry.id = texts.get("id", "null").replace("\r", " ")  # only outside strings, as whitespace
        _check_keys(values)
        call = _call(values, texts, base_url)
        if write_remedy is not None:
            check_read_only(call.method, (name for name, _ in call.headers), remedy=write_remedy)
        entry.call = call
    except UsageError as error:  # the message contains no values, because they may be secrets
        entry.error = str(error)
    return entry


def _members(data: bytes | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the members of the object, as values and as source text; raises InvalidLine if it is not valid."""
    if data is None:
        raise InvalidLine(f"the line has more than {MAX_LINE // 2**20} MiB")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidLine(f"the line is not valid UTF-8 (byte {error.start + 1})") from None
    if not text.startswith("{") and not text.lstrip(" \t\r\n").startswith("{"):
        raise InvalidLine("the line is not a JSON object")
    try:
        return members(text)
    except DuplicateName as error:
        raise _duplicate(error) from None
    except ExtraData as error:
        raise InvalidLine(f"the line has data after its object (character {error.position})") from None
    except InvalidJSON as error:
        raise InvalidLine(f"the line is not valid JSON ({error})") from None


def _duplicate(error: DuplicateName) -> InvalidLine:
    return InvalidLine(f"the field {shortened(error.name, 60)!r} appears twice")


def _check_keys(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if name not in KEYS:
            raise InvalidLine(f"unknown field {shortened(name, 60)!r}; known fields: {', '.join(KEYS)}")
        if isinstance(value, TooDeep) and name != "json":
            raise InvalidLine(f'"{name}" is nested too deeply')
    if "path" not in values:
        raise InvalidLine('"path" is missing')
    if "json" in values and "data" in values:
        raise InvalidLine('"json" and "data" cannot be combined')


def _call(values: dict[str, Any], texts: dict[str, str], base_url: str) -> Call:
    body = _body(values, texts) if "json" in values or "data" in values else None
    given = items.method(_string(values, "method")) if "method" in values else None
    query: list[tuple[str, str]] = []
    headers: list[Header] = []
    if "query" in values:
        query = [(name, text) for name, value in _object(values, texts, "query") for text in _parameters(name, value)]
    if "headers" in values:
        headers = [_header(name, value) for name, value in _object(values, texts, "headers")]
    if headers and sum(name.lower() == "host" for name, _ in headers) > 1:
        raise InvalidLine("the header Host appears twice")
    method = items.sent_method(given, has_body=body is not None)
    return Call(method, urls.resolve(base_url, _string(values, "path"), query), headers, body)


def _body(values: dict[str, Any], texts: dict[str, str]) -> Text:
    text = texts["json"] if "json" in values else _string(values, "data")
    return Text(text.encode(), JSON)


def _string(values: dict[str, Any], key: str) -> str:
    value = values[key]
    if not isinstance(value, str) or isinstance(value, Number):
        raise InvalidLine(f'"{key}" is not a string')
    if not value.isascii():
        _check_text(value, key)
    return value


def _check_text(text: str, key: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidLine(f'"{key}" {UNPAIRED_SURROGATE}') from None


def _object(values: dict[str, Any], texts: dict[str, str], key: str) -> list[tuple[str, Any]]:
    """Return the members of the object *key*, parsed again from its text: a dict would hide duplicates."""
    if not isinstance(values[key], dict):
        raise InvalidLine(f'"{key}" is not an object')
    try:
        return list(members(texts[key])[0].items())
    except DuplicateName as error:
        raise _duplicate(error) from None


def _parameters(name: str, value: Any) -> list[str]:
    """Return the values of a query parameter; a list repeats the parameter, a number keeps its notation."""
    _check_text(name, "query")
    texts = []
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, bool):
            texts.append("true" if each else "false")
        elif isinstance(each, str):
            _check_text(each, "query")
            texts.append(str(each))
        else:
            raise InvalidLine(
                f'"query" has a value for {shortened(name, 60)!r} that is not a string, number, boolean or list'
            )
    return texts


def _header(name: str, value: Any) -> Header:
    """Return the header; null removes a default header, like `Name:` on the command line."""
    if value is not None and not isinstance(value, str):
        raise InvalidLine(f'"headers" has a value for {shortened(name, 60)!r} that is not a string or number')
    _check_text(name, "headers")
    _check_text(value or "", "headers")
    return items.checked_header(name, value)

"""Parse one input line: `{"id", "method", "path", "query", "headers", "json" | "data"}`.

The text of `id` and `json` is passed through verbatim, so that the notation of numbers does not change.
"""

import json
import re
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # public name, missing in typeshed
from typing import Any

from xapi_cli.batch.line_reader import MAX_LINE, Line
from xapi_cli.errors import UsageError
from xapi_cli.http import urls
from xapi_cli.request import items
from xapi_cli.request.body.build import JSON
from xapi_cli.request.body.spool import Text
from xapi_cli.request.calls import Call, Header
from xapi_cli.request.json_stream import InvalidJSON, validated
from xapi_cli.system.encoding import UNPAIRED_SURROGATE
from xapi_cli.system.render import printable

KEYS = ("id", "method", "path", "query", "headers", "json", "data")
_WHITESPACE = re.compile(r"[ \t\r\n]*")
_USUAL_NAME = re.compile(r'"([a-z_]*)"[ \t\r\n]*:[ \t\r\n]*')  # the fast path of a member name and its colon


class InvalidLine(Exception):
    """The line is not valid; the message contains no values, because they may be secrets."""


class _Number(str):
    """A JSON number in its original notation."""

    __slots__ = ()


class _TooDeep:
    """A JSON value with more levels than Python's decoder supports."""


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not valid JSON")


_DECODER = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_reject_constant)


@dataclass(slots=True)
class Entry:
    """A parsed line: either a *call* or, if the line is not valid, its *error*; *id* is JSON text."""

    number: int
    id: str = "null"
    call: Call | None = None
    error: str | None = None
    digest: bytes = b""
    size: int = 0  # bytes in memory

    @property
    def sets_authorization(self) -> bool:
        """Return whether the line sets or removes the Authorization header."""
        if self.call is None or not self.call.headers:
            return False
        return any(name.lower() == "authorization" for name, _ in self.call.headers)


def parse(line: Line, base_url: str) -> Entry:
    """Parse *line* into an entry for the API at *base_url*; an invalid line sets its *error*."""
    entry = Entry(line.number, digest=line.digest, size=len(line.data or b""))
    try:
        values, texts = _members(line.data)
        if not isinstance(values.get("id"), _TooDeep):  # the reader of the output could not decode it
            entry.id = texts.get("id", "null").replace("\r", " ")  # only outside strings, as whitespace
        _check_keys(values)
        entry.call = _call(values, texts, base_url)
    except InvalidLine as error:
        entry.error = str(error)
    except UsageError as error:
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
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    at = _skip(text, 0)
    if not text.startswith("{", at):
        raise InvalidLine("the line is not a JSON object")
    try:
        end = _read_members(text, _skip(text, at + 1), values, texts)
    except json.JSONDecodeError as error:
        raise InvalidLine(
            f"the line is not valid JSON ({error.msg[:1].lower()}{error.msg[1:]}, character {error.pos + 1})"
        ) from None
    except ValueError:
        raise InvalidLine("the line is not valid JSON (NaN and Infinity are not allowed)") from None
    if end != len(text):
        raise InvalidLine(f"the line has data after its object (character {end + 1})")
    return values, texts


def _read_members(text: str, at: int, values: dict[str, Any], texts: dict[str, str]) -> int:
    """Parse the members of the object from position *at*; return the position after the object."""
    while not text.startswith("}", at):
        if values:
            at = _expect(text, at, ",")
        usual = _USUAL_NAME.match(text, at)
        if usual is not None:
            name, at = usual[1], usual.end()
        else:
            name, at = _name(text, at)
            at = _expect(text, at, ":")
        value, end = _value(text, at)
        if name in values:
            raise InvalidLine(f"the key {printable(name)[:60]!r} appears twice")
        values[name], texts[name] = value, text[at:end]
        at = _skip(text, end)
    return _skip(text, at + 1)


def _value(text: str, at: int) -> tuple[Any, int]:
    """Return the value at position *at* and the position after it; a deeply nested one is not converted."""
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:
        from xapi_cli.request.json_spans import end_of_container

        end = end_of_container(text, at) or len(text)
    try:
        for _ in validated([text[at:end]]):
            pass
    except InvalidJSON as error:
        raise InvalidLine(f"the line is not valid JSON ({error}, counted from character {at + 1})") from None
    return _TooDeep(), end


def _name(text: str, at: int) -> tuple[str, int]:
    if not text.startswith('"', at):
        raise json.JSONDecodeError('a name in " is expected', text, at)
    name, end = scanstring(text, at + 1)
    return name, _skip(text, end)


def _expect(text: str, at: int, character: str) -> int:
    if not text.startswith(character, at):
        raise json.JSONDecodeError(f"{character!r} is expected", text, at)
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    if text[at : at + 1] > " ":  # the usual case: no whitespace
        return at
    match = _WHITESPACE.match(text, at)
    return match.end() if match else at


def _check_keys(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if name not in KEYS:
            raise InvalidLine(f"unknown key {printable(name)[:60]!r}; known keys: {', '.join(KEYS)}")
        if isinstance(value, _TooDeep) and name != "json":
            raise InvalidLine(f'"{name}" is nested too deeply')
    if "path" not in values:
        raise InvalidLine('"path" is missing')
    if "json" in values and "data" in values:
        raise InvalidLine('"json" and "data" cannot be combined')


def _call(values: dict[str, Any], texts: dict[str, str], base_url: str) -> Call:
    body = _body(values, texts)
    method = items.method(_string(values, "method")) if "method" in values else "POST" if body else "GET"
    query = [(name, text) for name, value in _object(values, texts, "query") for text in _parameters(name, value)]
    headers = [_header(name, value) for name, value in _object(values, texts, "headers")]
    if headers and sum(name.lower() == "host" for name, _ in headers) > 1:
        raise InvalidLine("the header Host appears twice")
    return Call(method, urls.resolve(base_url, _string(values, "path"), query), headers, body)


def _body(values: dict[str, Any], texts: dict[str, str]) -> Text | None:
    if "json" in values:
        text = texts["json"]
    elif "data" in values:
        text = _string(values, "data")
    else:
        return None
    return Text(text.encode(), JSON)


def _string(values: dict[str, Any], key: str) -> str:
    value = values[key]
    if not isinstance(value, str) or isinstance(value, _Number):
        raise InvalidLine(f'"{key}" is not a string')
    _check_text(value, key)
    return value


def _check_text(text: str, key: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidLine(f'"{key}" {UNPAIRED_SURROGATE}') from None


def _object(values: dict[str, Any], texts: dict[str, str], key: str) -> list[tuple[str, Any]]:
    """Return the members of the object *key*, parsed again from its text: a dict would hide duplicates."""
    if key not in values:
        return []
    if not isinstance(values[key], dict):
        raise InvalidLine(f'"{key}" is not an object')
    members: dict[str, Any] = {}
    _read_members(texts[key], _skip(texts[key], 1), members, {})
    return list(members.items())


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
                f'"query" has a value for {printable(name)[:60]!r} that is not a string, number, boolean or list'
            )
    return texts


def _header(name: str, value: Any) -> Header:
    """Return the header; null removes a default header, like `Name:` on the command line."""
    if value is not None and not isinstance(value, str):
        raise InvalidLine(f'"headers" has a value for {printable(name)[:60]!r} that is not a string')
    _check_text(name, "headers")
    _check_text(value or "", "headers")
    return items.checked_header(name, value)

"""Read the input of a batch line by line, and parse a line: `{"id", "method", "path", "query", "headers", "json"}`.

The text of `id` and `json` is passed through verbatim, so that the notation of numbers does not change.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from xapi_cli.errors import InvalidLine, UsageError
from xapi_cli.http import urls
from xapi_cli.http.header_syntax import Header, with_defaults
from xapi_cli.http.send import Call
from xapi_cli.request import items, read_only
from xapi_cli.request.body.build import JSON
from xapi_cli.request.body.spool import Text
from xapi_cli.request.json_values import InvalidValue, JsonReader, Number, dumps
from xapi_cli.system.render import UNPAIRED_SURROGATE, printable, shortened

if TYPE_CHECKING:
    from xapi_cli.context import Context
    from xapi_cli.system.terminal import Terminal

MAX_LINE = 16 * 1024 * 1024  # bytes
KEYS = ("id", "method", "path", "query", "headers", "json", "data")
_VERBATIM = ("id", "json")
_BLOCK = 64 * 1024


class Line(NamedTuple):
    """A line that is not blank; *data* is None if it is too long."""

    number: int
    data: bytes | None


Members = dict[str, Any]
"""The values of the members of a line; of `id` and `json` the JSON text."""


class LineReader:
    """The lines of *source* in a *shard*: iterate over them once; `position` is how many bytes were read for them.

    Raises UsageError if the input cannot be read, is empty, or is a JSON array.
    """

    def __init__(self, source: BinaryIO, shard: tuple[int, int] = (1, 1)) -> None:
        self.position, self._source, self._shard = 0, source, shard

    def __iter__(self) -> Iterator[Line]:
        number, is_first = 0, True
        for number, data in enumerate(_split(blocks(self._source)), 1):
            self.position += len(data)
            text = data.removeprefix(BOM_UTF8) if number == 1 else data  # Windows programs write it
            if not text.strip():
                continue
            if is_first and text.lstrip().startswith(b"["):
                hint = "use `jq -c '.[]'` to write its elements"
                raise UsageError("the input is a JSON array, not one object per line", hint=hint)
            is_first = False
            if (number - self._shard[0]) % self._shard[1] == 0:
                yield Line(number, text if len(data) <= MAX_LINE else None)
        if number == 0:
            hint = "the command before the pipe has failed, or it selected nothing"
            raise UsageError("the input is empty", hint=hint)


def _split(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines in *parts*, each with its newline; one that is too long lacks its middle."""
    partial = bytearray()
    for part in parts:
        *ends, rest = part.split(b"\n")
        for end in ends:
            yield b"%s%s\n" % (partial, end)
            partial.clear()
        if len(partial) <= MAX_LINE:
            partial += rest
    if partial:
        yield bytes(partial)


def blocks(source: BinaryIO) -> Iterator[bytes]:
    """Yield the data of *source*, each block when it arrives; raises UsageError if it cannot be read."""
    try:
        while block := source.read(_BLOCK):
            yield block
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UsageError(f"the input cannot be read: {reason}") from error


def parse_shard(text: str) -> tuple[int, int]:
    """Return the numbers in *text*, such as `2/8`; raises UsageError."""
    match = re.fullmatch(r"(\d{1,7})/(\d{1,7})", text, re.ASCII)
    number, total = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= total:
        hint = "write I/N, such as 2/8, with I from 1 to N"
        raise UsageError(f"--shard: {printable(text)!r} is not a valid shard", hint=hint)
    return number, total


def members(data: bytes | None) -> Members:
    """Return the members of the line *data*, None if it was too long; raises InvalidLine if they are not usable.

    The messages contain no values, because they may be secrets.
    """
    if data is None:
        raise InvalidLine(f"the line has more than {MAX_LINE // 2**20} MiB")
    try:
        text = data.decode().strip(" \t\r\n")
    except UnicodeDecodeError as error:
        raise InvalidLine(f"the line is not valid UTF-8 (byte {error.start + 1})") from None
    reader, found = JsonReader([text]), {}
    try:
        for name in reader.members():
            if name in found:
                raise InvalidLine(f"the field {shortened(name, 60)!r} appears twice")
            value, written = reader.value(), reader.written()
            if name not in _VERBATIM and "\\u" in written:
                dumps(value).encode()  # raises for an unpaired surrogate
            found[name] = written if name in _VERBATIM else value
        if reader.peek():
            raise InvalidLine("the line has data after its object")
    except InvalidValue as error:
        raise InvalidLine(f"the line is not a JSON object: {error}") from None
    except UnicodeEncodeError:
        raise InvalidLine(f"the line {UNPAIRED_SURROGATE}") from None
    return found


def ident(found: Members) -> str:
    """Return the JSON text of the id, in one line."""
    text: str = found.get("id", "null").replace("\r", " ")  # only outside strings, as whitespace
    return text


def open_input(name: str | None, terminal: "Terminal", stack: ExitStack) -> BinaryIO:
    """Return the input, without a buffer: the file *name*, which *stack* closes, or stdin for None and `-`.

    Raises UsageError.
    """
    if name in (None, "-"):
        stdin = terminal.noted_stdin("lines")
        if stdin is None:
            raise UsageError("stdin is closed", hint="name an input FILE")
        return stdin
    try:
        return stack.enter_context(open(str(name), "rb", buffering=0))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name is not valid"
        raise UsageError(f"{printable(str(name))} cannot be read: {reason}", hint="check its name") from error


def resolver(context: "Context") -> Callable[[Members], Call]:
    """Return the function that makes the call of a line; raises UsageError if read-only mode refuses the headers."""
    base_url, defaults = context.base_url, context.default_headers
    remedy = "add --write" if context.settings.read_only else None
    if remedy is not None:
        read_only.check("GET", (name for name, _ in defaults), remedy=remedy)

    def resolve(members: Members) -> Call:
        made = call(members, base_url)
        if remedy is not None:
            read_only.check(made.method, (name for name, _ in made.headers), remedy=remedy)
        return made._replace(headers=with_defaults(made.headers, defaults)) if defaults else made

    return resolve


def as_invalid(error: UsageError) -> InvalidLine:
    """Return *error* as the failure of a line."""
    return error if isinstance(error, InvalidLine) else InvalidLine(error.message, hint=error.hint)


def call(found: Members, base_url: str) -> Call:
    """Return the call that the members of a line describe, to the API at *base_url*; raises UsageError."""
    for name in found:
        if name not in KEYS:
            raise InvalidLine(f"unknown field {shortened(name, 60)!r}; known fields: {', '.join(KEYS)}")
    if "path" not in found:
        raise InvalidLine('"path" is missing')
    if "json" in found and "data" in found:
        raise InvalidLine('"json" and "data" cannot be combined')
    body = None
    if "json" in found or "data" in found:
        body = Text((found["json"] if "json" in found else _string(found, "data")).encode(), JSON)
    given = items.method(_string(found, "method")) if "method" in found else None
    query = [(name, text) for name, value in _pairs(found, "query") for text in _parameters(name, value)]
    headers = [_header(name, value) for name, value in _pairs(found, "headers")]
    if sum(name.lower() == "host" for name, _ in headers) > 1:
        raise InvalidLine("the header Host appears twice")
    method = items.sent_method(given, has_body=body is not None)
    return Call(method, urls.resolve(base_url, _string(found, "path"), query), headers, body)


def _string(found: Members, key: str) -> str:
    value = found[key]
    if not isinstance(value, str) or isinstance(value, Number):
        raise InvalidLine(f'"{key}" is not a string')
    return value


def _pairs(found: Members, key: str) -> Iterable[tuple[str, Any]]:
    value = found.get(key, {})
    if not isinstance(value, dict):
        raise InvalidLine(f'"{key}" is not an object')
    return value.items()


def _parameters(name: str, value: Any) -> list[str]:
    """Return the values of a query parameter; a list repeats the parameter, a number keeps its notation."""
    texts = []
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, bool):
            texts.append("true" if each else "false")
        elif isinstance(each, str):
            texts.append(str(each))
        else:
            what = "is not a string, number, boolean or list"
            raise InvalidLine(f'"query" has a value for {shortened(name, 60)!r} that {what}')
    return texts


def _header(name: str, value: Any) -> Header:
    """Return the header; null removes a default header, like `Name:` on the command line."""
    if value is not None and not isinstance(value, str):
        raise InvalidLine(f'"headers" has a value for {shortened(name, 60)!r} that is not a string or number')
    return items.checked_header(name, value)

"""Parse the arguments of `xapi request`: METHOD, PATH and the ITEM grammar.

    name==value   query parameter          name=value    JSON string or form field
    Name:value    header, empty: removed   name:=JSON    JSON field of any type
    name@file     upload                   name=@file    name:=@file    value read from a file

This module does not read files. Error messages never contain a value, because it may be a secret.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xapi_cli.errors import UsageError
from xapi_cli.request.json_stream import InvalidJSON, validated
from xapi_cli.system.encoding import encode_argument
from xapi_cli.system.render import printable

_SEPARATOR = ":=@|:=|:|==|=@|=|@"  # the longest match comes first
_NAME_AND_SEPARATOR = re.compile(rf"((?:\\[\\=:@]|\\(?![\\=:@])|[^\\=:@])+)({_SEPARATOR})")
_ESCAPED = re.compile(r"\\([\\=:@])")
_URL_OR_DRIVE = re.compile(r"[^=:@]*://|[A-Za-z]:[/\\]")  # a Windows shell may turn a leading slash into C:/…
_UPLOAD_TYPE = re.compile(r"(.+);type=([\w!#$&^.+-]+/[\w!#$&^.+-]+)", re.ASCII | re.DOTALL)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
_REJECTED_METHODS = frozenset({"CONNECT", "TRACE"})  # CONNECT opens a tunnel, and TRACE returns the token
_RESERVED_HEADERS = frozenset({
    "connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_ITEM_FORMS = "write name=value, name:=JSON, name==value, Name:value or name@file"


@dataclass(frozen=True)
class Field:
    """A field of the body: *text*, or the content of the file at *path*; *is_json* marks a JSON value, not a string."""

    name: str
    text: str | None = field(default=None, repr=False)
    path: str | None = None
    is_json: bool = False


class Upload(NamedTuple):
    """A file in a multipart body; its media type is guessed if *content_type* is None."""

    name: str
    path: str
    content_type: str | None = None


@dataclass(frozen=True)
class Items:
    """The parsed ITEMs, `-q` and `-H`, each kind in the order given; a header with the value None is removed."""

    query: list[tuple[str, str]] = field(default_factory=list, repr=False)
    headers: list[tuple[str, str | None]] = field(default_factory=list, repr=False)
    fields: list[Field] = field(default_factory=list)
    uploads: list[Upload] = field(default_factory=list)


def split_arguments(arguments: Sequence[str]) -> tuple[str | None, str, list[str]]:
    """Return METHOD (None if omitted), PATH and the remaining arguments, which must be ITEMs."""
    if not arguments:
        raise UsageError("missing PATH", hint="write for example: xapi request /x-api/me")
    first, *rest = arguments
    if rest and _is_letters(first) and not is_item(rest[0]):
        return method(first), rest[0], rest[1:]
    if first in METHODS:  # the grammar allows it as PATH, but METHOD is intended
        raise UsageError(f"missing PATH after {first}", hint=f"start it with a slash; for a path of that name /{first}")
    return None, first, rest


def is_item(argument: str) -> bool:
    """Return whether *argument* has the form of an ITEM, regardless of its value."""
    return _split_item(argument) is not None


def file_position(argument: str) -> int | None:
    """Return the position of the file name in the ITEM *argument*, or None if it does not name a file."""
    parts = _split_item(argument)
    return len(argument) - len(parts[2]) if parts and parts[1].endswith("@") else None


def parse(
    arguments: Sequence[str], *, query: Sequence[str] = (), headers: Sequence[str] = (), before: int = 1
) -> Items:
    """Parse the ITEMs *arguments*, and the values of `-q` and `-H`.

    *before* is the number of arguments that precede *arguments*; error messages
    state positions. Raises UsageError.
    """
    items = Items([query_parameter(text) for text in query], [header(text) for text in headers])
    for position, argument in enumerate(arguments, before + 1):
        _add(items, argument, position)
    return items


def header(text: str) -> tuple[str, str | None]:
    """Return the name and the value of *text*, an argument of `-H`.

    `Name: value` sets the header, `Name:` removes it (None), and `Name;` sends it with an empty value, as in curl.
    """
    name, colon, value = text.partition(":")
    if not colon and text.endswith(";"):
        return _header(text[:-1], "", "-H"), ""
    if not colon:
        raise UsageError("-H has a header without a colon", hint="write it like -H 'Accept: text/plain'")
    return _header(name, value, "-H"), value.strip(" \t") or None


def checked_header(name: str, value: str | None) -> tuple[str, str | None]:
    """Validate a header and return it as it is sent; a *value* of None removes it."""
    return _header(name, value or "", "the line"), None if value is None else value.strip(" \t")


def query_parameter(text: str) -> tuple[str, str]:
    """Return the name and the value of *text*, an argument of `-q` with the form `name=value`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError("-q has a query parameter that is not name=value", hint="write it like -q status=open")
    return name, value


def method(text: str) -> str:
    """Return the method *text* in uppercase; raise UsageError if it is not allowed."""
    if not _is_letters(text):
        raise UsageError("a METHOD consists of letters only", hint="write for example GET or POST")
    if text.upper() in _REJECTED_METHODS:
        raise UsageError(f"xapi does not send {text.upper()} requests", hint=f"use one of {', '.join(METHODS)}")
    return text.upper()


def _is_letters(argument: str) -> bool:
    return argument.isascii() and argument.isalpha()


def _split_item(argument: str) -> tuple[str, str, str] | None:
    """Return the name, the separator and the value of *argument*, or None if it is not an ITEM."""
    if argument.startswith("/") or _URL_OR_DRIVE.match(argument):
        return None
    match = _NAME_AND_SEPARATOR.match(argument)
    if not match or "/" in match[1] or "?" in match[1]:
        return None
    return _ESCAPED.sub(r"\1", match[1]), match[2], argument[match.end() :]


def _add(items: Items, argument: str, position: int) -> None:
    parts = _split_item(argument)
    if parts is None:
        raise UsageError(f"argument {position} is not an ITEM (not shown: it may be a secret)", hint=_ITEM_FORMS)
    name, separator, value = parts
    where = f"argument {position} ({printable(name)})"
    match separator:
        case "==":
            items.query.append((name, value))
        case ":":
            items.headers.append((_header(name, value, f"argument {position}"), value.strip(" \t") or None))
        case "=":
            items.fields.append(Field(name, value))
        case ":=":
            items.fields.append(Field(name, _checked_json(value, where, name), is_json=True))
        case "@":
            items.uploads.append(_upload(name, _file_name(value, where)))
        case _:
            items.fields.append(Field(name, path=_file_name(value, where), is_json=separator.startswith(":")))


def _header(name: str, value: str, where: str) -> str:
    """Return *name* if the user may set the header *name* to *value*; otherwise raise UsageError."""
    if not _TOKEN.fullmatch(name):
        hint = "a name consists of letters, digits and dashes"
        raise UsageError(f"{where} is a header with an invalid name", hint=hint)
    if name.lower() in _RESERVED_HEADERS or name.lower().startswith("proxy-"):
        raise UsageError(f"the header {name} is set by xapi", hint="omit it")
    if name.lower() == "host" and not value.strip(" \t"):
        raise UsageError("the header Host cannot be removed", hint="omit it")
    if found := _CONTROL_CHARACTER.search(value):
        code = f"U+{ord(found[0]):04X}"
        raise UsageError(f"the header {name} has a control character ({code}) in its value", hint="remove it")
    encode_argument(value, f"the value of the header {name}")
    return name


def _checked_json(text: str, where: str, name: str) -> str:
    try:
        return "".join(validated([text]))
    except InvalidJSON as error:
        hint = f"for a string write {printable(name)}=…"
        raise UsageError(f"{where} has a value that is not valid JSON: {error}", hint=hint) from None


def _file_name(path: str, where: str) -> str:
    if not path:
        raise UsageError(f"{where} has no file name after its @", hint="use - for stdin; write \\@ for an @ in a name")
    return path


def _upload(name: str, path: str) -> Upload:
    """Parse `file;type=image/png`, the syntax of curl and HTTPie."""
    match = _UPLOAD_TYPE.fullmatch(path)
    return Upload(name, match[1], match[2]) if match else Upload(name, path)

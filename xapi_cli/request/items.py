"""Parse the arguments of `xapi request`: METHOD, PATH and the ITEM grammar.

    name==value   query parameter          name=value    JSON string or form field
    Name:value    header, empty: removed   name:=JSON    JSON field of any type
    name@file     upload                   name==@file   Name:@file   name=@file   name:=@file   value read from a file

Error messages never contain a value, because it may be a secret.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xapi_cli.errors import UsageError
from xapi_cli.http.header_syntax import REFUSED_METHODS, check_field
from xapi_cli.system.render import printable

STDIN = "-"  # instead of a file name
_SEPARATOR = ":=@|==@|:=|:@|:|==|=@|=|@"  # the longest match comes first
# The patterns are compiled on first use: a call without ITEMs needs none of them.
_NAME_AND_SEPARATOR = rf"((?:\\[\\=:@]|\\(?![\\=:@])|[^\\=:@])+)({_SEPARATOR})"
_ESCAPED = r"\\([\\=:@])"
_URL_OR_DRIVE = r"[^=:@]*://|[A-Za-z]:[/\\]"  # a Windows shell may turn a leading slash into C:/…
_UPLOAD_TYPE = r"(?as)(.+);type=([\w!#$&^.+-]+/[\w!#$&^.+-]+)"
METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
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
    """The parsed ITEMs and `-H`, each kind in the order given; a header with the value None is removed.

    *parts* are the fields and uploads. *files* are the files from which the values of headers and parameters were read;
    *origins* has them by separator, name and value.
    """

    query: list[tuple[str, str]] = field(default_factory=list, repr=False)
    headers: list[tuple[str, str | None]] = field(default_factory=list, repr=False)
    parts: list[Field | Upload] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    origins: dict[tuple[str, str, str], str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def fields(self) -> list[Field]:
        """Return the fields of the body, in the order given."""
        return [part for part in self.parts if isinstance(part, Field)]

    @property
    def uploads(self) -> list[Upload]:
        """Return the files to upload, in the order given."""
        return [part for part in self.parts if isinstance(part, Upload)]

    def has_body(self, data: str | None) -> bool:
        """Return whether the request has a body, from these ITEMs or from *data*, the value of `-d`."""
        return data is not None or bool(self.parts)


def split_arguments(arguments: Sequence[str]) -> tuple[str | None, str, list[str]]:
    """Return METHOD (None if omitted), PATH and the remaining arguments, which must be ITEMs."""
    if not arguments:
        raise UsageError("missing PATH", hint="write for example: xapi request /x-api/me")
    first, *rest = arguments
    if rest and _is_letters(first) and not is_item(rest[0]):
        return method(first), rest[0], rest[1:]
    if first in METHODS:  # the grammar allows it as PATH, but METHOD is intended
        hint = f"write `xapi request {first} /path` (for a path named {first}: /{first})"
        raise UsageError(f"missing PATH after {first}", hint=hint)
    return None, first, rest


def is_item(argument: str) -> bool:
    """Return whether *argument* has the form of an ITEM, regardless of its value."""
    return _split_item(argument) is not None


def parse(
    arguments: Sequence[str],
    *,
    headers: Sequence[str] = (),
    before: int = 1,
    read: Callable[[str], str] | None = None,
    check_json: bool = True,
) -> Items:
    """Parse *headers*, the values of `-H`, and then the ITEMs *arguments*.

    *before* is the number of arguments that precede *arguments*; error messages state positions. *read* returns the
    text of a file, for headers and query parameters whose value is in one. Without *check_json*, the value of a JSON
    field may be no JSON yet. Raises UsageError.
    """
    items = Items()
    for text in headers:
        _add_header(items, *header(text))
    for position, argument in enumerate(arguments, before + 1):
        _add(items, _item(argument, position), position, read, check_json=check_json)
    return items


def header(text: str) -> tuple[str, str | None]:
    """Return the name and the value of *text*, an argument of `-H`.

    `Name: value` sets the header, `Name:` removes it (None), and `Name;` sends it with an empty value, as in curl.
    """
    name, colon, value = text.partition(":")
    if not colon and text.endswith(";"):
        return check_field(text[:-1], "", "-H"), ""
    if not colon:
        raise UsageError("-H has a header without a colon", hint="write it like -H 'Accept: text/plain'")
    return check_field(name, value, "-H"), value.strip(" \t") or None


def checked_header(name: str, value: str | None) -> tuple[str, str | None]:
    """Validate a header and return it as it is sent; a *value* of None removes it."""
    return check_field(name, value or "", "the line"), None if value is None else value.strip(" \t")


def method(text: str) -> str:
    """Return the method *text* in uppercase; raise UsageError if it is not allowed."""
    if not _is_letters(text):
        raise UsageError("a METHOD consists of letters only", hint="write for example GET or POST")
    check_method(text)
    return text.upper()


def one_method(first: str | None, option: str | None) -> str | None:
    """Return METHOD: *first*, which precedes PATH, or *option*, the value of -X; raises UsageError if they differ."""
    given = None if option is None else method(option)
    if first is not None and given not in (None, first):
        raise UsageError(f"METHOD is {first}, but -X is {given}", hint="omit one of them")
    return first or given


def check_method(text: str) -> None:
    """Raise UsageError if xapi does not send requests with the method *text*."""
    if text.upper() in REFUSED_METHODS:
        raise UsageError(f"xapi does not send {text.upper()} requests", hint=f"use one of {', '.join(METHODS)}")


def sent_method(given: str | None, *, has_body: bool) -> str:
    """Return the method that is sent: the *given* one, or the default if that is None."""
    return given or ("POST" if has_body else "GET")


def checked_json(text: str, where: str, name: str) -> str:
    """Return *text*, the value of the field *name*; raises UsageError, which starts with *where*, if it is no JSON."""
    from xapi_cli.request.json_values import InvalidValue, check

    try:
        check(text)
    except InvalidValue as error:
        hint = f"for a string, write {printable(name)}=…"
        raise UsageError(f"{where} has a value that is not valid JSON: {error}", hint=hint) from None
    return text


def _is_letters(argument: str) -> bool:
    return argument.isascii() and argument.isalpha()


class _Split(NamedTuple):
    """An ITEM."""

    name: str
    separator: str
    value: str


def _split_item(argument: str) -> _Split | None:
    """Return *argument*, split, or None if it is not an ITEM."""
    if argument.startswith("/") or re.match(_URL_OR_DRIVE, argument):
        return None
    match = re.match(_NAME_AND_SEPARATOR, argument)
    if not match or "/" in match[1] or "?" in match[1]:
        return None
    return _Split(re.sub(_ESCAPED, r"\1", match[1]), match[2], argument[match.end() :])


def _item(argument: str, position: int) -> _Split:
    found = _split_item(argument)
    if found is not None:
        return found
    if argument.startswith("@"):
        hint = "for a body from a file, use -d @FILE"
    elif argument.startswith(("=", ":")):
        hint = "give it a name, or check for an unset shell variable"
    else:
        hint = _ITEM_FORMS
    raise UsageError(f"argument {position} is not an ITEM (not shown: it may be a secret)", hint=hint)


def _add(items: Items, item: _Split, position: int, read: Callable[[str], str] | None, *, check_json: bool) -> None:
    name, separator, value = item
    where = f"argument {position} ({printable(name)})"
    is_in_file = separator in (":@", "==@")
    if is_in_file:
        value, separator = _text_of_file(items, item, where, read), separator[:-1]
    match separator:
        case "==":
            items.query.append((name, value))
        case ":":
            text = value.strip(" \t")  # an empty text removes the header, but not that of a file
            _add_header(items, check_field(name, value, f"argument {position}"), text if text or is_in_file else None)
        case "@":
            items.parts.append(_upload(name, _file_name(value, where)))
        case _:
            items.parts.append(_field(item, where, check_json=check_json))


def _text_of_file(items: Items, item: _Split, where: str, read: Callable[[str], str] | None) -> str:
    """Return the text of the file that contains the value of a header or a query parameter."""
    hint = "write it in PATH, like /path?name=@x" if item.separator.startswith("=") else "use -H"
    path = _file_name(item.value, where, f"for a value that starts with @, {hint}")
    assert read is not None  # noqa: S101 - only callers that cannot have such ITEMs omit it
    items.files.append(path)
    text = read(path)
    items.origins[item.separator, item.name, text] = path
    return text


def _field(item: _Split, where: str, *, check_json: bool) -> Field:
    name, separator, value = item
    is_json, is_path = separator.startswith(":"), separator.endswith("@")
    path = _file_name(value, where) if is_path else None
    text = None if is_path else checked_json(value, where, name) if is_json and check_json else value
    return Field(name, text, path, is_json)


def _add_header(items: Items, name: str, value: str | None) -> None:
    """Add a header; without a value, it also removes what was set before, and a value replaces a removal."""
    items.headers[:] = [
        (other, text) for other, text in items.headers
        if other.lower() != name.lower() or (value is not None and text is not None)
    ]  # fmt: skip
    items.headers.append((name, value))


def _file_name(path: str, where: str, hint: str = "write \\@ for an @ in a name") -> str:
    if not path:
        raise UsageError(f"{where} has no file name after its @", hint=f"use @- for stdin, or {hint}")
    return path


def _upload(name: str, path: str) -> Upload:
    """Parse `file;type=image/png`, the syntax of curl and HTTPie."""
    match = re.fullmatch(_UPLOAD_TYPE, path)
    return Upload(name, match[1], match[2]) if match else Upload(name, path)

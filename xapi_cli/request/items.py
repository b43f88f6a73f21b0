"""Read the words of `xapi request`: METHOD, PATH and the ITEM grammar.

    name==value   query parameter          name=value    JSON string or form field
    Name:value    header, none: removed    name:=JSON    JSON field of any type
    name@file     upload                   name=@file    name:=@file    the value from a file

Nothing is read from files here, and no value is ever echoed: it may be a secret.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xapi_cli.errors import UsageError
from xapi_cli.request.json_stream import InvalidJSON, checked
from xapi_cli.system.render import printable

_SEPARATOR = ":=@|:=|:|==|=@|=|@"  # at any one place the longest that fits
_NAME_AND_SEPARATOR = re.compile(rf"((?:\\[\\=:@]|\\(?![\\=:@])|[^\\=:@])+)({_SEPARATOR})")
_ESCAPED = re.compile(r"\\([\\=:@])")
_URL_OR_DRIVE = re.compile(r"[^=:@]*://|[A-Za-z]:[/\\]")  # C:/… is what a Windows shell makes of a leading slash
_UPLOAD_TYPE = re.compile(r"(.+);type=([\w!#$&^.+-]+/[\w!#$&^.+-]+)", re.ASCII | re.DOTALL)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_NO_HEADER_TEXT = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NEVER_SENT = frozenset({"CONNECT", "TRACE"})  # a tunnel is no request, and TRACE sends the token back
_OURS = frozenset({
    "connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_FORMS = "write name=value, name:=JSON, name==value, Name:value or name@file"


@dataclass(frozen=True)
class Field:
    """A field of the body: *text* as given, or what the file at *path* holds; *is_json*: no string, but JSON."""

    name: str
    text: str | None = field(default=None, repr=False)
    path: str | None = None
    is_json: bool = False


class Upload(NamedTuple):
    """A file that goes into a multipart body; its media type is guessed where *content_type* is None."""

    name: str
    path: str
    content_type: str | None = None


@dataclass(frozen=True)
class Items:
    """All that ITEMs, `-q` and `-H` ask for, each kind in the order given; a header of None is to be removed."""

    query: list[tuple[str, str]] = field(default_factory=list, repr=False)
    headers: list[tuple[str, str | None]] = field(default_factory=list, repr=False)
    fields: list[Field] = field(default_factory=list)
    uploads: list[Upload] = field(default_factory=list)


def split_words(words: Sequence[str]) -> tuple[str | None, str, list[str]]:
    """Return METHOD (None when left out), PATH and the words that must be ITEMs."""
    if not words:
        raise UsageError("missing PATH", hint="write for example: xapi request /x-api/me")
    first, *rest = words
    if rest and _is_letters(first) and not is_item(rest[0]):
        return method(first), rest[0], rest[1:]
    if first in _METHODS:  # by the grammar a PATH, but never meant as one
        raise UsageError(f"missing PATH after {first}", hint=f"start it with a slash; for a path of that name /{first}")
    return None, first, rest


def is_item(word: str) -> bool:
    """Tell whether *word* has the form of an ITEM, whatever its value."""
    return _taken_apart(word) is not None


def parse(words: Sequence[str], *, query: Sequence[str] = (), headers: Sequence[str] = (), before: int = 1) -> Items:
    """Return what *words* mean, and the texts of `-q` and `-H`; *before* words precede them."""
    items = Items([query_parameter(text) for text in query], [header(text) for text in headers])
    for position, word in enumerate(words, before + 1):
        _add(items, word, position)
    return items


def header(text: str) -> tuple[str, str | None]:
    """Return name and value of *text*, given to `-H`.

    `Name: value` sets, `Name:` removes (None), `Name;` sends it empty as curl does.
    """
    name, colon, value = text.partition(":")
    if not colon and text.endswith(";"):
        return _header(text[:-1], "", "-H"), ""
    if not colon:
        raise UsageError("-H has a header without a colon", hint="write it like -H 'Accept: text/plain'")
    return _header(name, value, "-H"), value.strip(" \t") or None


def checked_header(name: str, value: str | None) -> tuple[str, str | None]:
    """Return the header as it is sent; a *value* of None removes it."""
    return _header(name, value or "", "the line"), None if value is None else value.strip(" \t")


def query_parameter(text: str) -> tuple[str, str]:
    """Return name and value of *text* as `-q` takes it: `name=value`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError("-q has a query parameter that is not name=value", hint="write it like -q status=open")
    return name, value


def method(text: str) -> str:
    """Return the method *text* in capitals."""
    if not _is_letters(text):
        raise UsageError("a METHOD consists of letters only", hint="write for example GET or POST")
    if text.upper() in _NEVER_SENT:
        raise UsageError(f"xapi sends no {text.upper()} request", hint=f"use one of {', '.join(sorted(_METHODS))}")
    return text.upper()


def _is_letters(word: str) -> bool:
    return word.isascii() and word.isalpha()


def _taken_apart(word: str) -> tuple[str, str, str] | None:
    """Return name, separator and value of *word*, None when it is no ITEM."""
    if word.startswith("/") or _URL_OR_DRIVE.match(word):
        return None
    match = _NAME_AND_SEPARATOR.match(word)
    if not match or "/" in match[1] or "?" in match[1]:
        return None
    return _ESCAPED.sub(r"\1", match[1]), match[2], word[match.end() :]


def _add(items: Items, word: str, position: int) -> None:
    parts = _taken_apart(word)
    if parts is None:
        raise UsageError(f"argument {position} is no ITEM (not shown: it may be a secret)", hint=_FORMS)
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
            items.uploads.append(_upload(name, _file(value, where)))
        case _:
            items.fields.append(Field(name, path=_file(value, where), is_json=separator.startswith(":")))


def _header(name: str, value: str, where: str) -> str:
    """Return *name* when it and *value* make a header that a user may set."""
    if not _TOKEN.fullmatch(name):
        hint = "a name has letters, digits and dashes, no blanks"
        raise UsageError(f"{where} is a header with a name that HTTP does not allow", hint=hint)
    if name.lower() in _OURS or name.lower().startswith("proxy-"):
        raise UsageError(f"the header {name} is set by xapi itself", hint="leave it out")
    if name.lower() == "host" and not value.strip(" \t"):
        raise UsageError("the header Host cannot be removed", hint="leave it out")
    if found := _NO_HEADER_TEXT.search(value):
        code = f"U+{ord(found[0]):04X}"
        raise UsageError(f"the header {name} has a control character ({code}) in its value", hint="remove it")
    if not _is_encodable(value):
        raise UsageError(f"the header {name} has a value that is no text (half a surrogate pair)")
    return name


def _is_encodable(value: str) -> bool:
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _checked_json(text: str, where: str, name: str) -> str:
    try:
        return "".join(checked([text]))
    except InvalidJSON as flaw:
        hint = f"for a string write {printable(name)}=…"
        raise UsageError(f"{where} has a value that is no JSON: {flaw}", hint=hint) from None


def _file(path: str, where: str) -> str:
    if not path:
        raise UsageError(f"{where} names no file after its @", hint="use - for stdin; \\@ keeps an @ in a name")
    return path


def _upload(name: str, path: str) -> Upload:
    """Take `file;type=image/png` apart, as curl and HTTPie write it."""
    match = _UPLOAD_TYPE.fullmatch(path)
    return Upload(name, match[1], match[2]) if match else Upload(name, path)

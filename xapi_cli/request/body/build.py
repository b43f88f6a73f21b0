"""Build the request body from ITEMs and `-d`; memory use does not depend on the size of the body."""

import json
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

from xapi_cli.errors import UsageError
from xapi_cli.request.body.multipart import multipart
from xapi_cli.request.body.sources import STDIN, Stdin, body_of, text_of
from xapi_cli.request.body.spool import Body, Spool, Text
from xapi_cli.request.items import Field, Items
from xapi_cli.request.json_stream import InvalidJSON, checked, string
from xapi_cli.system.render import printable

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"

__all__ = ["FORM", "JSON", "Body", "build", "data_body", "form_body", "json_body", "multipart"]


def build(items: Items, *, data: str | None, form: bool, stdin: Stdin) -> Body | None:
    """Return the body for *items*, `-d` *data* and `--form`, or None if they specify no body; raise UsageError."""
    refuse_contradictions(items, data, form=form)
    if data is not None:
        return data_body(data, stdin)
    if items.uploads:
        return multipart(items.fields, items.uploads, stdin)
    if not items.fields:
        return None
    return form_body(items.fields, stdin) if form else json_body(items.fields, stdin)


def data_body(data: str, stdin: Stdin) -> Body:
    """Return the body for *data*, verbatim: text, the file in `@file`, or stdin for `@-`."""
    if data == "@":
        raise UsageError("-d names no file after its @", hint="write -d @- for stdin")
    if data.startswith("@"):
        return body_of(data[1:], stdin, JSON)
    try:
        return Text(data.encode("utf-8", "surrogateescape"), JSON)
    except UnicodeEncodeError:
        raise UsageError("the text of -d holds half a surrogate pair, which is no text") from None


def json_body(fields: Sequence[Field], stdin: Stdin) -> Body:
    """Return *fields* as a JSON object; the values of `:=` are included verbatim."""
    _refuse_duplicates(fields)
    return Spool(_json_object(fields, stdin), JSON)


def form_body(fields: Sequence[Field], stdin: Stdin) -> Body:
    """Return *fields* as a percent-encoded form; a space becomes `%20`, which every decoder accepts."""
    return Spool(_form(fields, stdin), FORM)


def refuse_contradictions(items: Items, data: str | None, *, form: bool) -> None:
    """Raise UsageError if the parts of the body cannot be combined."""
    has_json = any(field.is_json for field in items.fields)
    if data is not None and (items.fields or items.uploads):
        raise UsageError("-d is the whole body, so there can be no fields or uploads", hint="leave one of them out")
    if data is not None and form:
        raise UsageError("--form is about fields, and -d has none", hint=f"write -H 'Content-Type: {FORM}'")
    if form and has_json:
        raise UsageError("a form has no JSON fields", hint="write = for :=, or leave --form out")
    if items.uploads and has_json:
        raise UsageError("a request with uploads has no JSON fields", hint="write = for :=")
    paths = [field.path for field in items.fields] + [upload.path for upload in items.uploads]
    if paths.count(STDIN) > 1:
        raise UsageError("stdin is asked for more than once (@-)", hint="put one of them into a file")


def _refuse_duplicates(fields: Sequence[Field]) -> None:
    seen = set()
    for field in fields:
        if field.name in seen:
            name = printable(field.name)
            raise UsageError(f"the field {name} is given twice", hint=f"for a list write {name}:='[…]'")
        seen.add(field.name)


def _json_object(fields: Sequence[Field], stdin: Stdin) -> Iterator[bytes]:
    for position, field in enumerate(fields):
        name = json.dumps(field.name, ensure_ascii=False)
        yield _utf8(f"{', ' if position else '{'}{name}: ", field)
        for text in _json_value(field, stdin):
            yield _utf8(text, field)
    yield b"}"


def _json_value(field: Field, stdin: Stdin) -> Iterator[str]:
    if not field.is_json:
        yield from string(_text(field, stdin))
        return
    try:
        yield from checked(_without_mark(_text(field, stdin)))
    except InvalidJSON as flaw:
        raise UsageError(f"the field {printable(field.name)} has a value that is no JSON: {flaw}") from None


def _form(fields: Sequence[Field], stdin: Stdin) -> Iterator[bytes]:
    for position, field in enumerate(fields):
        yield f"{'&' if position else ''}{_form_quoted(field.name, field)}=".encode()
        for text in _text(field, stdin):
            yield _form_quoted(text, field).encode()


def _form_quoted(text: str, field: Field) -> str:
    try:
        return quote(text, safe="", errors="surrogateescape")
    except UnicodeEncodeError:
        raise _no_text(field) from None


def _text(field: Field, stdin: Stdin) -> Iterable[str]:
    """Return the text of *field*, in chunks if it is read from a file."""
    return [field.text or ""] if field.path is None else text_of(field.path, stdin)


def _without_mark(chunks: Iterable[str]) -> Iterator[str]:
    """Yield *chunks* without the byte order mark that Windows puts before JSON files."""
    at_start = True
    for chunk in chunks:
        yield chunk.removeprefix("\ufeff") if at_start else chunk
        at_start = at_start and not chunk


def _utf8(text: str, field: Field) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # the argument was not valid UTF-8
        raise _no_text(field) from None


def _no_text(field: Field) -> UsageError:
    return UsageError(f"the field {printable(field.name)} is no UTF-8 text", hint="upload a file with name@file")

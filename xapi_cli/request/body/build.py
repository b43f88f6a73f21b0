"""Build the request body from ITEMs and `-d`; apart from JSON fields, its size does not matter to the memory used."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING
from urllib.parse import quote

from xapi_cli.errors import UsageError
from xapi_cli.http.messages import Body
from xapi_cli.request.body.sources import Stdin, read_body, read_text
from xapi_cli.request.body.spool import IN_MEMORY, Chain, Spool, Text
from xapi_cli.request.items import STDIN, Field, Items, Upload
from xapi_cli.request.json_values import InvalidValue, check
from xapi_cli.system.render import encode_argument, printable

if TYPE_CHECKING:
    from xapi_cli.request.nested_json import Node

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
_QUOTED = {ord('"'): "%22", ord("\r"): "%0D", ord("\n"): "%0A"}  # as in HTML form submission
_UNKNOWN = "application/octet-stream"


def build(items: Items, *, data: str | None, form: bool, stdin: Stdin) -> Body | None:
    """Return the body for *items*, `-d` *data* and `--form`, or None if they specify no body; raise UsageError.

    The caller has checked the combination.
    """
    if data is not None:
        return data_body(data, stdin)
    if items.uploads:
        return multipart(items.parts, stdin)
    if not items.fields:
        return None
    return form_body(items.fields, stdin) if form else json_body(items.fields, stdin)


def data_body(data: str, stdin: Stdin) -> Body:
    """Return the body for *data*, verbatim: text, the file in `@file`, or stdin for `@-`."""
    if data == "@":
        raise UsageError("-d has no file name after its @", hint="write -d @- for stdin")
    if data.startswith("@"):
        return read_body(data[1:], stdin, JSON)
    return Text(encode_argument(data, "the text of -d"), JSON)


def json_body(fields: Sequence[Field], stdin: Stdin) -> Body:
    """Return *fields* as a JSON object, or an array if their names say so; the values of `:=` are included verbatim."""
    from xapi_cli.request import nested_json

    for field in fields:
        _utf8(field.name, field)
    return Spool(_json(nested_json.build(fields), stdin), JSON)


def form_body(fields: Sequence[Field], stdin: Stdin) -> Body:
    """Return *fields* as a percent-encoded form; a space becomes `%20`, which every decoder accepts."""
    return Spool(_form(fields, stdin), FORM)


def _json(value: "Node", stdin: Stdin) -> Iterator[bytes]:
    from xapi_cli.request import nested_json

    for piece in nested_json.pieces(value):
        if isinstance(piece, Field):
            for text in _json_value(piece, stdin):
                yield _utf8(text, piece)
        else:
            yield piece.encode()


def _json_value(field: Field, stdin: Stdin) -> Iterator[str]:
    if not field.is_json:
        yield '"'
        for chunk in _text(field, stdin):
            yield json.dumps(chunk, ensure_ascii=False)[1:-1]
        yield '"'
        return
    text = "".join(_text(field, stdin)).removeprefix("\ufeff")  # Windows puts it before JSON files
    try:
        check(text)
    except InvalidValue as error:
        name = printable(field.name)
        raise UsageError(f"the field {name} has a value that is not valid JSON: {error}") from None
    yield text


def _form(fields: Sequence[Field], stdin: Stdin) -> Iterator[bytes]:
    for position, field in enumerate(fields):
        yield f"{'&' if position else ''}{_form_quoted(field.name, field)}=".encode()
        for text in _text(field, stdin):
            yield _form_quoted(text, field).encode()


def _form_quoted(text: str, field: Field) -> str:
    try:
        return quote(text, safe="", errors="surrogateescape")
    except UnicodeEncodeError:
        raise _encoding_error(field) from None


def _text(field: Field, stdin: Stdin) -> Iterable[str]:
    """Return the text of *field*, in chunks if it is read from a file."""
    return [field.text or ""] if field.path is None else read_text(field.path, stdin)


def _utf8(text: str, field: Field) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # the argument was not valid UTF-8
        raise _encoding_error(field) from None


def _encoding_error(field: Field) -> UsageError:
    return UsageError(f"the field {printable(field.name)} is not valid UTF-8", hint="upload a file with name@file")


def multipart(parts: Sequence[Field | Upload], stdin: Stdin) -> Body:
    """Return the body of *parts*, in their order; the boundary is the same each time it is sent."""
    boundary = os.urandom(16).hex()
    keep = IN_MEMORY // max(1, len(parts))
    bodies: list[Body] = []
    with ExitStack() as opened:
        for head, body in _contents(parts, stdin, keep):
            opened.callback(body.close)
            bodies += [Text(_encoded(f"--{boundary}\r\n{head}\r\n\r\n")), body, Text(b"\r\n")]
        opened.pop_all()  # from here on, closing the Chain closes them
    bodies.append(Text(f"--{boundary}--\r\n".encode()))
    return Chain(bodies, f"multipart/form-data; boundary={boundary}")


def content_type(upload: Upload) -> str:
    """Return the media type of *upload*: the given one, or else a guess from the file name."""
    if upload.content_type:
        return upload.content_type
    from mimetypes import guess_type  # reads the system's media type tables

    guessed, coding = guess_type(filename(upload))
    return _UNKNOWN if coding or not guessed else guessed


def _contents(parts: Sequence[Field | Upload], stdin: Stdin, keep: int) -> Iterator[tuple[str, Body]]:
    """Yield the headers and the content of each part, with at most *keep* bytes of the content in memory."""
    for part in parts:
        if isinstance(part, Field):
            yield disposition(part.name), _content(part, stdin, keep)
        else:
            head = disposition(part.name, filename(part))
            yield f"{head}\r\nContent-Type: {content_type(part)}", read_body(part.path, stdin, keep=keep)


def _content(field: Field, stdin: Stdin, keep: int) -> Body:
    if field.path is None:
        return Text(_encoded(field.text or ""))
    return Spool((text.encode() for text in read_text(field.path, stdin)), keep=keep)


def disposition(name: str, file: str | None = None) -> str:
    """Return the Content-Disposition header of the part *name*, with the file name *file* if given."""
    header = f'Content-Disposition: form-data; name="{_quoted(name)}"'
    return header if file is None else f'{header}; filename="{_quoted(file)}"'


def filename(upload: Upload) -> str:
    """Return the file name that is sent to the server."""
    return STDIN if upload.path == STDIN else os.path.basename(upload.path)


def _quoted(text: str) -> str:
    return text.translate(_QUOTED)


def _encoded(text: str) -> bytes:
    return encode_argument(text, "a form field or a file name")

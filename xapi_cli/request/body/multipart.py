"""Build multipart/form-data bodies in the format of browsers, of any size and with a known length."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from xapi_cli.request.body.sources import Stdin, read_body, read_text
from xapi_cli.request.body.spool import IN_MEMORY, Body, Chain, Spool, Text
from xapi_cli.request.items import STDIN, Field, Upload
from xapi_cli.system.encoding import encode_argument

_QUOTED = {ord('"'): "%22", ord("\r"): "%0D", ord("\n"): "%0A"}  # as in HTML form submission
_COMPRESSED = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}
_UNKNOWN = "application/octet-stream"


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
    return _COMPRESSED.get(coding, _UNKNOWN) if coding else guessed or _UNKNOWN


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

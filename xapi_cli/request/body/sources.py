"""Read the request content that comes from files and stdin, before the request is sent."""

import os
import stat
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from typing import BinaryIO

from xapi_cli.errors import UsageError
from xapi_cli.http.messages import Body
from xapi_cli.request.body.spool import CHUNK, IN_MEMORY, FileSlice, Spool
from xapi_cli.request.items import STDIN
from xapi_cli.system.render import printable

Stdin = Callable[[], BinaryIO | None]


def read_body(path: str, stdin: Stdin, content_type: str | None = None, *, keep: int = IN_MEMORY) -> Body:
    """Return the content of the file at *path*, or of *stdin* for `-`, as a body.

    A file that is not a regular file is read to its end. At most *keep* bytes are kept in memory.
    """
    if path == STDIN:
        return _stdin_body(_open_stdin(stdin), content_type, keep)
    name, file = printable(path), _open(path)
    try:
        size = _regular_size(file)
        if size > keep:  # smaller files are copied: the size of a /proc file is not reliable
            return FileSlice(file, 0, size, name=name, content_type=content_type)
        with file:
            return Spool(_chunks(file, name), content_type, keep=keep)
    except BaseException:
        file.close()
        raise


def read_text(path: str, stdin: Stdin) -> Iterator[str]:
    """Yield the text of the file at *path*, or of *stdin* for `-`; raise UsageError if it is not valid UTF-8."""
    if path == STDIN:
        yield from _decoded(_chunks(_raw(_open_stdin(stdin)), "stdin"), "stdin")
        return
    name = printable(path)
    with _open(path) as file:
        yield from _decoded(_chunks(file, name), name)


def read_value(path: str, stdin: Stdin) -> str:
    """Return the text of a file as the value of a header or parameter: without a byte order mark and the line end."""
    return "".join(read_text(path, stdin)).removeprefix("\ufeff").rstrip("\r\n")


def _open_stdin(stdin: Stdin) -> BinaryIO:
    stream = stdin()
    if stream is None or stream.closed:
        raise UsageError("stdin is closed", hint="redirect it from a file or a pipe, or omit @-")
    return stream


def _open(path: str) -> BinaryIO:
    """Open *path* unbuffered; expand `~`, because shells do not expand it after an @."""
    try:
        return open(os.path.expanduser(path), "rb", buffering=0)
    except OSError as error:
        raise UsageError(
            f"cannot read {printable(path)}: {_reason(error)}", hint="check the file name after the @"
        ) from error
    except ValueError as error:  # NUL or an unpaired surrogate
        raise UsageError("cannot read a file: its name is not valid") from error


def _stdin_body(stream: BinaryIO, content_type: str | None, keep: int) -> Body:
    """Stream a large redirected file from its current offset; read any other stdin to its end."""
    raw = _raw(stream)
    try:
        size = _regular_size(stream)
        start = stream.tell() if size else 0
        if size - start > keep:
            own = open(os.dup(stream.fileno()), "rb", buffering=0)  # noqa: SIM115 - the body closes it
            return FileSlice(own, start, size - start, name="stdin", content_type=content_type)
        if size:
            raw.seek(start)
    except OSError:  # no descriptor, or a closed one; the read reports it
        pass
    return Spool(_chunks(raw, "stdin"), content_type, keep=keep)


def _raw(stream: BinaryIO) -> BinaryIO:
    """Return the unbuffered *stream*.

    The buffered one treats a pause of a non-blocking pipe as the end, and does not treat ^D on a terminal as the end.
    """
    raw: BinaryIO = getattr(stream, "raw", stream)
    return raw


def _regular_size(file: BinaryIO) -> int:
    """Return the size of *file* in bytes, or 0 if it is not a regular file."""
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _chunks(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the content of *file*; raise UsageError if it cannot be read."""
    try:
        while chunk := _read(file):
            yield chunk
    except OSError as error:
        raise UsageError(f"cannot read {name}: {_reason(error)}") from error


def _read(file: BinaryIO) -> bytes:
    while (chunk := file.read(CHUNK)) is None:  # another process made the shared pipe non-blocking
        from select import select

        select([file], [], [])
    return chunk


def _decoded(chunks: Iterator[bytes], name: str) -> Iterator[str]:
    decoder = getincrementaldecoder("utf-8")()
    try:
        for chunk in chunks:
            yield decoder.decode(chunk)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        hint = "upload it with name@file, or send it as the body with -d @file"
        raise UsageError(f"{name} is not valid UTF-8", hint=hint) from error


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__

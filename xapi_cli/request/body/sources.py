"""Read what a request takes from files and stdin, before anything is sent."""

import os
import stat
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from typing import BinaryIO

from xapi_cli.errors import UsageError
from xapi_cli.request.body.spool import CHUNK, IN_MEMORY, Body, Spool, Stretch
from xapi_cli.system.render import printable

STDIN = "-"
Stdin = Callable[[], BinaryIO | None]


def body_of(path: str, stdin: Stdin, content_type: str | None = None, *, keep: int = IN_MEMORY) -> Body:
    """Return the body that the file at *path* makes, `-` being *stdin*; what is no regular file is read to its end."""
    if path == STDIN:
        return _stdin_body(_given(stdin), content_type, keep)
    name, file = printable(path), _opened(path)
    try:
        size = _regular_size(file)
        if size > keep:  # a smaller one is as well kept: it may be a file of /proc, whose size is made up
            return Stretch(file, 0, size, name=name, content_type=content_type)
        with file:
            return Spool(_chunks(file, name), content_type, keep=keep)
    except BaseException:
        file.close()
        raise


def text_of(path: str, stdin: Stdin) -> Iterator[str]:
    """Yield the text of the file at *path*, `-` being *stdin*; UsageError where it is no UTF-8."""
    if path == STDIN:
        yield from _decoded(_chunks(_raw(_given(stdin)), "stdin"), "stdin")
        return
    name = printable(path)
    with _opened(path) as file:
        yield from _decoded(_chunks(file, name), name)


def _given(stdin: Stdin) -> BinaryIO:
    stream = stdin()
    if stream is None or stream.closed:
        raise UsageError("stdin is closed", hint="give it a file or a pipe, or leave @- out")
    return stream


def _opened(path: str) -> BinaryIO:
    """Open *path* unbuffered, with its `~` expanded, which no shell does after an @."""
    try:
        return open(os.path.expanduser(path), "rb", buffering=0)
    except OSError as error:
        raise UsageError(
            f"cannot read {printable(path)}: {_reason(error)}", hint="an @ is followed by a path"
        ) from error
    except ValueError as error:  # NUL, half a surrogate pair
        raise UsageError("cannot read a file whose name no file can have") from error


def _stdin_body(stream: BinaryIO, content_type: str | None, keep: int) -> Body:
    """Stream a big redirected file from where it stands; read anything else to its end."""
    raw = _raw(stream)
    try:
        size = _regular_size(stream)
        start = stream.tell() if size else 0
        if size - start > keep:
            return _Borrowed(raw, start, size - start, name="stdin", content_type=content_type)
        if size:
            raw.seek(start)
    except OSError:  # no descriptor, or a closed one; reading tells
        pass
    return Spool(_chunks(raw, "stdin"), content_type, keep=keep)


class _Borrowed(Stretch):
    """A stretch of a stream that is not ours to close."""

    def close(self) -> None:
        """Leave the stream open."""


def _raw(stream: BinaryIO) -> BinaryIO:
    """Return *stream* without its buffer, which takes a non-blocking pause for the end and a terminal's ^D for none."""
    raw: BinaryIO = getattr(stream, "raw", stream)
    return raw


def _regular_size(file: BinaryIO) -> int:
    """Return the size of a regular *file*, of anything else 0."""
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _chunks(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield what *file* gives until its end."""
    try:
        while chunk := _read(file):
            yield chunk
    except OSError as error:
        raise UsageError(f"cannot read {name}: {_reason(error)}") from error


def _read(file: BinaryIO) -> bytes:
    while (chunk := file.read(CHUNK)) is None:  # another process has made a shared pipe non-blocking
        _wait_for(file)
    return chunk


def _wait_for(file: BinaryIO) -> None:
    from select import select

    select([file], [], [])


def _decoded(chunks: Iterator[bytes], name: str) -> Iterator[str]:
    decoder = getincrementaldecoder("utf-8")()
    try:
        for chunk in chunks:
            yield decoder.decode(chunk)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        hint = "upload it with name@file, or send it as the whole body with -d @file"
        raise UsageError(f"{name} is no UTF-8 text", hint=hint) from error


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__

"""Divide a body into parts of complete JSON documents, each as soon as it has arrived.

A stream of events (HTML Living Standard, section 9.2) or of lines has one document in each of them. Any other body is
one part, unless its first line is a complete document: APIs also send such streams as application/json.
"""

import re
from collections.abc import Iterable, Iterator

from xapi_cli.errors import FilterError
from xapi_cli.request.media_types import EVENT_STREAM, is_record_stream, media_type

MAX_DOCUMENT = 64 * 1024 * 1024  # bytes parsed in one piece
_LONGEST_LINE = 1024 * 1024  # bytes of a first line that is looked at: a longer one is usually the only one
_END_MARKER = b"[DONE]"  # the data of the last event of several APIs; it is not JSON
_LINE_END = re.compile(rb"\r\n|\r|\n")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def documents(chunks: Iterable[bytes], content_type: str, option: str) -> Iterator[bytes]:
    """Yield the body in *chunks*, UTF-8 of type *content_type*, in parts of complete documents.

    Raises FilterError, which names *option*, if a part is too large, and the errors of *chunks*.
    """
    if media_type(content_type) == EVENT_STREAM:
        yield from _events(chunks, option)
        return
    pending, has_lines, by_line = bytearray(), is_record_stream(content_type), True
    for chunk in chunks:
        pending += chunk
        _check_size(len(pending), option)
        if not by_line or (end := pending.rfind(b"\n") + 1) == 0:
            continue
        if has_lines or (len(pending) <= _LONGEST_LINE and _is_complete(pending[:end])):
            yield bytes(pending[:end])
            del pending[:end]
        elif len(pending) > _LONGEST_LINE:
            by_line = False
    yield bytes(pending)


def _is_complete(data: bytes | bytearray) -> bool:
    """Return whether no string, array or object is open at the end of *data*, which need not be valid."""
    structure = _STRING.sub(b"", data)
    if b'"' in structure:
        return False
    return all(structure.count(each[:1]) == structure.count(each[1:]) for each in (b"{}", b"[]"))


def _events(chunks: Iterable[bytes], option: str) -> Iterator[bytes]:
    """Yield the data of each event as one line, as soon as the event is complete.

    Comments, events without data and events whose data is `[DONE]` are omitted, and so is an event without the empty
    line at its end. A line break in the data can only be between the tokens of a JSON document.
    """
    data: list[bytes] = []
    size = 0
    for line in _lines(chunks, option):
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
            size += len(value) + 1
            _check_size(size, option)
        if not line:
            document, data, size = b" ".join(data), [], 0
            if document.strip() and document != _END_MARKER:
                yield document + b"\n"


def _lines(chunks: Iterable[bytes], option: str) -> Iterator[bytes]:
    """Yield the lines of *chunks* without their ends: CR, LF or CR LF; the last one must have its end too."""
    pending, after_cr = bytearray(), False
    for chunk in chunks:
        text = chunk[1:] if after_cr and chunk.startswith(b"\n") else chunk
        after_cr = chunk.endswith(b"\r")
        *lines, rest = _LINE_END.split(text)
        for line in lines:
            pending += line
            yield bytes(pending)
            pending.clear()
        pending += rest
        _check_size(len(pending), option)


def _check_size(size: int, option: str) -> None:
    if size > MAX_DOCUMENT:
        what = f"the body has a document of more than {MAX_DOCUMENT // 2**20} MiB, the limit of {option}"
        raise FilterError(what, hint=f"omit {option}, and pipe the body to the program jq")

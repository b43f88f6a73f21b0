"""Streams whose records are shown and filtered one by one: their media types, and the events of a text/event-stream.

The HTML Living Standard defines these events (section 9.2).
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator

from xapi_cli.errors import NetworkError
from xapi_cli.request.jq.child import MAX_DOCUMENT

END_MARKER = b"[DONE]"  # the data of the last event of several APIs; it is not JSON
_LINE_END = re.compile(rb"\r\n|\r|\n")
EVENT_STREAM = "text/event-stream"
_LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")


def media_type(content_type: str) -> str:
    """Return *content_type*, the value of the header, in lower case and without parameters."""
    return content_type.partition(";")[0].strip().lower()


def is_record_stream(content_type: str) -> bool:
    """Return whether a body of *content_type* is a stream: of events, or with one document per line."""
    return media_type(content_type) in (EVENT_STREAM, *_LINES)


def documents(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the data of each event in *chunks* as one line, as soon as the event is complete.

    Comments, events without data and events whose data is `[DONE]` are omitted. The standard requires that an event
    without the empty line at its end is omitted too. A line break in the data, which can only be between the tokens of
    a JSON document, becomes a space. Raises NetworkError if an event is too large, and the errors of *chunks*.
    """
    data: list[bytes] = []
    size = 0
    for line in _lines(chunks):
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                data.append(value.removeprefix(b" "))
                size += len(value) + 1
                _check_size(size)
            continue
        document, data, size = b" ".join(data), [], 0
        if document.strip() and document != END_MARKER:
            yield document + b"\n"


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of *chunks* without their ends: CR, LF or CR LF; the last one must have its end too."""
    pending, is_first, after_cr = bytearray(), True, False
    for chunk in chunks:
        text = chunk[1:] if after_cr and chunk.startswith(b"\n") else chunk
        after_cr = chunk.endswith(b"\r") if chunk else after_cr
        *lines, rest = _LINE_END.split(text)
        for line in lines:
            pending += line
            yield bytes(pending.removeprefix(BOM_UTF8) if is_first else pending)
            pending.clear()
            is_first = False
        pending += rest
        _check_size(len(pending))


def _check_size(size: int) -> None:
    if size > MAX_DOCUMENT:
        raise NetworkError(
            f"the body contains an event larger than {MAX_DOCUMENT // 2**20} MiB, the limit of --jq with libjq",
            hint="omit --jq",
            sent=True,
            headers_received=True,
        )

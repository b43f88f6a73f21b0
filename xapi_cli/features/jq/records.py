"""Divide a body into parts of complete JSON documents, each as soon as it has arrived.

A stream of events (HTML Living Standard, section 9.2) or of lines has one document in each of them; any other body is
one part.
"""

from collections.abc import Iterable, Iterator

from xapi_cli.errors import FilterError
from xapi_cli.request.media_types import EVENT_STREAM, is_record_stream, media_type

MAX_DOCUMENT = 64 * 1024 * 1024  # bytes parsed in one piece
_END_MARKER = b"[DONE]"  # the data of the last event of several APIs; it is not JSON


def documents(chunks: Iterable[bytes], content_type: str, option: str) -> Iterator[bytes]:
    """Yield the body in *chunks*, UTF-8 of type *content_type*, in parts of complete documents.

    Raises FilterError, which names *option*, if a part is too large, and the errors of *chunks*.
    """
    has_events, has_records = media_type(content_type) == EVENT_STREAM, is_record_stream(content_type)
    pending = bytearray()
    for chunk in chunks:
        pending += chunk
        if len(pending) > MAX_DOCUMENT:
            what = f"the body has a document of more than {MAX_DOCUMENT // 2**20} MiB, the limit of {option}"
            raise FilterError(what, hint=f"omit {option}, and pipe the body to the program jq")
        if has_records and b"\n" in chunk:
            if has_events:
                pending = pending.replace(b"\r\n", b"\n")
            complete, end, rest = pending.rpartition(b"\n\n" if has_events else b"\n")
            if end:
                yield _data(bytes(complete)) if has_events else bytes(complete)
                pending = rest
    if not has_events:  # an event without the empty line at its end is not complete
        yield bytes(pending)


def _data(events: bytes) -> bytes:
    """Return the data of *events*, each as one line: a line break in it can only be between the tokens of JSON.

    Comments, events without data and events whose data is `[DONE]` are omitted.
    """
    found = []
    for event in events.split(b"\n\n"):
        fields = (line.partition(b":") for line in event.split(b"\n"))
        data = b" ".join(value.removeprefix(b" ") for name, _, value in fields if name == b"data")
        if data != _END_MARKER:
            found.append(data)
    return b"\n".join(found)

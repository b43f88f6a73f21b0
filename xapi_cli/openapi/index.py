"""The index of an API description: one line for each operation, and its details, which are parsed only when needed.

A file starts with `xapi-api VERSION LENGTH CHECKSUM`; the checksum is the CRC-32 of all that follows. The head
follows, of LENGTH bytes: a line of JSON about the document, and for each operation a line
`METHOD TAB PATH TAB START TAB LENGTH TAB SUMMARY`. START and LENGTH are the position of its details in the rest, in
bytes. So completion of a path does not parse the details.
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from xapi_cli.openapi.operations import Body, Operation, Parameter, Response

_MAGIC = b"xapi-api 2 "
_FIELDS = 5  # in the line of an operation


class InvalidIndex(ValueError):
    """The data is not an index of this version."""


class Entry(NamedTuple):
    """The line of one operation."""

    method: str
    path: str
    start: int
    length: int
    summary: str


class IndexInfo(NamedTuple):
    """What the index was compiled from: the title of the API, and the path that all paths start with.

    *base_url* is the one that was selected when the document was loaded, empty if there was none.
    """

    title: str
    server_path: str
    source: str
    base_url: str = ""


class Index:
    """The operations of an API; `entries` are in the order of the document."""

    def __init__(self, info: IndexInfo, entries: Sequence[Entry], details: bytes) -> None:
        self.info, self.entries, self._details = info, entries, details

    def describes(self, base_url: str) -> bool:
        """Return whether the index is for the API at *base_url*; one that was loaded without a base URL is for any."""
        return self.info.base_url in ("", base_url)

    def operation(self, entry: Entry) -> Operation:
        """Return the operation of *entry* with its details; raises InvalidIndex if they are damaged."""
        try:
            text, parameters, body, responses = json.loads(self._details[entry.start : entry.start + entry.length])
            return Operation(
                entry.method,
                entry.path,
                entry.summary,
                text,
                [Parameter(*each) for each in parameters],
                body and Body(*body),
                [Response(*each) for each in responses],
            )
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidIndex("the details of an operation are damaged") from error


def encode(info: IndexInfo, operations: Iterable[Operation]) -> bytes:
    """Return the index of *operations* as bytes."""
    head, details = [json.dumps(info)], bytearray()
    for each in operations:
        content = json.dumps((each.text, each.parameters, each.body, each.responses), separators=(",", ":")).encode()
        head.append(f"{each.method}\t{each.path}\t{len(details)}\t{len(content)}\t{each.summary}")
        details += content
    lines = "".join(f"{line}\n" for line in head).encode()
    return _MAGIC + b"%d %d\n" % (len(lines), zlib.crc32(details, zlib.crc32(lines))) + lines + details


def decode(data: bytes) -> Index:
    """Return the index in *data*; raises InvalidIndex if it is damaged or of another version."""
    first, _, rest = data.partition(b"\n")
    try:
        if not first.startswith(_MAGIC):
            raise InvalidIndex("another version")
        length, checksum = map(int, first[len(_MAGIC) :].split())
        if zlib.crc32(rest) != checksum:
            raise InvalidIndex("the checksum is wrong")
        info, *lines = rest[:length].decode().rstrip("\n").split("\n")
        entries = [_entry(line) for line in lines]
        return Index(IndexInfo(*json.loads(info)), entries, rest[length:])
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidIndex("the index is damaged") from error


def _entry(line: str) -> Entry:
    method, path, start, length, summary = line.split("\t", _FIELDS - 1)
    return Entry(method, path, int(start), int(length), summary)

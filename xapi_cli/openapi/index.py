"""The index of an API description: a small head that is read as a whole, and one record for each operation.

A file starts with `xapi-api VERSION HEAD CHECKSUM SIZE`, a line of fixed length: the length of the head in bytes, its
CRC-32, and the size of the file. The head is a line of JSON about the document, and a line for each path:

    PATH TAB METHOD SPACE START SPACE LENGTH SPACE CHECKSUM TAB METHOD …

START, LENGTH and CHECKSUM are the position of the operation's record in the file, relative to the end of the head, in
bytes, and its CRC-32. A record is the summary, a line feed, and the details as JSON. A request or a completion
therefore reads the head and only the records that it needs, however long the document is.
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from typing import BinaryIO, NamedTuple

from xapi_cli.openapi.operations import Body, Operation, Parameter, Response

_NAME, _VERSION = b"xapi-api", b"3"
_HEADER = b"%b %b %10d %08x %10d\n"
_HEADER_LENGTH = len(_HEADER % (_NAME, _VERSION, 0, 0, 0))


class InvalidIndex(ValueError):
    """The data is not an index of this version; the message states why."""


class Entry(NamedTuple):
    """A method on a path, and the position and the checksum of its record."""

    method: str
    path: str
    start: int
    length: int
    checksum: int


class IndexInfo(NamedTuple):
    """What the index was compiled from: the title of the API, and the path that all paths start with.

    *base_url* is the one that was selected when the document was loaded, empty if there was none. Paths may also start
    with one of *other_server_paths*, which may contain parameters. With *is_partial*, the API has paths that the index
    does not contain.
    """

    title: str
    server_path: str
    source: str
    base_url: str = ""
    other_server_paths: Sequence[str] = ()
    is_partial: bool = False


class Index:
    """The operations of an API, in the order of the document; *paths* has a line of the head for each path.

    The records are read from *file*, of *size* bytes, where they start at the position *start*.
    """

    def __init__(self, info: IndexInfo, paths: dict[str, str], file: BinaryIO, start: int, size: int) -> None:
        self.info, self._paths = info, paths
        self._file, self._start, self._size = file, start, size

    def describes(self, base_url: str) -> bool:
        """Return whether the index is for the API at *base_url*; one that was loaded without a base URL is for any."""
        return self.info.base_url in ("", base_url)

    def paths(self, method: str | None = None) -> list[str]:
        """Return the paths, those with *method* only if it is given."""
        if method is None:
            return list(self._paths)
        return [path for path, line in self._paths.items() if line.startswith(f"{method} ") or f"\t{method} " in line]

    def at(self, path: str) -> list[Entry]:
        """Return the operations at *path*; raises InvalidIndex."""
        try:
            return [_entry(path, field) for field in self._paths.get(path, "").split("\t") if field]
        except ValueError as error:
            raise InvalidIndex("it is damaged") from error

    @property
    def entries(self) -> list[Entry]:
        """All operations; raises InvalidIndex."""
        return [entry for path in self._paths for entry in self.at(path)]

    def summary(self, entry: Entry) -> str:
        """Return the summary of *entry*; raises InvalidIndex if its record is damaged."""
        return self._record(entry)[0]

    def operation(self, entry: Entry) -> Operation:
        """Return the operation of *entry* with its details; raises InvalidIndex if its record is damaged."""
        summary, details = self._record(entry)
        try:
            text, parameters, body, responses = json.loads(details)
            return Operation(
                entry.method,
                entry.path,
                summary,
                text,
                [Parameter(*each) for each in parameters],
                body and Body(*body),
                [Response(*each) for each in responses],
            )
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidIndex("it is damaged") from error

    def _record(self, entry: Entry) -> tuple[str, str]:
        """Return the summary and the details of *entry*."""
        start = self._start + entry.start
        if not 0 <= entry.length <= self._size - start:  # before memory is allocated
            raise InvalidIndex("it is damaged")
        data = _read(self._file, start, entry.length)
        if zlib.crc32(data) != entry.checksum:
            raise InvalidIndex("it is damaged")
        summary, _, details = data.decode().partition("\n")
        return summary, details


def encode(info: IndexInfo, operations: Iterable[Operation]) -> bytes:
    """Return the index of *operations* as bytes."""
    paths: dict[str, str] = {}
    records = bytearray()
    for each in operations:
        details = json.dumps((each.text, each.parameters, each.body, each.responses), separators=(",", ":"))
        record = f"{each.summary}\n{details}".encode()
        field = f"\t{each.method} {len(records)} {len(record)} {zlib.crc32(record)}"
        paths[each.path] = paths.get(each.path, "") + field
        records += record
    lines = [json.dumps(info), *(path + fields for path, fields in paths.items())]
    head = "\n".join(lines).encode()
    size = _HEADER_LENGTH + len(head) + len(records)
    return _HEADER % (_NAME, _VERSION, len(head), zlib.crc32(head), size) + head + records


def decode(file: BinaryIO) -> Index:
    """Return the index in *file*, which stays open; raises InvalidIndex if it is damaged or of another version."""
    length, checksum, size = _header(_read(file, 0, _HEADER_LENGTH))
    if file.seek(0, 2) != size:  # before memory is allocated
        raise InvalidIndex("it is damaged")
    head = _read(file, _HEADER_LENGTH, length)
    if zlib.crc32(head) != checksum:
        raise InvalidIndex("it is damaged")
    try:
        first, *lines = head.decode().split("\n")
        info = IndexInfo(*json.loads(first))
        paths = dict(line.split("\t", 1) for line in lines)
        info = info._replace(other_server_paths=tuple(info.other_server_paths))
        return Index(info, paths, file, _HEADER_LENGTH + length, size)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidIndex("it is damaged") from error


def _header(line: bytes) -> tuple[int, int, int]:
    """Return the length of the head, its checksum, and the size of the file."""
    name, _, rest = line.partition(b" ")
    version, _, _ = rest.partition(b" ")
    if name == _NAME and version.isdigit() and version != _VERSION:
        raise InvalidIndex("it was written by another version of xapi")
    try:
        _, _, length, checksum, size = line.split()
        found = int(length), int(checksum, 16), int(size)
    except ValueError as error:
        raise InvalidIndex("it is damaged") from error
    if line != _HEADER % (_NAME, _VERSION, *found) or found[0] > found[2]:
        raise InvalidIndex("it is damaged")
    return found


def _read(file: BinaryIO, start: int, length: int) -> bytes:
    """Return *length* bytes of *file* from *start* on, or fewer at its end; raises InvalidIndex."""
    try:
        file.seek(start)
        return file.read(length)
    except (OSError, ValueError, OverflowError) as error:
        raise InvalidIndex("it cannot be read") from error


def _entry(path: str, field: str) -> Entry:
    method, start, length, checksum = field.split(" ")
    return Entry(method, path, int(start), int(length), int(checksum))

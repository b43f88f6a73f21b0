"""The index of an API description: a small head, the paths in alphabetical order, and one record for each operation.

A file starts with `xapi-api VERSION HEAD CHECKSUM SIZE`, a line of fixed length: the length of the head in bytes, its
CRC-32, and the size of the file. The head is a line of JSON about the document, a line with the marks that the paths
contain, and a line for each page of `path_table`. The pages follow. The fields of a path are its methods:

    METHOD SPACE START SPACE LENGTH SPACE CHECKSUM TAB METHOD …

START, LENGTH and CHECKSUM are the position of the operation's record in the file, relative to the end of the pages, in
bytes, and its CRC-32. A record is the summary, a line feed, and the details as JSON; they are in the order of the
document. A request or a completion therefore reads the head, and only the pages and records that it needs, however
long the document is.
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import BinaryIO, NamedTuple

from xapi_cli.openapi.operations import Body, Operation, Parameter, Response
from xapi_cli.openapi.path_table import Page, PathTable, encode_pages, marks_in

_NAME, _VERSION = b"xapi-api", b"4"
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
    """The operations of an API; *paths* are their paths, whose fields `entries_in` reads.

    The records are read from *file*, of *size* bytes, where they start at the position *start*.
    """

    def __init__(self, info: IndexInfo, paths: PathTable, file: BinaryIO, start: int, size: int) -> None:
        self.info, self.paths = info, paths
        self._file, self._start, self._size = file, start, size

    def describes(self, base_url: str) -> bool:
        """Return whether the index is for the API at *base_url*; one that was loaded without a base URL is for any."""
        return self.info.base_url in ("", base_url)

    def at(self, *paths: str) -> list[Entry]:
        """Return the operations at *paths*, in the order of the document; raises InvalidIndex."""
        return _entries((path, self.paths.fields(path)) for path in paths)

    @property
    def entries(self) -> list[Entry]:
        """All operations, in the order of the document; raises InvalidIndex."""
        return _entries(self.paths.lines())

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
        summary, _, details = _checked(self._file, start, entry.length, entry.checksum).partition("\n")
        return summary, details


def has_method(fields: str, method: str | None) -> bool:
    """Return whether the *fields* of a path contain *method*; None stands for any."""
    return method is None or fields.startswith(f"{method} ") or f"\t{method} " in fields


def encode(info: IndexInfo, operations: Iterable[Operation]) -> bytes:
    """Return the index of *operations*, of which there is at least one, as bytes."""
    paths: dict[str, str] = {}
    records = bytearray()
    for each in operations:
        parameters = [parameter if parameter.suggested else parameter[:-1] for parameter in each.parameters]
        details = (each.text, parameters, each.body, each.responses)
        record = f"{each.summary}\n{json.dumps(details, ensure_ascii=False, separators=(',', ':'))}".encode()
        field = f"{each.method} {len(records)} {len(record)} {zlib.crc32(record)}"
        paths[each.path] = f"{paths[each.path]}\t{field}" if each.path in paths else field
        records += record
    pages, table = encode_pages(paths)
    directory = (f"{page.first}\t{page.length} {page.checksum}" for page in pages)
    head = "\n".join((json.dumps(info), marks_in(paths), *directory)).encode()
    size = _HEADER_LENGTH + len(head) + len(table) + len(records)
    return _HEADER % (_NAME, _VERSION, len(head), zlib.crc32(head), size) + head + table + records


def decode(file: BinaryIO) -> Index:
    """Return the index in *file*, which stays open; raises InvalidIndex if it is damaged or of another version."""
    length, checksum, size = _header(_read(file, 0, _HEADER_LENGTH))
    if file.seek(0, 2) != size:  # before memory is allocated
        raise InvalidIndex("it is damaged")
    start = _HEADER_LENGTH + length
    try:
        first, marks, *directory = _checked(file, _HEADER_LENGTH, length, checksum).split("\n")
        info = IndexInfo(*json.loads(first))
        info = info._replace(other_server_paths=tuple(info.other_server_paths))
        pages = list(map(_page, directory))
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidIndex("it is damaged") from error
    starts = list(accumulate((page.length for page in pages), initial=start))
    if not pages or starts[-1] > size:
        raise InvalidIndex("it is damaged")

    def read(number: int) -> str:
        return _checked(file, starts[number], pages[number].length, pages[number].checksum)

    return Index(info, PathTable(pages, marks, read), file, starts[-1], size)


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


def _checked(file: BinaryIO, start: int, length: int, checksum: int) -> str:
    """Return the text of *length* bytes of *file* from *start* on; raises InvalidIndex if they are damaged."""
    data = _read(file, start, length)
    if zlib.crc32(data) != checksum:
        raise InvalidIndex("it is damaged")
    return data.decode()


def _read(file: BinaryIO, start: int, length: int) -> bytes:
    """Return *length* bytes of *file* from *start* on, or fewer at its end; raises InvalidIndex."""
    try:
        file.seek(start)
        return file.read(length)
    except (OSError, ValueError, OverflowError) as error:
        raise InvalidIndex("it cannot be read") from error


def _page(line: str) -> Page:
    """Return the page that *line* of the head describes."""
    first, _, numbers = line.partition("\t")
    length, checksum = map(int, numbers.split(" "))
    if length < 0:
        raise ValueError(line)
    return Page(first, length, checksum)


def _entries(lines: Iterable[tuple[str, str]]) -> list[Entry]:
    """Return the operations in *lines*, paths with their fields, in the order of the document."""
    try:
        found = [_entry(path, field) for path, fields in lines for field in fields.split("\t") if field]
    except ValueError as error:
        raise InvalidIndex("it is damaged") from error
    return sorted(found, key=lambda each: each.start)


def _entry(path: str, field: str) -> Entry:
    method, start, length, checksum = field.split(" ")
    return Entry(method, path, int(start), int(length), int(checksum))

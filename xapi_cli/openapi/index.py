"""The index of an API description: a small head, a line for each path, and a record for each operation.

A file starts with `xapi-api VERSION HEAD PATHS SIZE CHECKSUM`, a line of fixed length: the lengths of the head and of
the lines in bytes, the size of the file, and the CRC-32 of the head, which is JSON about the document. Then come the
lines, and the records, in the order of the document. A line is a path and its fields, which are its methods:

    PATH TAB METHOD SPACE START SPACE LENGTH SPACE CHECKSUM TAB METHOD …

START and LENGTH are the position of the operation's record in bytes, relative to the end of the lines. CHECKSUM is the
CRC-32 of METHOD, PATH and the record, so a damaged line is detected where its operation is used. A record is the
summary, a line feed, and the details as JSON.

The lines are sorted as bytes. This is the order of the paths too: UTF-8 preserves the order of characters, and no
character of a path precedes the tab. A lookup does not divide the lines: it bisects the positions of their bytes, and
goes back from each to the start of the line there. It ends for any bytes, even if they are damaged. The lines are read,
not mapped into memory: reading them is faster than importing mmap, and an error of the file system is an exception.
"""

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from xapi_cli.openapi.operations import Body, Operation, Parameter, Response

_HEADER = b"xapi-api 5 %10d %10d %10d %08x\n"
_HEADER_LENGTH = len(_HEADER % (0, 0, 0, 0))
_ANY_HEADER = re.compile(rb"xapi-api (\d+) (?: *(\d+) +(\d+) +(\d+) ([0-9a-f]{8})\n)?")
_MARKS = "{%?#"  # what starts a part of a template that is not literal text
_NEAR = 128  # bytes
_LAST = "\U0010ffff"


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


class PathTable:
    """The sorted *lines* of an index, each with its line feed; *marks* are those that the paths contain."""

    def __init__(self, lines: bytes, marks: str) -> None:
        self._lines, self.marks = lines, marks

    def lines(self, start: str = "") -> Iterator[tuple[str, str]]:
        """Yield the paths that begin with *start* and their fields, in alphabetical order."""
        first = self._seek(start)
        listed = _text(self._lines[first : self._seek(f"{start}{_LAST}", first)])
        for line in listed.split("\n")[:-1]:
            path, _, fields = line.partition("\t")
            yield path, fields

    def fields(self, path: str) -> str:
        """Return the fields of *path*, empty if there is no such path."""
        start = self._seek(path)
        line = _text(self._lines[start : self._lines.find(b"\n", start)])
        return line[len(path) + 1 :] if line.startswith(f"{path}\t") else ""

    def contains(self, start: str) -> bool:
        """Return whether a path begins with *start*."""
        return self._path(self._seek(start)).startswith(start)

    def children(self, above: str, start: str, low: int = 0, high: int | None = None) -> Iterator[str]:
        """Yield the next segments of the paths that begin with *above* and *start*, which is a part of that segment.

        A segment that others follow ends with a slash. One without a slash is the end of a path. The lines are between
        *low* and *high*.
        """
        start = above + start
        position = self._seek(start, low, high)
        while (path := self._path(position)).startswith(start) and path:
            position = self._lines.find(b"\n", position) + 1
            slash = path.find("/", len(above)) + 1
            yield path[len(above) : slash or None]
            if slash and self._lines.startswith(path[:slash].encode(), position):
                position = self._seek(f"{path[: slash - 1]}0", position, high, _NEAR)  # the character after the slash

    def templates(self, above: str, segment: str) -> Iterator[str]:
        """Yield the next segments after *above* that begin with a mark, or like *segment* and then with a mark."""
        low, high, length = 0, len(self._lines), 0
        while length <= len(segment):
            start = above + segment[:length]
            low = self._seek(start, low, high)
            high = self._seek(start + _LAST, low, high, _NEAR)
            if low == high:
                return
            # All lines between *low* and *high* begin alike, often with more characters of the segment.
            last = self._lines.rfind(b"\n", low, high - 1) + 1 or low
            shared = min(_common(above + segment, self._path(each)) for each in (low, last))
            length = max(length, shared - len(above))
            for mark in self.marks:
                yield from self.children(above, segment[:length] + mark, low, high)
            length += 1

    def all_begin_with(self, start: str) -> bool:
        """Return whether all paths begin with *start*."""
        last = self._lines.rfind(b"\n", 0, len(self._lines) - 1) + 1
        return self._path(0).startswith(start) and self._path(last).startswith(start)

    def _seek(self, text: str, low: int = 0, high: int | None = None, step: int = 1 << 62) -> int:
        """Return the position of the first line between *low* and *high* that does not precede *text*.

        With a short *step*, it is found faster if it is near *low*.
        """
        lines, wanted, high = self._lines, text.encode("utf-8", "surrogatepass"), high or len(self._lines)
        while low < high:
            middle = min(low + step, (low + high) // 2)
            start = lines.rfind(b"\n", low, middle) + 1 or low
            end = lines.find(b"\n", middle)
            if lines[start:end] < wanted:
                low, step = end + 1, 4 * step
            else:
                high = start
        return low

    def _path(self, position: int) -> str:
        """Return the path of the line at *position*, empty after the last line."""
        return _text(self._lines[position : max(self._lines.find(b"\t", position), position)])


class Index:
    """The operations of an API; *paths* are their paths.

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
        data = _read(self._file, start, entry.length)
        if _checksum(entry.method, entry.path, data) != entry.checksum:
            raise InvalidIndex("it is damaged")
        summary, _, details = _text(data).partition("\n")
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
        checksum = _checksum(each.method, each.path, record)
        paths[each.path] = f"{paths.get(each.path, '')}\t{each.method} {len(records)} {len(record)} {checksum}"
        records += record
    marks = "".join(mark for mark in _MARKS if any(mark in path for path in paths))
    head = json.dumps((info, marks)).encode()
    lines = "".join(f"{path}{paths[path]}\n" for path in sorted(paths)).encode()
    size = _HEADER_LENGTH + len(head) + len(lines) + len(records)
    return _HEADER % (len(head), len(lines), size, zlib.crc32(head)) + head + lines + records


def decode(file: BinaryIO) -> Index:
    """Return the index in *file*, which stays open; raises InvalidIndex if it is damaged or of another version."""
    header = _ANY_HEADER.match(_read(file, 0, _HEADER_LENGTH))
    if header is None or (header[1] == b"5" and not header[2]):
        raise InvalidIndex("it is damaged")
    if header[1] != b"5":
        raise InvalidIndex("it was written by another version of xapi")
    of_head, of_lines, size = (int(header[number]) for number in (2, 3, 4))
    start = _HEADER_LENGTH + of_head + of_lines
    if not start <= size == file.seek(0, 2):  # before memory is allocated
        raise InvalidIndex("it is damaged")
    head, lines = _read(file, _HEADER_LENGTH, of_head), _read(file, _HEADER_LENGTH + of_head, of_lines)
    if zlib.crc32(head) != int(header[5], 16) or not lines.endswith(b"\n"):
        raise InvalidIndex("it is damaged")
    try:
        fields, marks = json.loads(head)
        info = IndexInfo(*fields)
        info = info._replace(other_server_paths=tuple(info.other_server_paths))
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidIndex("it is damaged") from error
    return Index(info, PathTable(lines, marks), file, start, size)


def _read(file: BinaryIO, start: int, length: int) -> bytes:
    """Return *length* bytes of *file* from *start* on, or fewer at its end; raises InvalidIndex."""
    try:
        file.seek(start)
        return file.read(length)
    except (OSError, ValueError, OverflowError) as error:
        raise InvalidIndex("it cannot be read") from error


def _checksum(method: str, path: str, record: bytes) -> int:
    return zlib.crc32(record, zlib.crc32(f"{method} {path}".encode()))


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidIndex("it is damaged") from error


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


def _common(one: str, other: str) -> int:
    """Return the length of the text that both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))

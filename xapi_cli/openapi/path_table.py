"""The paths of an index in alphabetical order, in pages: a lookup reads only the pages that it needs.

A page contains a line for each path, an empty line, and a line with the fields of each path. The head of the index
contains a line for each page: a text that none of its paths precedes and that follows all paths of the page before, a
tab, and the page's length in bytes and CRC-32.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

_PAGE = 4096  # characters; a longer line is a page of its own
_MARKS = "{%?#"  # what starts a part of a template that is not literal text

_Position = tuple[int, int]  # the number of a page, and of a line in it


class Page(NamedTuple):
    """A page that starts with a path not before *first*; *length* is in bytes."""

    first: str
    length: int
    checksum: int


class PathTable:
    """The paths in *pages*, whose text *read* returns for their number; *marks* are those that the paths contain."""

    def __init__(self, pages: Sequence[Page], marks: str, read: Callable[[int], str]) -> None:
        self.marks = marks
        self._firsts, self._read = [page.first for page in pages], read
        self._pages: dict[int, _Content] = {}

    def paths(self, start: str = "") -> Iterator[str]:
        """Yield the paths that begin with *start*, in alphabetical order."""
        for page, first, end in self._parts(start):
            yield from page.paths[first:end]

    def lines(self, start: str = "") -> Iterator[tuple[str, str]]:
        """Yield the paths that begin with *start* and their fields, in alphabetical order."""
        for page, first, end in self._parts(start):
            yield from zip(page.paths[first:end], page.fields[first:end], strict=False)

    def _parts(self, start: str) -> "Iterator[tuple[_Content, int, int]]":
        """Yield the pages with paths that begin with *start*, and the positions of the first one and after the last."""
        number, first = self._seek(start)
        while number < len(self._firsts):
            page = self._page(number)
            end = bisect_right(page.paths, f"{start}\U0010ffff")
            yield page, first, end
            if end < len(page.paths):
                return
            number, first = number + 1, 0

    def fields(self, path: str) -> str:
        """Return the fields of *path*, empty if there is no such path."""
        number, line = self._seek(path)
        return self._page(number).fields[line] if self._path((number, line)) == path else ""

    def contains(self, start: str) -> bool:
        """Return whether a path begins with *start*."""
        return (self._path(self._seek(start)) or "").startswith(start)

    def children(self, above: str, start: str) -> Iterator[str]:
        """Yield the next segments of the paths that begin with *above* and *start*, which is a part of that segment.

        A segment that others follow ends with a slash. One without a slash is the end of a path.
        """
        position, start = self._seek(above + start), above + start
        while (path := self._path(position)) is not None and path.startswith(start):
            slash = path.find("/", len(above))
            if slash < 0:
                yield path[len(above) :]
                position = self._after(position)
                continue
            below = path[: slash + 1]
            yield below[len(above) :]
            position = self._after(position)
            if (self._path(position) or "").startswith(below):
                position = self._seek(f"{path[:slash]}0")  # the character after the slash

    def shared(self, text: str) -> int:
        """Return the length of the longest start of *text* with which a path begins."""
        number, line = self._seek(text)
        near = [self._path((number, line))]
        if line or number:
            near.append(self._page(number).paths[line - 1] if line else self._page(number - 1).paths[-1])
        return max(_common(text, path) for path in near if path is not None)

    def all_begin_with(self, start: str) -> bool:
        """Return whether all paths begin with *start*."""
        last = self._page(len(self._firsts) - 1).paths[-1]
        return (self._path((0, 0)) or "").startswith(start) and last.startswith(start)

    def _seek(self, text: str) -> _Position:
        """Return the position of the first path that does not precede *text*."""
        number = max(bisect_right(self._firsts, text) - 1, 0)
        paths = self._page(number).paths
        line = bisect_left(paths, text)
        return (number, line) if line < len(paths) else (number + 1, 0)

    def _after(self, position: _Position) -> _Position:
        number, line = position
        return (number, line + 1) if line + 1 < len(self._page(number).paths) else (number + 1, 0)

    def _path(self, position: _Position) -> str | None:
        """Return the path at *position*, None after the last one."""
        number, line = position
        return self._page(number).paths[line] if number < len(self._firsts) else None

    def _page(self, number: int) -> "_Content":
        if number not in self._pages:
            self._pages[number] = _Content(self._read(number))
        return self._pages[number]


class _Content:
    """The paths and the fields on a page; most lookups need only the paths."""

    def __init__(self, text: str) -> None:
        paths, _, self._fields = text.partition("\n\n")
        self.paths = paths.split("\n")

    @property
    def fields(self) -> list[str]:
        """The fields of each path."""
        return self._fields.split("\n")


def encode_pages(fields: Mapping[str, str]) -> tuple[list[Page], bytes]:
    """Return the pages for the *fields* of each path, and their contents; there is at least one path."""
    pages, data, start, size, last = list[Page](), bytearray(), 0, 0, ""
    paths = sorted(fields)
    for end, path in enumerate(paths, 1):
        size += len(path) + len(fields[path])
        if end == len(paths) or size + len(paths[end]) > _PAGE:
            listed = paths[start:end]
            page = "\n".join((*listed, "", *map(fields.__getitem__, listed))).encode()
            # a short text that separates the pages is sufficient
            pages.append(Page(listed[0][: _common(last, listed[0]) + 1], len(page), crc32(page)))
            data += page
            start, size, last = end, 0, path
    return pages, bytes(data)


def marks_in(paths: Mapping[str, str]) -> str:
    """Return those characters that start a part of a template, and that one of *paths* contains."""
    return "".join(mark for mark in _MARKS if any(mark in path for path in paths))


def _common(one: str, other: str) -> int:
    """Return the length of the text that both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))

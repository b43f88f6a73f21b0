"""Output of the items of all pages: one item per line, or a single JSON array."""

from codecs import getincrementaldecoder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xapi_cli.request.files.atomic_file import AtomicFile
    from xapi_cli.request.json.pretty import Formatter
    from xapi_cli.request.output import ResponseOutput

_BUFFERED = 64 * 1024  # bytes


class ItemOutput:
    """Write items, as compact JSON, to the file of *output* or else to stdout; with *slurp*, as one array.

    If *output* has a filter, it is applied to the items of each page when `flush` is called.
    """

    def __init__(self, output: "ResponseOutput", *, slurp: bool) -> None:
        self._output, self._slurp, self._filter = output, slurp, output.filter
        self._file: AtomicFile | None = output.file  # type: ignore[assignment]  # pages are never resumed
        self._write = output.destination(self._file)
        self._formatter = None if self._filter is not None else _formatter(output)
        if self._filter is not None:
            self._write = output.result_writer(self._file)
        self._buffer = bytearray()
        self._is_first = True
        self._added = self._printed = 0  # items of the page
        self._has_begun = False  # a part of the page may have been written
        self._decode = getincrementaldecoder("utf-8")().decode

    def begin_page(self) -> None:
        """Count the items from now on as those of the next page."""
        self._added, self._printed, self._has_begun = 0, 0, False

    def printed_of_page(self) -> str:
        """Return what has been printed of the items of the page, in words; an empty text if nothing has."""
        if not self._has_begun:
            return ""
        return (
            f"its first {self._printed} items, or more, were printed" if self._printed else "a part of it was printed"
        )

    def add(self, item: "Iterable[bytes]") -> None:
        """Write *item*, a value in blocks, at the latest when `flush` is called."""
        if self._slurp:
            self._add(b"[" if self._is_first else b",")
        for block in item:
            self._add(block)
            self._flush_if_full()
        self._end_value()
        if not self._slurp:
            self._buffer += b"\n"
        self._is_first = False
        self._added += 1
        self._flush_if_full()

    def _add(self, block: bytes) -> None:
        self._buffer += block if self._formatter is None else self._formatter.feed(self._decode(block)).encode()

    def _end_value(self) -> None:
        if self._formatter is not None:
            self._buffer += self._formatter.end().encode()

    def _flush_if_full(self) -> None:
        if len(self._buffer) >= _BUFFERED and self._filter is None:
            self.flush()

    def _write_of_page(self, data: bytes) -> None:
        self._has_begun = True
        self._write(data)

    def flush(self) -> None:
        """Write all items that were added; raises ClosedPipe or OutputError."""
        if not self._buffer:
            return
        data, self._buffer = bytes(self._buffer), bytearray()
        self._output.size += len(data)  # of the items, even if a filter prints something else
        if self._filter is None:
            self._write_of_page(data)
            self._printed = self._added
        else:
            self._filter.apply([data], self._write_of_page)

    def finish(self) -> None:
        """Write the end of the array and complete the file, after the last page."""
        if self._slurp:
            self._add(b"[]" if self._is_first else b"]")
            self._buffer += b"\n"
        self.flush()
        if self._file is not None:
            self._file.commit()


def _formatter(output: "ResponseOutput") -> "Formatter | None":
    """Return what shows items on a terminal, None if they are written as they are."""
    if output.file is not None or not output.terminal.stdout_is_terminal:
        return None
    from xapi_cli.request.json.pretty import Formatter

    return Formatter(colors=output.stdout_colors)

"""Decode the content codings br and zstd in constant memory, with the libraries that the extra `codings` installs.

A decoder yields blocks of at most 64 KiB, and empty ones, so that each step is short. It does not read past the end of
the coded data by more than the current block. It raises CorruptBody or TruncatedBody.
"""

from collections.abc import Iterator
from typing import Any

_BLOCK = 64 * 1024
_MAX_EMPTY_FRAMES = 10_000  # without data, one after another; each takes time
_MAX_ZSTD_BLOCK = 128 * 1024  # bytes, before and after decoding (RFC 8878, 3.1.1.2)
_FRAME, _SKIPPABLE = 0xFD2FB528, 0x184D2A50  # RFC 8878, 3.1.1 and 3.1.2

Blocks = Iterator[bytes]


class CorruptBody(Exception):
    """The body is not valid in its coding."""


class TruncatedBody(Exception):
    """The body ends before the end of its coded form."""


def decode_brotli(blocks: Blocks, brotli: Any) -> Blocks:
    """Decode br; bytes after its end are an error, because the library does not say where it ended."""
    inflater = brotli.Decompressor()
    for data in blocks:
        pending, is_full = data, False  # the inflater has more output, although the input may be consumed
        while pending or is_full or not inflater.can_accept_more_data():
            try:
                decoded = inflater.process(pending, output_buffer_limit=_BLOCK)
            except brotli.error:
                raise CorruptBody from None
            pending, is_full = b"", len(decoded) >= _BLOCK
            yield from _split(decoded)
        yield b""
        if inflater.is_finished():
            if next(blocks, None) is not None:
                raise CorruptBody
            return
    raise TruncatedBody


def decode_zstd(blocks: Blocks, zstandard: Any, max_window: int) -> Blocks:
    """Decode frames (RFC 8878); the library limits no output, so it gets one block of a frame at a time.

    Other bytes after a frame are ignored, as after a gzip member.
    """
    source = _Source(blocks)
    is_first, empty = True, 0
    while is_first or source.fill(4):
        magic = source.take(4)
        number = int.from_bytes(magic, "little")
        if number == _FRAME:
            frame = _decode_frame(source, magic, zstandard, max_window)
        elif number & ~0xF == _SKIPPABLE:
            frame = source.skip(int.from_bytes(source.take(4), "little"))
        elif is_first:
            raise CorruptBody
        else:
            return
        is_first, empty = False, empty + 1
        for block in frame:
            empty = 0 if block else empty
            yield block
        if empty > _MAX_EMPTY_FRAMES:
            raise CorruptBody
        yield b""


def _decode_frame(source: "_Source", magic: bytes, zstandard: Any, max_window: int) -> Blocks:
    """Decode the frame after its *magic* number."""
    inflater = zstandard.ZstdDecompressor(max_window_size=max_window).decompressobj()
    try:
        descriptor = source.take(1)
        inflater.decompress(magic + descriptor + source.take(_header_size(descriptor[0])))
        is_last = False
        while not is_last:
            head = source.take(3)
            is_last = bool(head[0] & 1)
            yield from _split(inflater.decompress(head + source.take(_content_size(head))))
        if descriptor[0] & 4:
            inflater.decompress(source.take(4))  # the checksum
    except zstandard.ZstdError:
        raise CorruptBody from None
    if not inflater.eof:
        raise CorruptBody


def _header_size(descriptor: int) -> int:
    """Return the size of the frame header after its *descriptor* (RFC 8878, 3.1.1.1)."""
    is_single_segment = bool(descriptor & 0x20)
    window = 0 if is_single_segment else 1
    dictionary = (0, 1, 2, 4)[descriptor & 3]
    return window + dictionary + (int(is_single_segment), 2, 4, 8)[descriptor >> 6]


def _content_size(head: bytes) -> int:
    """Return the size of a block after its *head* (RFC 8878, 3.1.1.2)."""
    number = int.from_bytes(head, "little")
    size, kind = number >> 3, number >> 1 & 3
    if size > _MAX_ZSTD_BLOCK:
        raise CorruptBody
    return 1 if kind == 1 else size  # kind 1: one byte, repeated


def _split(data: bytes) -> Blocks:
    """Yield *data* in blocks, or an empty one."""
    for start in range(0, max(1, len(data)), _BLOCK):
        yield data[start : start + _BLOCK]


class _Source:
    """The bytes of *blocks*, from which any number can be taken."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks, self._bytes = blocks, bytearray()

    def fill(self, size: int) -> bool:
        """Read until *size* bytes are available; return False if fewer are left."""
        while len(self._bytes) < size:
            block = next(self._blocks, None)
            if block is None:
                return False
            self._bytes += block
        return True

    def take(self, size: int) -> bytes:
        if not self.fill(size):
            raise TruncatedBody
        taken = bytes(self._bytes[:size])
        del self._bytes[:size]
        return taken

    def skip(self, size: int) -> Blocks:
        while size:
            if not self.fill(1):
                raise TruncatedBody
            skipped = min(size, len(self._bytes))
            del self._bytes[:skipped]
            size -= skipped
            yield b""

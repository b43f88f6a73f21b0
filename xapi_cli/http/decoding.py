"""Remove the content coding of a body, in constant memory.

A truncated body is an error. Other clients accept a truncated gzip body as complete.
"""

import zlib
from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from xapi_cli.errors import RESEND, NetworkError

if TYPE_CHECKING:
    from zlib import _Decompress

ACCEPTED = "gzip, deflate"  # the value of Accept-Encoding
NO_CODINGS = frozenset({"", "identity", "none"})  # servers send "none", which is not registered
_UNSUPPORTED = frozenset({"br", "zstd", "compress"})
_SUPPORTED = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
_BLOCK = 64 * 1024
_GZIP = b"\x1f\x8b"


def decode(chunks: Iterable[bytes], content_encoding: str | None, *, may_be_empty: bool = True) -> Iterator[bytes]:
    """Yield the decoded form of *chunks* in blocks of at most 64 KiB, each as soon as it is available.

    A coding that is not registered is ignored: gateways send names of character sets and of other transfer formats.
    Unless it *may_be_empty*, an empty body is truncated if it is coded. Raises NetworkError for a truncated or corrupt
    body and for an unsupported coding.
    """
    blocks = _split(chunks)
    first = next(blocks, None)
    if first is None and may_be_empty:
        return
    coding = _coding(content_encoding)
    whole = blocks if first is None else chain([first], blocks)
    if coding is None:
        yield from whole
    elif first is None:
        raise _truncated(coding)
    else:
        yield from _decode_gzip(whole) if coding == "gzip" else _decode_deflate(whole)
        for _ in _after_end(whole):  # so that its end is verified, and the connection can be reused
            pass


def _split(chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        for start in range(0, len(chunk), _BLOCK):
            yield chunk[start : start + _BLOCK]


def _coding(content_encoding: str | None) -> str | None:
    """Return the one coding that *content_encoding* names, None without one."""
    if not content_encoding:
        return None
    names = [name.strip().lower() for name in content_encoding.split(",")]
    codings = [name for name in names if name in _SUPPORTED or name in _UNSUPPORTED]
    if len(codings) > 1:  # nested codings allow a decompression bomb
        raise _error(f"the body has {len(codings)} content codings", "add the header Accept-Encoding:identity")
    if codings and codings[0] in _UNSUPPORTED:
        raise _error("the body has an unsupported content coding", "xapi supports gzip and deflate")
    return _SUPPORTED[codings[0]] if codings else None


def _decode_gzip(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Decode gzip: one or more members (RFC 1952, 2.2); other bytes after a member are ignored, as in gzip(1)."""
    start = b""
    while True:
        rest = yield from _inflate(zlib.decompressobj(zlib.MAX_WBITS | 16), start, blocks, "gzip")
        start = _two_bytes(rest, _after_end(blocks))
        if not start.startswith(_GZIP):
            return


def _decode_deflate(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Decode deflate: the zlib format, as RFC 9110 8.4.1.2 requires, or the raw data that some servers send."""
    start = _two_bytes(b"", blocks)
    is_zlib = start[0] & 0x0F == zlib.DEFLATED and int.from_bytes(start[:2], "big") % 31 == 0  # RFC 1950, 2.2
    yield from _inflate(zlib.decompressobj(zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS), start, blocks, "deflate")


def _two_bytes(start: bytes, blocks: Iterator[bytes]) -> bytes:
    """Return *start* and as many of *blocks* as two bytes need: they show the format of what follows."""
    while len(start) < 2 and (block := next(blocks, None)) is not None:
        start += block
    return start


def _inflate(
    inflater: "_Decompress", start: bytes, blocks: Iterator[bytes], coding: str
) -> Generator[bytes, None, bytes]:
    """Yield the decompressed form of *start* and *blocks*; return the bytes after the end of the compressed data."""
    data: bytes | None = start
    while data is not None:
        yield from _decompress(inflater, data, coding)
        if inflater.eof:
            return inflater.unused_data
        data = next(blocks, None)
    raise _truncated(coding)


def _decompress(inflater: "_Decompress", data: bytes, coding: str) -> Iterator[bytes]:
    """Yield all data that can be decompressed now, in blocks of at most 64 KiB."""
    is_full = False  # the inflater has more output, although the input may be consumed
    while (data or is_full) and not inflater.eof:
        try:
            block = inflater.decompress(data, _BLOCK)
        except zlib.error:
            raise _error(f"the {coding} body is corrupt or truncated", "try again") from None
        data = inflater.unconsumed_tail
        is_full = len(block) == _BLOCK
        if block:
            yield block


def _after_end(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield what follows in *blocks* after the end of the coded data.

    If only the end of the connection ends the body, it may break: the data is complete, as its coding shows.
    """
    try:
        yield from blocks
    except NetworkError as error:
        if not error.may_be_complete:
            raise


def _truncated(coding: str) -> NetworkError:
    return _error(f"the {coding} body was truncated", RESEND)


def _error(message: str, hint: str) -> NetworkError:
    return NetworkError(message, hint=hint, sent=True, headers_received=True)

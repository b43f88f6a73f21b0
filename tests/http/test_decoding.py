import gzip
import itertools
import random
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.errors import NetworkError
from xapi_cli.http.decoding import decode


def raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


Pack = Callable[[bytes], bytes]
PACKED: list[tuple[str, Pack]] = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", raw),
]


def undone(data: bytes | Iterable[bytes], coding: str | None) -> bytes:
    return b"".join(decode([data] if isinstance(data, bytes) else data, coding))


def split(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    start = 0
    for size in itertools.cycle(sizes):
        if start >= len(data):
            return
        yield data[start : start + size]
        start += size


@pytest.mark.parametrize("coding", [None, "", "identity", "Identity", "identity, ,identity"])
def test_a_body_without_a_content_coding_is_unchanged(coding: str | None) -> None:
    assert undone([b"a", b"", b"b\x00\xff"], coding) == b"ab\x00\xff"


@pytest.mark.parametrize(("coding", "pack"), PACKED)
@pytest.mark.parametrize("name", [str, str.upper, " {} ".format, "identity,{}".format])
def test_a_content_coding_is_decoded(coding: str, pack: Pack, name: Callable[[str], str]) -> None:
    for data in (b"hello" * 100, bytes(64 * 1024 + 1)):  # the last byte of the second one comes after all the input
        assert undone(pack(data), name(coding)) == data


@given(st.binary(max_size=3000), st.lists(st.integers(1, 700), min_size=1), st.sampled_from(PACKED))
def test_the_result_does_not_depend_on_how_a_body_is_split(
    data: bytes, sizes: list[int], packed: tuple[str, Pack]
) -> None:
    coding, pack = packed
    assert undone(split(pack(data), sizes), coding) == data


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5), st.lists(st.integers(1, 50), min_size=1))
def test_gzip_may_have_several_members(parts: list[bytes], sizes: list[int]) -> None:
    assert undone(split(b"".join(map(gzip.compress, parts)), sizes), "gzip") == b"".join(parts)


@pytest.mark.parametrize(
    "rest", [b"\0", b"\0" * 600, b"garbage", b"\x1f", b"\x1fgarbage", b"\0\0garbage", b"g" * 200_000]
)
@pytest.mark.parametrize("sizes", [[1], [1000], [10**9]])
def test_data_after_the_end_is_read_and_ignored(rest: bytes, sizes: list[int]) -> None:
    for coding, packed in (("gzip", gzip.compress(b"body")), ("deflate", zlib.compress(b"body"))):
        pieces = split(packed + rest, sizes)
        assert undone(pieces, coding) == b"body"
        assert next(pieces, None) is None


@pytest.mark.parametrize("coding", [None, "gzip", "deflate", "gzip, gzip", "nonsense"])
@pytest.mark.parametrize("chunks", [[], [b""], [b"", b""]])
def test_an_empty_body_is_empty_in_every_coding(coding: str | None, chunks: list[bytes]) -> None:
    assert undone(chunks, coding) == b""


@pytest.mark.parametrize(("coding", "pack"), PACKED)
def test_a_body_that_ends_early_is_truncated_at_any_position(coding: str, pack: Pack) -> None:
    whole = pack(b"hello world" * 3)
    for end in range(1, len(whole)):
        with pytest.raises(NetworkError, match="was truncated") as caught:
            undone(whole[:end], coding)
        assert (caught.value.sent, caught.value.headers_received, caught.value.exit_code) == (True, True, 11)


@pytest.mark.parametrize(("coding", "pack"), PACKED[:3])
def test_a_corrupt_body_is_an_error(coding: str, pack: Pack) -> None:
    body = bytearray(pack(random.Random(1).randbytes(1000)))
    body[-3] ^= 1
    with pytest.raises(NetworkError, match="is corrupt or truncated"):
        undone(bytes(body), coding)


@given(st.binary(min_size=1, max_size=300), st.sampled_from(["gzip", "deflate"]))
def test_garbage_is_decoded_or_a_network_error(data: bytes, coding: str) -> None:
    try:
        undone(data, coding)
    except NetworkError as error:
        assert str(error).isprintable()


@pytest.mark.parametrize("coding", ["aws-chunked", "UTF-8", "x\x1b[31m", "gzip;q=1"])
def test_an_unknown_coding_is_ignored(coding: str) -> None:
    assert b"".join(decode([b"as it is"], coding)) == b"as it is"
    assert b"".join(decode([gzip.compress(b"packed")], f"{coding}, gzip")) == b"packed"


@pytest.mark.parametrize("coding", ["br", "zstd", "compress"])
def test_an_unsupported_coding_is_an_error(coding: str) -> None:
    with pytest.raises(NetworkError, match="unsupported content coding; xapi supports gzip and deflate"):
        list(decode([b"x"], coding))


def test_a_coded_body_that_ends_before_its_first_byte_is_truncated() -> None:
    assert list(decode([], None, may_be_empty=False)) == []
    with pytest.raises(NetworkError, match="the gzip body was truncated"):
        list(decode([], "gzip", may_be_empty=False))


@pytest.mark.parametrize("coding", ["gzip, gzip", "deflate,gzip", "gzip,identity,br", "gzip" + ",gzip" * 999])
def test_more_than_one_coding_is_rejected_without_reading(coding: str) -> None:
    with pytest.raises(NetworkError, match="content codings; add the header Accept-Encoding:identity"):
        next(decode(iter([b"x", *[b"y"] * 9]), coding))


@pytest.mark.parametrize(("coding", "wbits"), [("gzip", 31), ("deflate", 15), ("deflate", -15)])
def test_output_is_available_as_soon_as_possible(coding: str, wbits: int) -> None:
    packer = zlib.compressobj(wbits=wbits)
    taken = []

    def chunks() -> Iterator[bytes]:
        for word in (b"one", b"two", b"three"):
            taken.append(word)
            yield packer.compress(word) + packer.flush(zlib.Z_SYNC_FLUSH)
        yield packer.flush()

    parts = decode(chunks(), coding)
    assert next(parts) == b"one"
    assert taken == [b"one"]
    assert next(parts) == b"two"
    assert taken == [b"one", b"two"]
    assert list(parts) == [b"three"]


@pytest.mark.parametrize(("coding", "wbits"), [("gzip", 31), ("deflate", 15), ("deflate", -15)])
def test_a_decompression_bomb_is_decoded_in_small_blocks_and_constant_memory(coding: str, wbits: int) -> None:
    packer = zlib.compressobj(9, wbits=wbits)
    bomb = b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(30)), packer.flush()])
    assert len(bomb) < 40_000
    tracemalloc.start()
    size = 0
    for block in decode([bomb], coding):
        assert len(block) <= 65536
        size += len(block)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == 30 << 20
    assert peak < 1_000_000

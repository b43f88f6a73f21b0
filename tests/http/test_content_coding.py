import gzip
import itertools
import random
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.errors import NetworkError
from xapi_cli.http.content_coding import accepted, decode, decode_steps


def raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def zstd(data: bytes) -> bytes:
    return bytes(zstandard.ZstdCompressor(write_checksum=True).compress(data))


def zstd_stream(data: bytes) -> bytes:
    """Compress *data* as a server does that does not know its size and flushes in between."""
    packer = zstandard.ZstdCompressor().compressobj()
    half = len(data) // 2
    flushed = packer.compress(data[:half]) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return bytes(flushed + packer.compress(data[half:]) + packer.flush())


Pack = Callable[[bytes], bytes]
PACKED: list[tuple[str, Pack]] = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", raw),
    ("br", brotli.compress),
    ("zstd", zstd),
    ("zstd", zstd_stream),
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
    assert undone(pack(b"hello" * 100), name(coding)) == b"hello" * 100


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
def test_data_after_gzip_is_read_and_ignored(rest: bytes, sizes: list[int]) -> None:
    pieces = split(gzip.compress(b"body") + rest, sizes)
    assert undone(pieces, "gzip") == b"body"
    assert next(pieces, None) is None


def test_padding_between_members_is_ignored() -> None:
    assert undone(gzip.compress(b"a") + bytes(512) + gzip.compress(b"b"), "gzip") == b"ab"


def test_data_after_deflate_is_read_and_ignored() -> None:
    pieces = split(zlib.compress(b"body") + b"garbage" * 1000, [100])
    assert undone(pieces, "deflate") == b"body"
    assert next(pieces, None) is None


@pytest.mark.parametrize("coding", [None, "gzip", "deflate", "br", "zstd", "gzip, gzip", "nonsense"])
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


def test_a_second_member_that_ends_early_is_truncated() -> None:
    parts = decode([gzip.compress(b"first"), gzip.compress(b"second")[:-4]], "gzip")
    assert next(parts) == b"first"
    with pytest.raises(NetworkError, match="truncated"):
        list(parts)


@pytest.mark.parametrize(("coding", "pack"), [*PACKED[:3], ("zstd", zstd)])
def test_a_corrupt_body_is_an_error(coding: str, pack: Pack) -> None:
    body = bytearray(pack(random.Random(1).randbytes(1000)))
    body[-3] ^= 1
    with pytest.raises(NetworkError, match="is corrupt or truncated"):
        undone(bytes(body), coding)


@given(st.binary(min_size=1, max_size=300), st.sampled_from(["gzip", "deflate", "br", "zstd"]))
def test_garbage_is_decoded_or_a_network_error(data: bytes, coding: str) -> None:
    try:
        undone(data, coding)
    except NetworkError as error:
        assert str(error).isprintable()


@given(st.data(), st.sampled_from(PACKED))
def test_mutated_bodies_are_decoded_or_a_network_error(data: st.DataObject, packed: tuple[str, Pack]) -> None:
    coding, pack = packed
    body = bytearray(pack(b"some text, some text"))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        undone(bytes(body), coding)
    except NetworkError:
        pass


@pytest.mark.parametrize("coding", ["compress", "dcb", "x\x1b[31m", "gzip;q=1"])
def test_an_unknown_coding_is_an_error_that_does_not_echo_it(coding: str) -> None:
    with pytest.raises(NetworkError) as caught:
        undone(b"body", coding)
    assert str(caught.value) == ("the body has an unsupported content coding; xapi supports gzip, deflate, br and zstd")


_OLD_BROTLI = "type('brotli', (), {'Decompressor': type('Decompressor', (), {}), '__spec__': 'brotli'})"


@pytest.mark.parametrize(
    "coding, brotli_module, library",
    [("br", "None", "brotli 1.2 or later"), ("br", _OLD_BROTLI, "brotli 1.2 or later"), ("zstd", "None", "zstandard")],
    ids=["br", "br 1.1", "zstd"],
)
def test_without_its_library_the_error_names_the_coding_and_the_extra(
    coding: str, brotli_module: str, library: str
) -> None:
    code = f"""
import sys
sys.modules.update(brotli={brotli_module}, brotlicffi=None, zstandard=None)  # None: cannot be imported
from xapi_cli.errors import NetworkError
from xapi_cli.http.content_coding import accepted, decode
assert accepted() == "gzip, deflate"
try:
    list(decode([b"body"], {coding!r}))
except NetworkError as error:
    print(error.exit_code, error)
from xapi_cli.system.installation import how_to_add
print(how_to_add("codings"))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)

    error, instruction = result.stdout.splitlines()
    assert error == f"11 the body has the content coding {coding}, but {library} is not installed; {instruction}"
    assert instruction.startswith("run `")
    assert "xapi" in instruction


def test_the_codings_whose_libraries_are_installed_are_requested() -> None:
    assert accepted() == "gzip, deflate, br, zstd"


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


@pytest.mark.slow
@pytest.mark.parametrize(("coding", "wbits"), [("gzip", 31), ("deflate", 15), ("deflate", -15)])
def test_a_decompression_bomb_is_decoded_in_small_blocks_and_constant_memory(coding: str, wbits: int) -> None:
    packer = zlib.compressobj(9, wbits=wbits)
    bomb = b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(300)), packer.flush()])
    assert len(bomb) < 400_000
    tracemalloc.start()
    size = 0
    for block in decode([bomb], coding):
        assert len(block) <= 65536
        size += len(block)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == 300 << 20
    assert peak < 1_000_000


def test_many_small_members_are_decoded_quickly() -> None:
    members = gzip.compress(b"x") * 50_000
    assert undone(members, "gzip") == b"x" * 50_000


def test_zstd_may_have_several_frames_and_skippable_ones() -> None:
    skippable = bytes.fromhex("5e2a4d18 03000000 616263")
    body = skippable + zstd(b"a") + skippable + zstd_stream(b"bc")
    assert undone(split(body, [1]), "zstd") == b"abc"


@pytest.mark.parametrize("frame", [bytes.fromhex("502a4d18 00000000"), zstd(b""), zstd(b"x")])
def test_each_frame_of_zstd_is_a_step(frame: bytes) -> None:
    assert sum(1 for _ in decode_steps([frame * 1000], "zstd")) >= 1000


@pytest.mark.parametrize(
    "frame", [bytes.fromhex("502a4d18 00000000"), bytes.fromhex("502a4d18 01000000 61"), zstd(b"")]
)
def test_zstd_frames_without_data_are_limited(frame: bytes) -> None:
    frames = frame * 9000
    assert undone((frames + zstd(b"a")) * 2, "zstd") == b"aa"
    with pytest.raises(NetworkError, match="the zstd body is corrupt"):
        undone(frames * 2, "zstd")


def test_data_after_zstd_is_read_and_ignored() -> None:
    pieces = split(zstd(b"body") + b"garbage" * 1000, [len(zstd(b"body"))])
    assert undone(pieces, "zstd") == b"body"
    assert next(pieces, None) is None


@pytest.mark.parametrize("surplus", [b"x", b"\0", brotli.compress(b"more")])
@pytest.mark.parametrize("size", [1, len(brotli.compress(b"body")), 1000])
def test_data_after_br_is_corrupt_however_it_arrives(surplus: bytes, size: int) -> None:
    with pytest.raises(NetworkError, match="the br body is corrupt"):
        undone(split(brotli.compress(b"body") + surplus, [size]), "br")


@pytest.mark.parametrize(
    "body",
    [
        b"body",
        bytes.fromhex("28b52ffd 00 58 070000"),  # a reserved kind of block
        bytes.fromhex("28b52ffd 00 58 05ffff"),  # a block of 2 MiB
        bytes.fromhex("28b52ffd 08 58 010000"),  # a reserved bit in the descriptor
        bytes.fromhex("28b52ffd 01 58 07 010000"),  # an unknown dictionary
    ],
)
def test_invalid_zstd_is_corrupt(body: bytes) -> None:
    with pytest.raises(NetworkError, match="the zstd body is corrupt"):
        undone(body, "zstd")


def test_a_zstd_body_that_needs_much_memory_is_rejected() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    with pytest.raises(NetworkError, match="the zstd body is corrupt"):
        undone(packer.compress(bytes(1000)) + packer.flush(), "zstd")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("coding", "pack"), [("br", partial(brotli.compress, quality=5)), ("zstd", zstandard.ZstdCompressor(19).compress)]
)
def test_a_bomb_in_br_or_zstd_is_decoded_in_small_blocks(coding: str, pack: Pack) -> None:
    bomb = pack(bytes(300 << 20))
    assert len(bomb) < 100_000
    sizes = [len(block) for block in decode([bomb], coding)]
    assert (sum(sizes), max(sizes)) == (300 << 20, 65536)

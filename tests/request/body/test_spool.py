"""A body is identical each time it is sent, and its memory use does not depend on its size."""

import os
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xapi_cli.errors import OutputError, XapiError
from xapi_cli.http.messages import Body
from xapi_cli.request.body.spool import CHUNK, FileSlice, Spool

SIZES = st.one_of(st.integers(0, 200), st.integers(CHUNK - 1, CHUNK + 1), st.just(3 * CHUNK + 5))


@given(st.lists(SIZES, max_size=4), st.sampled_from([0, 1, 100, CHUNK, 10 * CHUNK]))
def test_a_spool_yields_its_data_from_memory_or_disk(sizes: list[int], keep: int) -> None:
    chunks = [os.urandom(size) for size in sizes]
    spool = Spool(iter(chunks), "text/plain", keep=keep)

    assert spool.content_type == "text/plain"
    _check_each_sending(spool, b"".join(chunks))


def test_a_missing_directory_is_reported_as_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))

    with pytest.raises(OutputError) as caught:
        Spool([b"x" * CHUNK], keep=10)

    assert str(caught.value) == (
        "a body cannot be stored in a temporary file: No such file or directory; "
        "set TMPDIR to a directory with free space"
    )


@pytest.mark.skipif(os.name != "posix", reason="limits of file sizes are POSIX's")
@pytest.mark.parametrize("chunk", [CHUNK, 1_000])
def test_a_full_disk_is_an_output_error(chunk: int) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10 * CHUNK, hard))
    try:
        with pytest.raises(OutputError, match="cannot be stored in a temporary file: File too large"):
            Spool([b"x" * chunk] * (20 * CHUNK // chunk), keep=10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_truncated_while_it_is_sent_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    _written(path, 5 * CHUNK)
    with path.open("rb", buffering=0) as file:
        sending = iter(FileSlice(file, 0, 5 * CHUNK, name="the file"))
        next(sending)
        os.truncate(path, 2 * CHUNK)

        with pytest.raises(XapiError, match="the file changed while it was sent; send a copy of it"):
            list(sending)


def test_no_more_of_a_file_that_grows_is_sent_than_was_declared(tmp_path: Path) -> None:
    data = _written(tmp_path / "file", 2 * CHUNK)
    with (tmp_path / "file").open("rb", buffering=0) as file:
        assert b"".join(FileSlice(file, 0, CHUNK + 5, name="the file")) == data[: CHUNK + 5]


@pytest.mark.skipif(os.name != "posix", reason="directories cannot be opened elsewhere")
def test_a_file_that_can_no_longer_be_read_is_an_error(tmp_path: Path) -> None:
    _written(tmp_path / "file", 5 * CHUNK)
    with (tmp_path / "file").open("rb", buffering=0) as file:
        sending = iter(FileSlice(file, 0, 5 * CHUNK, name="the file"))
        next(sending)
        os.dup2(directory := os.open(tmp_path, os.O_RDONLY), file.fileno())  # a removed disk fails in the same way
        os.close(directory)

        with pytest.raises(XapiError, match="the file can no longer be read: Is a directory"):
            next(sending)


@pytest.mark.parametrize("change", [lambda path: path.write_bytes(b"y" * 5 * CHUNK), lambda path: os.truncate(path, 1)])
def test_a_changed_file_is_not_resent(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "file"
    _written(path, 5 * CHUNK)
    os.utime(path, (1, 1))
    with path.open("rb", buffering=0) as file:
        stretch = FileSlice(file, 0, 5 * CHUNK, name="the file")
        list(stretch)
        change(path)

        with pytest.raises(XapiError, match="the file changed while it was sent"):
            next(iter(stretch))


def _check_each_sending(body: Body, expected: bytes) -> None:
    """Iterate over the body completely, partly as after an early response, and completely again."""
    assert body.length == len(expected)
    assert all(0 < len(chunk) <= CHUNK for chunk in body)
    assert b"".join(body) == expected
    assert expected.startswith(b"".join(islice(body, 1)))
    assert b"".join(body) == expected
    body.close()


def _written(path: Path, size: int) -> bytes:
    data = os.urandom(size)
    path.write_bytes(data)
    return data

"""Files, pipes and stdin are read unchanged, or reported by name."""

import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from xapi_cli.errors import UsageError
from xapi_cli.request.body.sources import read_body, read_text, read_value
from xapi_cli.request.body.spool import CHUNK, IN_MEMORY, FileSlice

BIG = IN_MEMORY + CHUNK + 7


def no_stdin() -> BinaryIO:
    pytest.fail("stdin was requested")


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"", ""),
        (b"a", "a"),
        (b"a\n", "a"),
        (b"a\r\n\n", "a"),
        (b"\n a \n", "\n a "),
        ("\ufeffé\r\n".encode(), "é"),
    ],
)
def test_a_value_is_the_text_without_the_line_end(tmp_path: Path, content: bytes, value: str) -> None:
    (tmp_path / "file").write_bytes(content)

    assert read_value(str(tmp_path / "file"), lambda: None) == value
    assert read_value("-", lambda: io.BytesIO(content)) == value


@pytest.mark.parametrize("size", [0, IN_MEMORY, IN_MEMORY + 1])
def test_a_file_becomes_a_body(tmp_path: Path, size: int) -> None:
    data = _written(tmp_path / "file", size)
    body = read_body(str(tmp_path / "file"), no_stdin, "text/plain")

    assert (body.length, body.content_type) == (size, "text/plain")
    assert b"".join(body) == b"".join(body) == data
    body.close()


def test_a_tilde_after_an_at_sign_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    data = _written(tmp_path / "file", 10)

    assert b"".join(read_body("~/file", no_stdin)) == data


@pytest.mark.skipif(os.name != "posix", reason="needs named pipes")
@pytest.mark.parametrize("size", [0, 10, BIG])
def test_a_named_pipe_is_read_to_its_end(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    os.mkfifo(tmp_path / "pipe")
    with _writing(lambda: open(tmp_path / "pipe", "wb"), data):
        body = read_body(str(tmp_path / "pipe"), no_stdin)

    assert body.length == size
    assert b"".join(body) == b"".join(body) == data
    body.close()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing", "cannot read missing: No such file or directory"),
        (".", "cannot read .: Is a directory"),
        ("mis\x1b[31msing\n", "cannot read mis\\x1b[31msing\\x0a: No such file or directory"),
        ("a\x00b", "cannot read a file: its name is not valid"),
        ("a\ud800b", "cannot read a file: its name is not valid"),
    ],
)
@pytest.mark.skipif(os.name != "posix", reason="the reasons read differently elsewhere")
def test_an_unreadable_file_is_reported_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)

    for read in (lambda: read_body(path, no_stdin), lambda: list(read_text(path, no_stdin))):
        with pytest.raises(UsageError) as caught:
            read()
        assert caught.value.message == message
        assert str(caught.value).isprintable()


@pytest.mark.parametrize(("size", "buffering"), [(0, -1), (10, 0), (CHUNK + 1, -1), (BIG, 0)])
def test_a_pipe_at_stdin_is_read_to_its_end(size: int, buffering: int) -> None:
    data = os.urandom(size)
    reading, writing = os.pipe()
    with _writing(lambda: open(writing, "wb"), data), open(reading, "rb", buffering=buffering) as stdin:
        body = read_body("-", lambda: stdin)

    assert body.length == size
    assert b"".join(body) == b"".join(body) == data
    body.close()


@pytest.mark.parametrize(("size", "start", "buffering"), [(0, 5, -1), (10, 0, 0), (BIG, 5, -1)])
def test_a_file_at_stdin_is_sent_from_its_current_offset(tmp_path: Path, size: int, start: int, buffering: int) -> None:
    data = _written(tmp_path / "file", start + size)
    with (tmp_path / "file").open("rb", buffering=buffering) as stdin:
        stdin.read(start)
        body = read_body("-", lambda: stdin, "text/plain")

        assert (body.length, body.content_type) == (size, "text/plain")
        assert b"".join(body) == b"".join(body) == data[start:]
        assert isinstance(body, FileSlice) == (size > IN_MEMORY)
        body.close()
        assert not stdin.closed


def test_closed_stdin_is_reported() -> None:
    closed = io.BytesIO()
    closed.close()

    for stdin in (lambda: None, lambda: closed):
        with pytest.raises(UsageError, match="stdin is closed"):
            read_body("-", stdin)
        with pytest.raises(UsageError, match="stdin is closed"):
            list(read_text("-", stdin))


@pytest.mark.parametrize(
    "data", [b"\xff", b"a\xc3", b"x" * (CHUNK - 1) + b"\xc3(", "a".encode("utf-16"), b"\xed\xa0\x80"]
)
def test_text_that_is_not_valid_utf_8_is_reported_by_name(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)

    with pytest.raises(UsageError, match="file is not valid UTF-8; upload it with name@file"):
        list(read_text(str(tmp_path / "file"), no_stdin))
    with pytest.raises(UsageError, match="stdin is not valid UTF-8"):
        list(read_text("-", lambda: io.BytesIO(data)))


def test_a_character_may_be_split_by_the_blocks_in_which_text_is_read() -> None:
    text = "x" * (CHUNK - 1) + "é"
    assert "".join(read_text("-", lambda: io.BytesIO(text.encode()))) == text


@contextmanager
def _writing(opened: Callable[[], BinaryIO], data: bytes) -> Iterator[None]:
    """Write *data* in a thread to the file that *opened* opens, as the other end of a pipe."""

    def write() -> None:
        with opened() as pipe:
            pipe.write(data)

    thread = threading.Thread(target=write)
    thread.start()
    yield
    thread.join()


def _written(path: Path, size: int) -> bytes:
    data = os.urandom(size)
    path.write_bytes(data)
    return data
